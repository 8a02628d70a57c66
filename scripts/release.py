"""Goes through the checklist of a release as a dry run: nothing is tagged, pushed or published.

Run by `make release`. Every step says `ok`, `no answer` (of a service elsewhere) or what is wrong; the rest is tried
all the same. In the end it prints what a person still has to do. The exit status is 1 if a step failed.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dragoman import __version__
from scripts.check_links import UNRELEASED
from scripts.dist import BIN, CHECKERS, DIST, ROOT, Refused, run
from scripts.dist import main as make_dist
from scripts.metadata_hook import PLACEHOLDER, read_repository
from scripts.packages import tracked

RELEASED = re.compile(r"\d+\.\d+\.\d+")

NAMED = re.compile(r'(?:newTag:|appVersion:|^version:|\bdragoman:)\s*"?(\d+\.\d+\.\d+)\b', re.MULTILINE)
"""A version of Dragoman in `deploy/`: the tag of an image, or a version of the chart."""

LOCKS = ("core", "grpc", "container")
"""The files in `requirements/` that hold the core and all extras."""

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
What is left for a person, once, before the first release:
  a. On the index: register the project, and publish.yml with the environment `release` as its trusted publisher.
     In the repository: let the environment `release` ask a maintainer, and switch private vulnerability reporting on,
     which SECURITY.md names. Whoever owns the project reads GOVERNANCE.md.
For each release:
  1. See that CI, `make test-soak` and `make bench ARGS=--page` are good on this commit (CONTRIBUTING.md, "A release").
     Walk docs/upgrading.md with the wheel in dist/ beside a copy of a real store.
  2. git tag -s v{version} -m "Dragoman {version}" && git push origin v{version}
  3. The workflow publish.yml builds the tag and prints checksums. Compare them with dist/SHA256SUMS, then agree in the
     environment `release`: it publishes with attestations. The files in dist/ are unsigned.
  4. If you publish the image and the chart: `make container` tries the image; then
     docker build -f Containerfile -t REGISTRY/dragoman:{version} --build-arg COMMIT=$(git rev-parse HEAD) .
     docker push REGISTRY/dragoman:{version} && cosign sign REGISTRY/dragoman:{version}
     helm package deploy/helm && helm push dragoman-{version}.tgz oci://REGISTRY
  5. Publish the notes, which are the section {version} of CHANGELOG.md, and the site (`make site`).
  6. Set __version__ to the next development version, and its number in the other places."""


class NoAnswer(Exception):
    """A service elsewhere did not answer."""


Check = Callable[[], str]
"""A step: returns what it has found, or raises Refused or NoAnswer."""


def check_tree() -> str:
    """All is committed."""
    if changed := run("git", "status", "--porcelain"):
        raise Refused(f"commit these first: {' '.join(changed.split())}")
    return run("git", "rev-parse", "--short=12", "HEAD").strip()


def coming() -> str:
    """The version that is to be released: that of a development version, too."""
    return __version__.partition(".dev")[0]


def check_version() -> str:
    """The version is one of a release, and has no tag yet."""
    if not RELEASED.fullmatch(__version__):
        raise Refused(
            f"{__version__} is no version of a release: set __version__ in src/dragoman/__init__.py to {coming()}"
        )
    if run("git", "tag", "--list", f"v{__version__}"):
        raise Refused(f"the tag v{__version__} is there already: choose another version")
    return __version__


def check_deployment() -> str:
    """The tags of images and the versions of the chart in deploy/ are those of the release."""
    found = {
        f"{path}: {line.strip()}": version
        for path in tracked(ROOT)
        if path.parts[0] == "deploy" and path.suffix in (".yaml", ".md")
        for line in (ROOT / path).read_text(encoding="utf-8").splitlines()
        for version in NAMED.findall(line)
    }
    if wrong := [line for line, version in found.items() if version != coming()]:
        raise Refused(f"name {coming()} in {'; '.join(wrong)}")
    if not found:
        raise Refused("no file in deploy/ names a version")
    return f"{coming()}, {len(found)} times"


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
                    f"the section Unreleased of CHANGELOG.md is not empty: name it [{coming()}] with a date, and leave "
                    "an empty one above it"
                )
            continue
        if (name, bool(date)) != (coming(), True):
            raise Refused(f"CHANGELOG.md begins with {name}, not with [{coming()}] and a date")
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


@contextmanager
def installed(*wanted: str) -> Iterator[Path]:
    """An environment with what uv was asked to install; its folder of programs."""
    with tempfile.TemporaryDirectory() as name:
        environment = Path(name) / "environment"
        run(BIN / "uv", "venv", "--quiet", "-p", BIN / "python", environment)
        run(BIN / "uv", "pip", "install", "--quiet", "-p", environment, *wanted)
        yield environment / "bin"


def check_extras() -> str:
    """Wheel and source distribution install with every extra, the wheel also with each alone, from the index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = sorted(project["optional-dependencies"])
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    for file, chosen in ((wheel, extras), (sdist, extras), *((wheel, [extra]) for extra in extras)):
        with installed(f"dragoman[{','.join(chosen)}] @ {file.as_uri()}") as programs:
            run(programs / "python", "-c", f"import {', '.join(IMPORTS[extra] for extra in chosen)}")
            run(programs / "dragoman", "--version", cwd=programs)
    return ", ".join(extras)


def check_demo() -> str:
    """The README's `dragoman demo kill` loses nothing with the wheel in an empty environment."""
    (wheel,) = DIST.glob("*.whl")
    with installed(f"dragoman @ {wheel.as_uri()}") as programs:
        run(programs / "dragoman", "demo", "kill", "--alone", "--step", "0.2", cwd=programs)
    return "dragoman demo kill"


def check_licenses() -> str:
    """No package that the core or an extra needs has a licence that asks for more than Apache-2.0."""
    script = (
        "import json; from importlib.metadata import distributions; print(json.dumps({d.name: "
        "[d.metadata.get('License-Expression') or '', d.metadata.get('License') or '', "
        "*(d.metadata.get_all('Classifier') or [])] for d in distributions()}))"
    )
    with installed(*lock_options()) as programs:
        said: dict[str, list[str]] = json.loads(run(programs / "python", "-c", script))
    if found := sorted(name for name, lines in said.items() if any(COPYLEFT.search(line[:200]) for line in lines)):
        raise Refused(f"look at the licences of {', '.join(found)}")
    return f"{len(said)} packages"


def lock_options() -> list[str]:
    """The options by which installers and auditors read what the core and the extras need."""
    return [word for name in LOCKS for word in ("-r", str(ROOT / "requirements" / f"{name}.txt"))]


def check_stores() -> str:
    """The stores of all earlier versions open, are read and continued."""
    run(BIN / "pytest", "-q", "tests/store/releases", PYTHONPATH=".")
    return "tests/store/releases"


def check_python_advisories() -> str:
    """No package of the core or of an extra has a known vulnerability."""
    return audited(str(CHECKERS / "pip-audit"), "--disable-pip", *lock_options())


def check_node_advisories() -> str:
    """No package that the console is built with has a known vulnerability."""
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
    check_deployment,
    check_changelog,
    check_addresses,
    check_install,
    check_packages,
    check_extras,
    check_demo,
    check_licenses,
    check_stores,
    check_python_advisories,
    check_node_advisories,
)


def main(steps: Sequence[Check] = STEPS) -> int:
    """Try all steps. Returns the exit status."""
    failed = silent = 0
    for step in steps:
        name = (step.__doc__ or step.__name__).splitlines()[0].rstrip(".")
        try:
            print(f"ok         {name}: {step()}", flush=True)
        except NoAnswer as silence:
            silent += 1
            print(f"no answer  {name}: {silence}", flush=True)
        except Refused as refusal:
            failed += 1
            print(f"FAILED     {name}: {refusal}", flush=True)
    print(BY_HAND.format(version=coming()))
    if silent:
        print(f"{silent} of {len(steps)} steps got no answer: repeat them where their services can be reached.")
    if failed:
        print(f"{failed} of {len(steps)} steps failed: nothing of this may be released.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
