"""`make cluster`: what it prints to try works, and Ctrl-C ends all that it started."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import ENDS_WITH_US

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
DEADLINE_S = 120.0


@pytest.fixture
def cluster() -> Iterator["subprocess.Popen[str]"]:
    """The script as `make cluster` runs it, in a group of its own, as in a terminal."""
    process = subprocess.Popen(
        [*ENDS_WITH_US, sys.executable, "scripts/cluster.py", "--port", "0"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": "."},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.communicate()


def printed(process: "subprocess.Popen[str]") -> str:
    """Its output up to the end of its guide."""
    assert process.stdout is not None
    text, deadline = "", time.monotonic() + DEADLINE_S
    while "Ctrl-C" not in text:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(process.stdout.fileno(), 65_536) if ready else b""
        assert piece, f"the cluster said only {text!r}"
        text += piece.decode()
    return text


def children(pid: int) -> list[int]:
    """Handles of all processes that a process has started."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True)
    return [os.pidfd_open(int(line)) for line in found.stdout.split() if Path(f"/proc/{line}").exists()]


def test_what_it_prints_works_and_ctrl_c_ends_all(cluster: "subprocess.Popen[str]") -> None:
    guide = printed(cluster)
    (send,) = re.findall(r"^  (TASK=.*)$", guide, re.MULTILINE)
    (follow,) = re.findall(r"^  (curl -sN .*) &$", guide, re.MULTILINE)
    (kill,) = re.findall(r"^  (kill -9 \d+)$", guide, re.MULTILINE)
    (ready,) = re.findall(r"(curl -s \S+/ready)$", guide, re.MULTILINE)
    send = send.replace('"text": "30"', '"text": "4 every 0.5"')
    # The second reader follows after the kill, from the first event on: it is there whatever the first one has seen.
    script = f"{send}\n{follow} &\n{kill}\nwait\n{follow} -H 'Last-Event-ID: 0'\n{ready}"
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout
    streams, _, cluster_now = told.rpartition("\n\n")
    assert streams.count('"TASK_STATE_COMPLETED"') == 2
    assert [f'"text":"{number}\\n"' in streams for number in (4, 3, 2, 1)] == [True] * 4
    assert cluster_now.count('"address"') == 2
    handles = children(cluster.pid)
    assert len(handles) >= 4  # two replicas, PostgreSQL, NATS
    os.killpg(cluster.pid, signal.SIGINT)
    assert cluster.wait(DEADLINE_S) == 0
    for handle in handles:
        ended, _, _ = select.select([handle], [], [], DEADLINE_S)
        os.close(handle)
        assert ended
