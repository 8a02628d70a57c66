"""Several replicas on one port: they are supervised, and none outlives its supervisor."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dragoman.bindings.listener import bound_socket
from tests.processes import ENDS_WITH_US

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("supervised.py")
DEADLINE_S = 60.0
ANSWER_S = 1
ALL = {1, 2, 3}


class Told(NamedTuple):
    """The answers of a replica on a connection."""

    number: int
    pid: int
    reloads: int


class Supervisor:
    """The process, and how to reach its replicas."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log
        self.port = 0

    def announces(self, within_s: float) -> bool:
        """Whether the supervisor has said that it listens, or says so soon."""
        ready, _, _ = select.select([self.process.stdout], [], [], within_s)
        return bool(ready)

    def listening(self) -> None:
        """Wait until the supervisor says that it listens."""
        assert self.process.stdout is not None
        found = re.match(rb"listens on (\d+)", self.process.stdout.readline())
        assert found, self.log.read_text()
        self.port = int(found[1])

    def ask(self) -> Told | None:
        """Connect once; None while nobody listens, or if the replica ended meanwhile.

        A replica that ends may leave a connection that it never accepted without a word.
        """
        try:
            with socket.create_connection(("127.0.0.1", self.port), ANSWER_S) as connection:
                said = connection.recv(100)
        except OSError:
            return None
        return Told(*map(int, said.split())) if said else None

    def wait_for(self, numbers: set[int], fits: Callable[[Told], bool] = lambda told: True) -> dict[int, Told]:
        """Connect again and again, until each of these replicas has told what fits."""
        seen: dict[int, Told] = {}
        deadline = time.monotonic() + DEADLINE_S
        while set(seen) != numbers:
            assert time.monotonic() < deadline, (seen, self.log.read_text())
            told = self.ask()
            if told is not None and told.number in numbers and fits(told):
                seen[told.number] = told
        return seen

    def ended(self) -> int:
        """The exit code, once there is one."""
        return self.process.wait(DEADLINE_S)


Supervise = Callable[..., Supervisor]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Supervise]:
    """Start a supervisor of three replicas."""
    started: list[Supervisor] = []

    def start(port: int = 0, crashing: int = 0, **variables: str) -> Supervisor:
        log = tmp_path / f"{len(started)}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [*ENDS_WITH_US, sys.executable, str(PROGRAM), "supervise", str(port), str(crashing)],
                stdout=subprocess.PIPE,
                stderr=written,
                env=os.environ | variables,
            )
        started.append(Supervisor(process, log))
        return started[-1]

    yield start
    for supervisor in started:
        supervisor.process.kill()
        supervisor.process.communicate()


def opened(told: dict[int, Told]) -> list[int]:
    """Handles of the processes, which tell their end."""
    return [os.pidfd_open(each.pid) for each in told.values()]


def all_end(handles: list[int]) -> None:
    """Wait for the end of the processes."""
    for handle in handles:
        ended, _, _ = select.select([handle], [], [], DEADLINE_S)
        os.close(handle)
        assert ended


def test_all_listen_on_one_port_and_end_on_sigterm(supervise: Supervise) -> None:
    supervisor = supervise()
    supervisor.listening()
    handles = opened(supervisor.wait_for(ALL))
    supervisor.process.send_signal(signal.SIGTERM)
    assert supervisor.ended() == 0
    all_end(handles)


def test_it_says_that_it_listens_once_all_do(supervise: Supervise, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    supervisor = supervise(crashing=-2, GATE=str(gate))
    deadline = time.monotonic() + DEADLINE_S
    while not {"replica 1 listens", "replica 3 listens"} <= set(re.findall(r"replica \d listens", said(supervisor))):
        assert time.monotonic() < deadline, said(supervisor)
    assert not supervisor.announces(0.5)
    gate.touch()
    supervisor.listening()
    assert "replica 2 listens" in said(supervisor)


def test_one_that_never_listens_does_not_keep_it_from_saying_so(supervise: Supervise) -> None:
    supervisor = supervise(crashing=-3)
    supervisor.listening()
    assert "replicas that do not listen yet: 3" in said(supervisor)
    supervisor.wait_for({1, 2})


def said(supervisor: Supervisor) -> str:
    return supervisor.log.read_text()


def test_one_that_dies_is_started_again_and_the_others_go_on(supervise: Supervise) -> None:
    supervisor = supervise()
    supervisor.listening()
    before = supervisor.wait_for(ALL)
    os.kill(before[2].pid, signal.SIGKILL)
    after = supervisor.wait_for(ALL, lambda told: told.number != 2 or told.pid != before[2].pid)
    assert (after[1].pid, after[3].pid) == (before[1].pid, before[3].pid)
    assert "replica 2 ended with SIGKILL; it is started again in 0.5 s" in supervisor.log.read_text()


def test_one_that_keeps_dying_is_started_again_after_growing_pauses(supervise: Supervise) -> None:
    supervisor = supervise(crashing=3)
    supervisor.listening()
    deadline = time.monotonic() + DEADLINE_S
    pauses: list[str] = []
    while len(pauses) < 3:
        assert time.monotonic() < deadline
        supervisor.wait_for({1, 2})
        time.sleep(0.05)  # a file cannot be waited for; the loop ends with the condition itself
        pauses = re.findall(r"replica 3 ended with code 8; it is started again in (\S+) s", supervisor.log.read_text())
    assert pauses == ["0.5", "1", "2"]


def test_sighup_reaches_all(supervise: Supervise) -> None:
    supervisor = supervise()
    supervisor.listening()
    supervisor.wait_for(ALL)
    supervisor.process.send_signal(signal.SIGHUP)
    supervisor.wait_for(ALL, lambda told: told.reloads == 1)
    log = supervisor.log.read_text()
    assert "processes has changed: restart the server to apply it" in log
    assert "keepalive_s" not in log, "the replicas tell that"


def test_none_outlives_a_supervisor_that_is_killed(supervise: Supervise) -> None:
    supervisor = supervise()
    supervisor.listening()
    handles = opened(supervisor.wait_for(ALL))
    supervisor.process.kill()
    supervisor.ended()
    all_end(handles)


def test_a_replica_that_is_stuck_is_killed_after_the_grace_period(supervise: Supervise) -> None:
    supervisor = supervise()
    supervisor.listening()
    told = supervisor.wait_for(ALL)
    handles = opened(told)
    os.kill(told[2].pid, signal.SIGSTOP)
    supervisor.process.send_signal(signal.SIGTERM)
    assert supervisor.ended() == 0
    all_end(handles)


def test_a_second_signal_kills_all_at_once(supervise: Supervise) -> None:
    supervisor = supervise()
    supervisor.listening()
    told = supervisor.wait_for(ALL)
    stuck, running = opened({2: told[2]}), opened({1: told[1]})
    os.kill(told[2].pid, signal.SIGSTOP)
    supervisor.process.send_signal(signal.SIGINT)
    all_end(running)
    supervisor.process.send_signal(signal.SIGINT)
    assert supervisor.ended() == 0
    all_end(stuck)


def test_a_first_replica_that_cannot_start_ends_the_supervisor_with_its_code(supervise: Supervise) -> None:
    supervisor = supervise(crashing=1)
    assert supervisor.ended() == 7
    assert "started again" not in supervisor.log.read_text()


def test_a_port_on_which_others_listen_is_named(supervise: Supervise) -> None:
    with bound_socket("127.0.0.1", 0, shared=True) as bound:
        bound.listen()
        port = bound.getsockname()[1]
        supervisor = supervise(port=port)
        assert supervisor.ended() == 1
        assert f"cannot listen on 127.0.0.1 port {port}" in supervisor.log.read_text()
