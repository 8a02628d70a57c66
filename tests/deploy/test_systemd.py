"""deploy/systemd: what systemd says of the unit, and what the unit says of the server."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from dragoman.config import Config
from dragoman.server.running import whole_s
from tests.deploy.shipped import DEPLOY, ROOT, assert_command, read
from tests.processes import ENDS_WITH_US

FOLDER = DEPLOY / "systemd"
SERVICE = (FOLDER / "dragoman.service").read_text(encoding="utf-8")
SOCKET = (FOLDER / "dragoman.socket").read_text(encoding="utf-8")
SYSUSERS = (FOLDER / "dragoman.sysusers").read_text(encoding="utf-8")
PROGRAM = "/opt/dragoman/bin/dragoman"

EXPOSURE_MAX = 30
"""Tenths: 3.0 of 10."""

DEADLINE_S = 60.0

ELSEWHERE = f"/etc/dragoman.probe /usr/dragoman.probe /var/lib/dragoman.probe {ROOT}/dragoman.probe /mnt/dragoman.probe"
"""Files that the service must not be able to make."""

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")


AGENT = """
import os
from pathlib import Path

from dragoman import Agent, Context

agent = Agent("probe")


def writes(path: str) -> bool:
    try:
        Path(path).write_text("x")
    except OSError:
        return False
    return True


@agent.skill
async def look(ctx: Context) -> dict[str, object]:
    said = dict(line.split(":\\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "writes": [path for path in ctx.text.split() if writes(path)],
        "new_privileges": said["NoNewPrivs"] == "0",
        "capabilities": int(said["CapEff"], 16) | int(said["CapPrm"], 16) | int(said["CapBnd"], 16),
        "umask": said["Umask"].strip(),
    }
"""

RESTRICTED = """
set -eu
mount --make-rprivate /
mount --bind "$1" /mnt
awk '{print $5}' /proc/self/mountinfo | while read -r place; do
    mount -o remount,bind,ro "$(printf %b "$place")" 2>/dev/null || true
done
mount -t tmpfs -o mode=0700 none /mnt/state
mount -t tmpfs none /tmp
umask 0077
cd /mnt
shift
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all --ambient-caps=-all -- "$@"
"""
"""The unit's restrictions that these programs can impose: everything read-only but the state and a private /tmp, no
capabilities and no way to new ones, and its umask. The folder of the agents is /mnt."""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or None in map(shutil.which, ("unshare", "setpriv", "mount")),
    reason="only root, with util-linux, can make the mounts of a process read-only",
)


def of(key: str, text: str = SERVICE) -> list[str]:
    """The values of a key."""
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


@needs_systemd
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    """With a program that exists here, and the user of this process."""
    service = SERVICE.replace(PROGRAM, "/bin/true")
    (tmp_path / "dragoman.service").write_text(service, encoding="utf-8")
    (tmp_path / "dragoman.socket").write_text(SOCKET, encoding="utf-8")
    files = [str(tmp_path / name) for name in ("dragoman.service", "dragoman.socket")]
    verified = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, timeout=60)
    about_ours = [line for line in verified.stderr.splitlines() if "dragoman" in line]
    assert (verified.returncode, about_ours) == (0, [])
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", files[0]],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_the_unit_starts_the_server_and_gives_it_its_time() -> None:
    (start,) = of("ExecStart")
    program, *words = start.split()
    assert program == PROGRAM
    assert_command(words)
    config = read(dict(each.split("=", 1) for each in of("Environment")))
    (state,) = of("StateDirectory")
    assert config.store == f"sqlite:////var/lib/{state}/dragoman.db"
    assert int(of("TimeoutStopSec")[0]) > whole_s(Config().shutdown_grace_s)
    assert of("ListenStream", SOCKET) == [f"{Config().host}:{Config().port}"]
    (user,) = of("User")
    assert re.search(rf'^u {user} - "\w+" /var/lib/{state}$', SYSUSERS, re.MULTILINE)


@needs_root
@pytest.mark.slow
def test_the_server_runs_under_the_restrictions_of_the_unit(tmp_path: Path) -> None:
    for key in (
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "AmbientCapabilities=",
        "ProtectSystem=strict",
        "PrivateTmp=yes",
        "UMask=0077",
    ):
        assert f"\n{key}\n" in SERVICE
    (tmp_path / "probe.py").write_text(AGENT, encoding="utf-8")
    (tmp_path / "state").mkdir()
    dragoman = [Path(sys.executable).parent / "dragoman", "serve", "probe.py:agent", "--port", "0"]
    restricted = ["unshare", "--mount", "--ipc", "--uts", "sh", "-c", RESTRICTED, "sh", tmp_path]
    command = [*ENDS_WITH_US, *restricted, *dragoman, "--store", "sqlite:////mnt/state/dragoman.db"]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as server:
        try:
            assert server.stdout is not None
            found = (re.search(r"listens on (\S+)/ ", line) for line in server.stdout)
            listening = next(filter(None, found))
            parts = [{"text": f"{ELSEWHERE} /mnt/state/probe"}]
            request = urllib.request.Request(
                f"{listening[1]}/message:send",
                json.dumps({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}}).encode(),
                {"A2A-Version": "1.0", "Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                (artifact,) = json.load(answer)["task"]["artifacts"]
            assert artifact["parts"][0]["data"] == {
                "writes": ["/mnt/state/probe"],
                "new_privileges": False,
                "capabilities": 0,
                "umask": "0077",
            }
            server.terminate()
            assert server.wait(timeout=DEADLINE_S) == 0
        finally:
            server.kill()
