"""deploy/systemd: what systemd says of the unit, and what the unit says of the server."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dragoman.config import Config
from dragoman.server.running import whole_s
from tests.deploy.shipped import DEPLOY, assert_command, read

FOLDER = DEPLOY / "systemd"
SERVICE = (FOLDER / "dragoman.service").read_text(encoding="utf-8")
SOCKET = (FOLDER / "dragoman.socket").read_text(encoding="utf-8")
SYSUSERS = (FOLDER / "dragoman.sysusers").read_text(encoding="utf-8")
PROGRAM = "/opt/dragoman/bin/dragoman"

EXPOSURE_MAX = 30
"""Tenths: 3.0 of 10."""

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")


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
