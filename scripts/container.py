"""Build the container and try it as its page says, with Buildah as root: `python scripts/container.py --work FOLDER`.

Invariant: nothing is installed on the machine, and nothing is left running. The image stays in the folder.

Where no registry can be reached, the base is made by debootstrap: Debian with its Python. The container then runs as a
process with the image as its root, read-only, as process 1, as the image's user, without any capability.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from scripts.packages import commit_of

ROOT = Path(__file__).parents[1]
IMAGE = "localhost/dragoman"
DEBIAN = "localhost/debian-python"
SUITE = "bookworm"
REGISTRY_S = 60
"""How long the registry has to give the base."""

ABOVE_BASE_MB = 120
STOP_S = 8.0
START_S = 60.0
KEY = "a-key-for-the-trial-of-the-container"

RUN = """
set -e
mount --bind "$R" "$R"
mount -o remount,bind,ro "$R"
mount -t proc proc "$R/proc"
mount --bind /dev "$R/dev"
mount -t tmpfs -o mode=1777 tmpfs "$R/tmp"
mount --bind "$DATA" "$R/data"
mount --bind "$APP" "$R/app"
mount -o remount,bind,ro "$R/app"
exec chroot "$R" setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups --no-new-privs --bounding-set=-all \\
    --inh-caps=-all env -i -C /app "$@"
"""
"""The container as a process: what `--read-only --cap-drop ALL --security-opt no-new-privileges` asks of an engine."""


class Buildah:
    """Buildah with its images in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.command = ["buildah", "--storage-driver", "vfs", "--root", f"{folder}/store", "--runroot", f"{folder}/run"]

    def __call__(self, command: str, *arguments: str, check: bool = True, show: bool = False) -> str:
        """Run a command and return what it prints. Exits with its message if it fails."""
        done = subprocess.run(
            [*self.command, command, *arguments],
            stdout=None if show else subprocess.PIPE,
            stderr=None if show else subprocess.PIPE,
            text=True,
        )
        if check and done.returncode:
            sys.exit(f"container: buildah {command} failed\n{done.stderr or ''}")
        return done.stdout or "" if not done.returncode else ""

    def bytes_of(self, image: str) -> int:
        """The size of an image's files."""
        container = self("from", image).strip()
        root = self("mount", container).strip()
        shown = subprocess.run(["du", "-sxb", root], check=True, capture_output=True, text=True).stdout
        self("rm", container)
        return int(shown.split()[0])


def main() -> None:
    """Build, measure, run, and try the README's example, a restart and the stop."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder of images and of the trial")
    parser.add_argument("--base", help="image that the container is built on, in place of the Containerfile's")
    given = parser.parse_args()
    missing = [name for name in ("buildah", "unshare", "setpriv", "chroot") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        sys.exit(f"container: needs root, and {', '.join(missing) or 'buildah'}: apt-get install buildah util-linux")
    work: Path = given.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    buildah = Buildah(work)
    base = given.base or find_base(buildah, work)
    authorities = "/etc/ssl/certs/ca-certificates.crt"
    buildah(
        *("build", "--isolation", "chroot", "--format", "docker", "-t", IMAGE),
        *("--build-arg", f"BASE={base}", "--build-arg", f"COMMIT={commit_of(ROOT)[0]}"),
        *("--volume", f"{authorities}:{authorities}:ro", "--pull-never", "-f", "Containerfile", str(ROOT)),
        show=True,
    )
    above_mb = (buildah.bytes_of(IMAGE) - buildah.bytes_of(base)) / 1_000_000
    print(f"built {IMAGE} on {base}: {above_mb:.1f} MB above it")
    container = buildah("from", IMAGE).strip()
    try:
        try_out(json.loads(buildah("inspect", "--type", "image", IMAGE)), buildah("mount", container).strip(), work)
    finally:
        buildah("rm", container)
    if above_mb > ABOVE_BASE_MB:
        sys.exit(f"container: {above_mb:.1f} MB above its base are more than {ABOVE_BASE_MB}")


def find_base(buildah: Buildah, work: Path) -> str:
    """The Containerfile's base, or a Debian made here if no registry gives it."""
    (named,) = re.findall(r"^ARG BASE=(\S+)$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    try:
        pulled = subprocess.run([*buildah.command, "pull", named], timeout=REGISTRY_S, capture_output=True).returncode
    except subprocess.TimeoutExpired:
        pulled = 1
    if not pulled:
        return str(named)
    print(f"no registry gives {named}: the base is made by debootstrap")
    if not buildah("images", "--quiet", DEBIAN, check=False):
        if shutil.which("debootstrap") is None:
            sys.exit("container: needs debootstrap: apt-get install debootstrap")
        folder = work / "debian"
        shutil.rmtree(folder, ignore_errors=True)
        packages = "--include=python3,python3-venv,ca-certificates"
        subprocess.run(["debootstrap", "--variant=minbase", packages, SUITE, str(folder)], check=True)
        container = buildah("from", "scratch").strip()
        buildah("add", container, str(folder), "/")
        buildah("commit", "--rm", container, DEBIAN)
        shutil.rmtree(folder)
    return DEBIAN


def try_out(inspected: dict[str, Any], root: str, work: Path) -> None:
    """Serve the README's agent, send to it, ask for its health, stop it, and find the task again."""
    config = inspected["Docker"]["config"]
    user = config["User"].partition(":")[0]
    assert int(user) > 0, "the image runs as root"
    app, data = work / "app", work / "data"
    for folder in (app, data):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    os.chown(data, int(user), int(user))
    (app / "speller.py").write_text(readme_agent())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    # Environment of the image, and the settings that the page names.
    variables = [*config["Env"], f"DRAGOMAN_PORT={port}", f"DRAGOMAN_API_KEY={KEY}"]
    command = [*variables, *config["Entrypoint"], "serve", "speller.py"]
    environment = {**os.environ, "R": root, "DATA": str(data), "APP": str(app), "USER_ID": user}
    task, took_s = "", 0.0
    for _ in range(2):
        log = (work / "log").open("w")
        server = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", RUN, "sh", *command],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_for_health(server, port, work / "log")
            check_health([*variables, *config["Healthcheck"]["Test"][1:]], environment)
            if task:
                found = ask(port, f"/tasks/{task}")
            else:
                message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hey"}]}
                found = ask(port, "/message:send", {"message": message})["task"]
                task = found["id"]
            assert "".join(part["text"] for part in found["artifacts"][0]["parts"]).split() == ["H", "E", "Y"], found
            took_s = stop(server)
        finally:
            server.kill()
            log.close()
    print(f"the README's agent answered, its task was there after a restart, and SIGTERM took {took_s:.1f} s: exit 0")


def readme_agent() -> str:
    """The agent in ten lines."""
    (code,) = re.findall(
        r"^Save this as `speller.py`:\n\n```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S
    )
    return str(code)


def ask(port: int, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Call the server."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        None if body is None else json.dumps(body).encode(),
        {"A2A-Version": "1.0", "Content-Type": "application/json", "x-api-key": KEY},
    )
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        answered: dict[str, Any] = json.load(answer)
    return answered


def wait_for_health(server: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Wait until the server answers. Exits with its log if it does not."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"container: the server did not start\n{log.read_text()}")
            time.sleep(0.1)


def check_health(command: list[str], environment: dict[str, str]) -> None:
    """Run the image's health check in the same way."""
    subprocess.run(
        ["unshare", "--mount", "sh", "-c", RUN, "sh", *command], env=environment, check=True, timeout=START_S
    )


def stop(server: "subprocess.Popen[bytes]") -> float:
    """End process 1 of the container with SIGTERM. Returns the seconds that it took."""
    (inside,) = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    began = time.monotonic()
    os.kill(int(inside), signal.SIGTERM)
    code = server.wait(2 * STOP_S)
    took_s = time.monotonic() - began
    if code or took_s > STOP_S:
        sys.exit(f"container: SIGTERM took {took_s:.1f} s and ended with exit status {code}")
    return took_s


if __name__ == "__main__":
    main()
