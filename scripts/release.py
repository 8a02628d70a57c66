"""Goes through the checklist of a release as a dry run: nothing is tagged, pushed or published.

Run by `make release`. Every step says `ok`, `no answer` (of a service elsewhere) or what is wrong; the rest is tried
all the same. In the end it prints what a person still has to do. The exit status is 1 if a step failed.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dragoman import __version__
from scripts.check_links import UNRELEASED
from scripts.dist import BIN, CHECKERS, DIST, ROOT, Refused, run
from scripts.dist import main as make_dist
from scripts.metadata_hook import PLACEHOLDER, read_repository

RELEASED = re.compile(r"\d+\.\d+\.\d+")
EXTRAS = ("grpc", "nats", "otel", "postgres", "s3")

IMPORTS = {
    "grpc": "dragoman.bindings.grpc",
    "nats": "nats",
    "otel": "opentelemetry.sdk",
    "postgres": "asyncpg",
    "s3": "obstore",
}
"""What shows that an extra was installed."""

COPYLEFT = re.compile(r"\b(?:A?GPL|SSPL|BUSL)", re.IGNORECASE)
"""Licences that a package under Apache-2.0 must not need."""

OFFLINE = re.compile(
    r"ENOTFOUND|ECONNREFUSED|EAI_AGAIN|ENOAUDIT|getaddrinfo|ConnectionError|Max retries|timed out|404|405", re.I
)
"""What auditors print if the service of advisories does not answer."""

BY_HAND = """\
What is left for a person:
  1. git tag -s v{version} && git push origin v{version}
  2. The workflow publish.yml builds the tag again, compares with dist/SHA256SUMS, and publishes with attestations.
     Files that were made here are unsigned.
  3. Build and push the image (make container), and sign it.
  4. Publish the notes: the section {version} of CHANGELOG.md.
  5. Set __version__ to the next development version, and begin a section Unreleased."""


class NoAnswer(Exception):
    """A service elsewhere did not answer."""


Check = Callable[[], str]
"""A step: returns what it has found, or raises Refused or NoAnswer."""


def check_tree() -> str:
    """All is committed."""
    if changed := run("git", "status", "--porcelain"):
        raise Refused(f"commit these first: {' '.join(changed.split())}")
    return run("git", "rev-parse", "--short=12", "HEAD").strip()


def check_version() -> str:
    """The version is one of a release, and stands wherever it is named."""
    if not RELEASED.fullmatch(__version__):
        raise Refused(f"{__version__} is no version of a release: set __version__ in src/dragoman/__init__.py")
    image = ROOT / "deploy" / "kubernetes" / "base" / "kustomization.yaml"
    if f'newTag: "{__version__}"' not in image.read_text(encoding="utf-8"):
        raise Refused(f"{image.relative_to(ROOT)} names another version")
    return __version__


def check_changelog() -> str:
    """The changelog has a dated section of the version, and nothing above it."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(
        r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    for name, date, body in sections:
        if name == "Unreleased":
            if body.strip():
                raise Refused(
                    f"the section Unreleased of CHANGELOG.md is not empty: name it [{__version__}] with a date"
                )
            continue
        if (name, bool(date)) != (__version__, True):
            raise Refused(f"CHANGELOG.md begins with {name}, not with [{__version__}] and a date")
        return f"{len(body.split())} words of {date}"
    raise Refused("CHANGELOG.md has no section")


def check_addresses() -> str:
    """The repository has an address."""
    repository = read_repository(ROOT)
    if PLACEHOLDER in repository:
        raise Refused(f"[tool.dragoman] repository in pyproject.toml is still {repository}")
    return repository


def check_install() -> str:
    """The README installs what will be published."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if UNRELEASED in readme:
        raise Refused(
            f"README.md still says how to install before the first release: in place of what stands from {UNRELEASED} "
            "to <!-- end -->, write a block with `pip install dragoman`"
        )
    if not re.search(r"^pip install dragoman$", readme, re.MULTILINE):
        raise Refused("README.md has no line `pip install dragoman`")
    return "pip install dragoman"


def check_packages() -> str:
    """Wheel and source distribution: the same bytes twice, contents, bill of materials, the README's first example."""
    if make_dist():
        raise Refused("see above")
    return ", ".join(sorted(path.name for path in DIST.iterdir()))


def check_extras() -> str:
    """The source distribution installs with every extra into an empty environment, and each of them can be imported."""
    (sdist,) = DIST.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as name:
        environment = Path(name) / "environment"
        run(BIN / "uv", "venv", "--quiet", "-p", BIN / "python", environment)
        run(
            BIN / "uv",
            "pip",
            "install",
            "--quiet",
            "-p",
            environment,
            f"dragoman[{','.join(EXTRAS)}] @ {sdist.as_uri()}",
        )
        run(environment / "bin" / "python", "-c", f"import {', '.join(IMPORTS[extra] for extra in EXTRAS)}")
    return ", ".join(EXTRAS)


def check_licenses() -> str:
    """No package that the installation needs has a licence that asks for more than Apache-2.0."""
    script = (
        "import json; from importlib.metadata import distributions; print(json.dumps({d.name: "
        "[d.metadata.get('License-Expression') or '', d.metadata.get('License') or '', "
        "*(d.metadata.get_all('Classifier') or [])] for d in distributions()}))"
    )
    said: dict[str, list[str]] = json.loads(run(BIN / "python", "-c", script))
    names = re.findall(
        r"^([a-z0-9-]+)==", (ROOT / "requirements" / "core.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    found = [name for name in names if any(COPYLEFT.search(line[:200]) for line in said.get(name, []))]
    if found:
        raise Refused(f"look at the licences of {', '.join(found)}")
    return f"{len(names)} packages of the core"


def check_stores() -> str:
    """The stores of all earlier versions open, are read and continued."""
    run(BIN / "pytest", "-q", "tests/store/releases", PYTHONPATH=".")
    return "tests/store/releases"


def check_python_advisories() -> str:
    """No package of the core or of an extra has a known vulnerability."""
    files = [str(ROOT / "requirements" / f"{name}.txt") for name in ("core", "grpc")]
    return audited(str(CHECKERS / "pip-audit"), "--disable-pip", *(word for file in files for word in ("-r", file)))


def check_node_advisories() -> str:
    """The same for what the console is built with."""
    return audited("npm", "audit", "--prefix", str(ROOT / "console"))


def audited(*command: str) -> str:
    """Run an auditor. Raises NoAnswer if the advisories cannot be had."""
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswer(str(error)) from error
    if ran.returncode == 0:
        return "none known"
    said = (ran.stdout + ran.stderr).strip()
    if silence := next((line for line in said.splitlines() if OFFLINE.search(line)), ""):
        raise NoAnswer(silence)
    raise Refused(said)


STEPS: Sequence[Check] = (
    check_tree,
    check_version,
    check_changelog,
    check_addresses,
    check_install,
    check_packages,
    check_extras,
    check_licenses,
    check_stores,
    check_python_advisories,
    check_node_advisories,
)


def main(steps: Sequence[Check] = STEPS) -> int:
    """Try all steps. Returns the exit status."""
    failed = 0
    for step in steps:
        name = (step.__doc__ or step.__name__).splitlines()[0].rstrip(".")
        try:
            print(f"ok         {name}: {step()}", flush=True)
        except NoAnswer as silence:
            print(f"no answer  {name}: {silence}", flush=True)
        except Refused as refusal:
            failed += 1
            print(f"FAILED     {name}: {refusal}", flush=True)
    print(BY_HAND.format(version=__version__))
    if failed:
        print(f"{failed} of {len(steps)} steps failed: nothing of this may be released.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
