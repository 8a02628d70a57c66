"""The software bill of materials of a release, in CycloneDX 1.6, made from the lock files.

Invariant: the same commit gives the same bytes: the time is the commit's, and the serial number is derived from it.
"""

import base64
import json
import re
import tomllib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PIN = re.compile(r"^([a-z0-9-]+)==([^\s;\\]+)", re.MULTILINE)
NAME = re.compile(r"[a-z0-9-]+")
BUNDLED = re.compile(r"^(\S+) (\d\S*) \([^)]*\)$", re.MULTILINE)
"""The head of a package's licence in licenses.txt, which the console's build writes."""

LICENSES = Path("src", "dragoman", "bindings", "console", "built", "licenses.txt")
IDS = uuid.UUID("5f0c7b0e-54a3-5a0b-9d3f-2f6a8c1f7e11")
"""The namespace of serial numbers; drawn once."""


def make_sbom(root: Path, version: str, commit: str, committed_s: int) -> bytes:
    """The document for the code below `root`, whose console is built.

    `required` is what the core install needs, and the code that is in the console's built files. `optional` are the
    extras. `excluded` is what only builds the console.
    """
    own = f"pkg:pypi/dragoman@{version}"
    python, npm = list(_python(root)), list(_npm(root))
    direct = {f"pkg:pypi/{name}@" for name in _asked(root)["dependencies"]}
    needed = [each["bom-ref"] for each in python if any(each["bom-ref"].startswith(one) for one in direct)]
    needed += [each["bom-ref"] for each in npm if each["scope"] == "required"]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(IDS, f'{version} {commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(committed_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "dragoman",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "properties": [{"name": "dragoman:commit", "value": commit}],
            },
        },
        "components": sorted([*python, *npm], key=lambda each: str(each["bom-ref"])),
        "dependencies": [{"ref": own, "dependsOn": sorted(needed)}],
    }
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def _asked(root: Path) -> dict[str, list[str]]:
    """The names of the packages that the project asks for: `dependencies`, and `extras`."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [each for asked in project["optional-dependencies"].values() for each in asked]
    return {"dependencies": _names(project["dependencies"]), "extras": _names(extras)}


def _names(requirements: list[str]) -> list[str]:
    return [found[0] for each in requirements if (found := NAME.match(each)) is not None]


def _python(root: Path) -> Iterator[dict[str, Any]]:
    core = _pins(root / "requirements" / "core.txt")
    for name, version in core.items():
        yield _component("pypi", name, version, "required")
    tested = _pins(root / "requirements" / "dev.txt")  # has every extra, in the version that is tested
    for name in dict.fromkeys(_asked(root)["extras"]):
        if name not in core:
            yield _component("pypi", name, tested[name], "optional")


def _pins(lock: Path) -> dict[str, str]:
    return dict(PIN.findall(lock.read_text(encoding="utf-8")))


def _npm(root: Path) -> Iterator[dict[str, Any]]:
    lock = json.loads((root / "console" / "package-lock.json").read_text(encoding="utf-8"))
    bundled = set(BUNDLED.findall((root / LICENSES).read_text(encoding="utf-8")))
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path, said in lock["packages"].items():
        if path:
            name = path.rpartition("node_modules/")[2]
            scope = "required" if (name, said["version"]) in bundled else "excluded"
            component = _component("npm", name.replace("@", "%40"), said["version"], scope) | {"name": name}
            if "license" in said:
                component["licenses"] = [{"expression": said["license"]}]
            algorithm, _, digest = said["integrity"].partition("-")
            name_of_hash = algorithm.upper().replace("SHA", "SHA-")
            component["hashes"] = [{"alg": name_of_hash, "content": base64.b64decode(digest).hex()}]
            found[name, said["version"]] = component
    missing = bundled - found.keys()
    if missing:
        raise ValueError(f"{LICENSES} names what the lock file does not have: {sorted(missing)}: run make console")
    yield from found.values()


def _component(kind: str, name: str, version: str, scope: str) -> dict[str, Any]:
    purl = f"pkg:{kind}/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "scope": scope,
        "purl": purl,
    }
