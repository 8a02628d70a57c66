"""Socket activation: the server takes the socket that it is given, as systemd passes it, and keeps its rules."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

DEADLINE_S = 60.0
AGENTS = "dragoman.testing.agents:echo"

PASS = """
import os, sys
fds, *command = sys.argv[1:]
os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid()), fds
os.execv(command[0], command)
"""
"""Sets the variables as systemd does: LISTEN_PID is the process that the server will be."""


def started(passed: socket.socket, *flags: str, fds: str = "1") -> "subprocess.Popen[bytes]":
    """A server that gets the socket as its file 3, where no other is."""

    def place() -> None:
        os.dup2(passed.fileno(), 3)

    serve = [sys.executable, "-m", "dragoman", "serve", AGENTS, "--store", "memory:", *flags]
    return subprocess.Popen(
        [sys.executable, "-c", PASS, fds, *serve],
        pass_fds=(3,),
        preexec_fn=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def bound(address: str = "127.0.0.1") -> socket.socket:
    each = socket.socket()
    each.bind((address, 0))
    return each


def test_connections_wait_while_the_server_restarts() -> None:
    with bound() as passed:
        passed.listen()
        url = f"http://127.0.0.1:{passed.getsockname()[1]}/health"
        for _ in range(2):
            with started(passed, "--port", "1") as server:  # a port that it could not have
                try:
                    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                        assert answer.status == 200
                    server.send_signal(signal.SIGTERM)
                    assert server.wait(DEADLINE_S) == 0
                finally:
                    server.kill()


@pytest.mark.parametrize(
    ("address", "listens", "flags", "fds", "said"),
    [
        ("0.0.0.0", True, (), "1", "host = '0.0.0.0' can be reached from other machines"),
        ("127.0.0.1", False, (), "1", "a socket that is none of TCP: use ListenStream"),
        ("127.0.0.1", True, (), "2", "systemd passes 2 sockets, and the server listens on one"),
        (
            "127.0.0.1",
            True,
            ("--processes", "2", "--store", "postgresql://x@127.0.0.1:1/x"),
            "1",
            "processes = 2: replicas listen themselves",
        ),
    ],
)
def test_a_socket_that_cannot_be_used_stops_the_start(
    address: str, listens: bool, flags: tuple[str, ...], fds: str, said: str
) -> None:
    with bound(address) as passed:
        if listens:
            passed.listen()
        with started(passed, *flags, fds=fds) as server:
            try:
                _, errors = server.communicate(timeout=DEADLINE_S)
            finally:
                server.kill()
    assert said in errors.decode()
    assert server.returncode == 1
