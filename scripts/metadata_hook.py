"""A hook of hatchling: the addresses of the project, and the README as pages elsewhere can show it.

`[tool.dragoman] repository` in pyproject.toml is the one place for the address; `make release` refuses its placeholder.
Links and pictures of the README are relative in the repository. In the description of a package they lead to the files
of the release: to its tag, or to the main branch for a development version.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PLACEHOLDER = "OWNER"
"""What stands for the owner as long as the repository has no address."""

LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?![a-z]+:|#)([^)\s]+)\)")
"""A relative link or picture of Markdown."""

VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


def read_repository(root: Path) -> str:
    """Return the address of the repository."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["dragoman"]
    address: str = settings["repository"]
    return address


def make_urls(repository: str) -> dict[str, str]:
    """Return the addresses that an index page lists."""
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/main/docs/README.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Source": repository,
    }


def make_description(readme: str, repository: str, version: str) -> str:
    """Return the README with links that work elsewhere."""
    at = "main" if "dev" in version else f"v{version}"

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}{repository}/{kind}/{at}/{found[2]})"

    return LINK.sub(absolute, readme)


class AddressHook(MetadataHookInterface):
    """Fills in `urls` and `readme`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Called before each build."""
        root = Path(self.root)
        repository = read_repository(root)
        found = VERSION.search((root / "src/dragoman/__init__.py").read_text(encoding="utf-8"))
        assert found is not None
        readme = (root / "README.md").read_text(encoding="utf-8")
        metadata["urls"] = make_urls(repository)
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": make_description(readme, repository, found[1]),
        }
