"""The process that starts an agent's programs, and ends them when its server is gone. It is run as a script.

Invariant: it has one thread, so that it may fork. No program outlives it, and it does not outlive its server. A program
is reaped only after its process group was killed, so that its pid cannot belong to another process by then.

Its standard input is a socket to the server, with lines of JSON. The first line holds the settings. Then come orders:
`{"start": 7, "env": {…}}` with three file descriptors, `{"signal": 7, "number": 15}`, and `{"end": 7}`, which kills
what is left of a program. It answers `{"ready": true}`, `{"started": 7, "pid": 123}` or `{"failed": 7, "errno": 2,
"at": "…"}`, and `{"ended": 7, "code": 0}`, negative for a signal.
"""

import array
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

LINUX = sys.platform.startswith("linux")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""prctl(2)"""

FDS_MAX = 3 * 64
"""The most descriptors received in one message: the kernel's bound is 253 (SCM_MAX_FD)."""

SWEEP_S = 2.0
"""How long the final sweep looks for processes that escaped their group; SIGKILL takes milliseconds."""


class StartedProgram:
    """A started program. It is `over` once it has exited, and `dropped` once nothing of it may remain."""

    def __init__(self, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.over = False
        self.dropped = False


class Spawner:
    """Starts programs according to `settings`, and reports them through `link`."""

    def __init__(self, link: socket.socket, settings: dict[str, Any]) -> None:
        self._link = link
        self._settings = settings
        self._parent = os.getpid()
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl if LINUX else None
        self._wakes, self._wakened = socket.socketpair()  # kept here: a signal may still write to it in `end`
        self._programs: dict[int, StartedProgram] = {}
        self._starting: dict[int, StartedProgram] = {}
        self._poll = select.poll()
        if self._prctl is not None:
            self._prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def serve(self) -> None:
        """Serve orders until the server is gone."""
        for end in (self._wakes, self._wakened):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakened.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # it ends when its server does, not before
            signal.signal(number, signal.SIG_IGN)
        self._poll.register(self._link.fileno(), select.POLLIN)
        self._poll.register(self._wakes.fileno(), select.POLLIN)
        self._tell(ready=True)
        kept, fds = b"", array.array("i")
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._wakes.fileno():
                    self._wakes.recv(4096)
                    self._check_exits()
                elif fd in self._starting:
                    self._report_start(fd)
                else:
                    data, more = receive(self._link)
                    if not data:
                        return
                    fds.extend(more)
                    *lines, kept = (kept + data).split(b"\n")
                    for line in lines:
                        self._obey(json.loads(line), fds)

    def end(self) -> None:
        """Kill all programs, and whatever they have started, wherever it went."""
        signal.set_wakeup_fd(-1)
        for program in self._programs.values():
            kill(program.pid)
        until = time.monotonic() + SWEEP_S
        while time.monotonic() < until:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            for pid in children():  # processes that left their group are ours now (PR_SET_CHILD_SUBREAPER)
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.002)

    def _obey(self, order: dict[str, Any], fds: "array.array[int]") -> None:
        if "start" in order:
            given = [fds.pop(0) for _ in range(3)]
            try:
                self._start(order["start"], order["env"], given)
            except OSError as error:  # no more processes, or descriptors
                self._tell(failed=order["start"], errno=error.errno, at="fork")
            finally:
                for fd in given:
                    os.close(fd)
        elif "signal" in order:
            program = self._programs.get(order["signal"])
            if program is not None:
                kill(program.pid, order["number"])
        elif (program := self._programs.get(order["end"])) is not None:
            kill(program.pid)
            program.dropped = True
            self._reap(program)

    def _start(self, number: int, env: dict[str, str], fds: list[int]) -> None:
        reads, writes = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(reads)
            os.close(writes)
            raise
        if pid == 0:
            self._become(env, fds, writes)
        os.close(writes)
        self._programs[number] = self._starting[reads] = StartedProgram(number, pid)
        self._poll.register(reads, select.POLLIN)

    def _become(self, env: dict[str, str], fds: list[int], writes: int) -> None:
        """Become the program, in the child. An error is written to `writes`; success closes it."""
        at = "prepare"
        try:
            os.setsid()
            if self._prctl is not None:
                self._prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != self._parent:
                    os._exit(127)
            signal.set_wakeup_fd(-1)
            for number in (
                signal.SIGCHLD,
                signal.SIGTERM,
                signal.SIGINT,
                signal.SIGHUP,
                signal.SIGPIPE,
                signal.SIGXFSZ,
            ):
                signal.signal(number, signal.SIG_DFL)
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
            for fd in fds:  # all others are close-on-exec
                os.close(fd)
            at = "cwd"
            os.chdir(self._settings["cwd"])
            at = "program"
            argv, environ = self._settings["argv"], {**self._settings["env"], **env}
            for name, soft, hard in self._settings["limits"]:
                limit(getattr(resource, name), soft, hard)
            os.execve(self._settings["path"], argv, environ)
        except BaseException as error:  # noqa: BLE001  the child must not continue as a second spawner
            os.write(writes, json.dumps({"errno": getattr(error, "errno", None), "at": at}).encode())
        finally:
            os._exit(127)

    def _report_start(self, reads: int) -> None:
        """Report that a program has started, or could not start."""
        fault = os.read(reads, 4096)
        self._poll.unregister(reads)
        os.close(reads)
        program = self._starting.pop(reads)
        if fault:
            self._tell(failed=program.number, **json.loads(fault))
            program.dropped = True
            self._reap(program)
        else:
            self._tell(started=program.number, pid=program.pid)
            self._check_exits()

    def _check_exits(self) -> None:
        """Check which processes have exited. Our programs are reported and stay unreaped; all others are reaped."""
        begun = {program.pid for program in self._starting.values()}
        for program in tuple(self._programs.values()):
            if not program.over and program.pid not in begun:
                self._reap(program)
        ours = {program.pid for program in self._programs.values()}
        for pid in children():
            if pid not in ours:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass

    def _reap(self, program: StartedProgram) -> None:
        if program.number not in self._programs:
            return
        if not program.over:
            ended = os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            program.over = True
            code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            self._tell(ended=program.number, code=code)
        if program.dropped:
            os.waitpid(program.pid, 0)
            del self._programs[program.number]

    def _tell(self, **what: object) -> None:
        try:
            self._link.sendall(json.dumps(what).encode() + b"\n")
        except OSError:
            pass  # the server is gone: the next read says so


def receive(link: socket.socket) -> tuple[bytes, "array.array[int]"]:
    """Receive data and the file descriptors that came with it. Empty: the server is gone."""
    fds = array.array("i")
    flags = socket.MSG_CMSG_CLOEXEC if LINUX else 0
    try:
        data, ancillary, _, _ = link.recvmsg(65536, socket.CMSG_LEN(FDS_MAX * fds.itemsize), flags)
    except ConnectionError:
        return b"", fds
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, fds


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal the process group that `pid` leads; the process alone if it has no group yet."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        return


def children() -> list[int]:
    """The child processes of this one; empty where the system does not tell (proc(5))."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as listed:
            return [int(pid) for pid in listed.read().split()]
    except OSError:
        return []


def limit(which: int, soft: int, hard: int) -> None:
    """Set a limit of this process, as far as its own hard limit allows."""
    _, most = resource.getrlimit(which)
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(which, (soft, hard))


def main() -> None:
    """Read the settings, serve, and leave no process behind."""
    link = socket.socket(fileno=os.dup(0))
    link.set_inheritable(False)
    first = b""
    while not first.endswith(b"\n"):
        piece = link.recv(65536)
        if not piece:
            return
        first += piece
    spawner = Spawner(link, json.loads(first))
    try:
        spawner.serve()
    finally:
        spawner.end()


if __name__ == "__main__":
    main()
