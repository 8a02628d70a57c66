"""Makes `dist/`: wheel, source distribution, bill of materials and checksums of the commit that is checked out.

Run by `make dist`, which builds the console. It refuses changes that are not committed, builds twice and compares,
checks the contents, and runs the first example of the README with the wheel, in an empty environment and folder.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from dragoman import __version__
from scripts.packages import CONSOLE, Built, build, commit_of, export, faults
from scripts.sbom import make_sbom

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BIN = ROOT / ".venv" / "bin"
CHECKERS = ROOT / ".venv-dist" / "bin"

START_S = 30.0
STOP_S = 10.0

VALIDATE = """
import sys
from pathlib import Path
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(sys.argv[1]).read_text(encoding="utf-8"))
sys.exit(0 if fault is None else str(fault))
"""


UNSIGNED = "These files were built outside of the publishing workflow, and carry no attestation.\n"


class Refused(Exception):
    """Something that must not be released, in one line or more."""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command to its end, and return its output. Raises Refused with what it said."""
    ran = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)
    if ran.returncode:
        raise Refused(f"{' '.join(map(str, command))}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def step(said: str) -> None:
    """Say what was done."""
    print(f"dist: {said}", flush=True)


def main() -> int:
    """Make and check everything. Returns the exit status."""
    try:
        if changed := run("git", "status", "--porcelain"):
            raise Refused(f"commit these first, as dist/ is made of a commit:\n{changed}")
        commit, committed_s = commit_of(ROOT)
        with tempfile.TemporaryDirectory() as name:
            found = build_twice(Path(name), commit, committed_s)
            shutil.rmtree(DIST, ignore_errors=True)
            DIST.mkdir()
            built = Built(*(Path(shutil.copy(path, DIST)) for path in (found.wheel, found.sdist)))
            sbom = DIST / f"dragoman-{__version__}.cdx.json"
            sbom.write_bytes(make_sbom(ROOT, __version__, commit, committed_s))
            check(built, sbom)
            try_wheel(Path(name) / "try", built.wheel, commit)
        sums = [f"{sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in (built.wheel, built.sdist, sbom)]
        (DIST / "UNSIGNED").write_text(UNSIGNED, encoding="utf-8")
        (DIST / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")
    except Refused as refusal:
        print(f"dist: {refusal}", file=sys.stderr)
        return 1
    print("\n".join(sums))
    return 0


def build_twice(folder: Path, commit: str, committed_s: int) -> Built:
    """Build in two places, and once more from the source distribution. Raises Refused if the bytes differ."""
    builds = []
    for place, mask in (("one", 0o022), ("an/other", 0o077)):
        source, target = folder / place / "source", folder / place / "built"
        before = os.umask(mask)
        try:
            export(ROOT, source, commit)
            builds.append(build(source, target, committed_s))
        finally:
            os.umask(before)
    first, second = builds
    for one, other in ((first.wheel, second.wheel), (first.sdist, second.sdist)):
        if one.read_bytes() != other.read_bytes():
            raise Refused(f"{one.name} differs from one build to the next")
    run("tar", "-xzf", first.sdist, "-C", folder)
    again = build(folder / first.sdist.name.removesuffix(".tar.gz"), folder / "again", committed_s)
    if again.wheel.read_bytes() != first.wheel.read_bytes():
        raise Refused(f"{first.wheel.name} differs if it is built from {first.sdist.name}")
    fresh = folder / "console"
    run("npx", "vite", "build", "--outDir", fresh, "--emptyOutDir", cwd=ROOT / "console")
    if tree(fresh) != tree(ROOT / CONSOLE):
        raise Refused("the console's built files are not those of this commit: run make clean console")
    step(f"built {first.wheel.name} and {first.sdist.name} of {commit[:12]} twice, with the same bytes")
    return first


def tree(folder: Path) -> dict[str, bytes]:
    """The files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(built: Built, sbom: Path) -> None:
    """Check what is in the packages. Raises Refused."""
    run(CHECKERS / "twine", "check", "--strict", built.wheel, built.sdist)
    if found := faults(ROOT, built):
        raise Refused("\n".join(found))
    run(CHECKERS / "python", "-c", VALIDATE, sbom)
    components = json.loads(sbom.read_bytes())["components"]
    step(f"checked metadata and contents; {sbom.name} has {len(components)} components")


# -- the first example of the README ---------------------------------------------------------------------------------


def try_wheel(folder: Path, wheel: Path, commit: str) -> None:
    """Install the wheel into an empty environment and do in an empty folder what the README shows. Raises Refused."""
    environment = folder / "environment"
    run(BIN / "uv", "venv", "--quiet", "-p", BIN / "python", environment)
    install: list[str | Path] = [BIN / "uv", "pip", "install", "--quiet", "-p", environment]
    run(*install, "--require-hashes", "-r", ROOT / "requirements" / "core.txt")
    run(*install, "--no-deps", wheel)
    dragoman = environment / "bin" / "dragoman"
    empty = folder / "empty"
    empty.mkdir()
    shown = run(dragoman, "--version", cwd=empty).strip()
    if shown != f"dragoman {__version__} (commit {commit[:12]})":
        raise Refused(f"dragoman --version shows {shown!r}")
    code, serve, call = first_example((ROOT / "README.md").read_text(encoding="utf-8"))
    (empty / "speller.py").write_text(code, encoding="utf-8")
    with served([str(dragoman), *serve.split()[1:]], empty) as url:
        said = run(
            "sh", "-c", call.replace("localhost:7871", url), cwd=empty, PATH=f"{dragoman.parent}:{os.environ['PATH']}"
        )
        if "State: TASK_STATE_COMPLETED" not in said or "H E Y" not in said:
            raise Refused(f"the README's first example answers {said}")
        page = read(f"{url}/console/")
        for asset in re.findall(r'(?:src|href)="(/console/[^"]+)"', page):
            read(url + asset)
        if "/console/assets/" not in page or json.loads(read(f"{url}/openapi.json"))["openapi"] != "3.1.0":
            raise Refused("the console or /openapi.json is not in the wheel")
    step(f"{shown}: the README's first example works in an empty environment, the console answers")


def first_example(readme: str) -> tuple[str, str, str]:
    """The code of the README's own agent, the command that serves it, and the one that calls it."""
    section = readme[readme.index("## An agent in ten lines") :]
    code, serve, call, *_ = re.findall(r"^```(?:python|sh)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return code, serve.replace("--port 7871", "--port 0").strip(), call.strip()


@contextmanager
def served(command: list[str], folder: Path) -> Iterator[str]:
    """Run a server; its URL, once it is ready. Raises Refused if it does not start, or does not stop as it should."""
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield wait_for_url(process, log)
        process.send_signal(signal.SIGTERM)
        if process.wait(STOP_S) != 0:
            raise Refused(f"the server ended with {process.returncode}:\n{log.read_text()}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for_url(process: subprocess.Popen[bytes], log: Path) -> str:
    """The URL that the server prints."""
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        time.sleep(0.05)
    raise Refused(f"the server does not start:\n{log.read_text()}")


def read(url: str) -> str:
    """The body at an address. Raises Refused."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            body: bytes = answer.read()
    except OSError as error:
        raise Refused(f"{url}: {error}") from error
    return body.decode()


if __name__ == "__main__":
    sys.exit(main())
