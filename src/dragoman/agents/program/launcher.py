"""The server's side of the process that starts an agent's programs (`spawner`).

Invariant: every program that was started ends: when it is stopped, when the launcher closes, or, if this process is
killed, by its spawner. The owner of a Child owns its file descriptors until `end`.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dragoman.agents.program import spawner as program_spawner
from dragoman.config import Program

log = logging.getLogger("dragoman.programs")

READY_S = 10.0
"""How long a spawner may take to become ready. It takes about 30 ms."""

KILL_S = 1.0
"""How long the news of a SIGKILL may take to arrive."""

CLOSE_S = 5.0
"""How long a spawner may take to kill its programs; it gives up after 2 s itself."""


class Child:
    """A running program. `stdin`, `stdout` and `stderr` are our ends of its pipes, which do not block.

    `ended` is its exit code, negative for a signal.
    """

    def __init__(
        self, launcher: "Launcher", number: int, pipes: Sequence[int], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.number = number
        self.stdin, self.stdout, self.stderr = pipes
        self.started: asyncio.Future[int] = loop.create_future()
        self.ended: asyncio.Future[int] = loop.create_future()
        self._launcher = launcher
        self._loop = loop
        self._stopping: asyncio.TimerHandle | None = None
        self._dropped = False

    def signal(self, number: int) -> None:
        """Send a signal to the program's whole process group."""
        self._launcher.tell(signal=self.number, number=number)

    def stop(self, grace_s: float) -> None:
        """End the program: SIGTERM, and SIGKILL after `grace_s`. The rest of its process group is killed."""
        if self.ended.done() or not self.started.done():
            self._drop()
        elif self._stopping is None:
            self.signal(signal.SIGTERM)
            self._stopping = self._loop.call_later(grace_s, self._drop)
            self.ended.add_done_callback(lambda _: self._drop())

    def _drop(self) -> None:
        if self._stopping is not None:
            self._stopping.cancel()
        if not self._dropped:
            self._dropped = True
            self._launcher.tell(end=self.number)


class Launcher:
    """Starts `program`, found at `path`, in the environment `env` plus the variables given to `start`."""

    def __init__(self, program: Program, path: str, env: Mapping[str, str]) -> None:
        self._settings = {
            "argv": program.command,
            "path": path,
            "cwd": os.path.abspath(program.cwd or "."),
            "env": dict(env),
            "limits": _limits(program),
        }
        self._link: socket.socket | None = None
        self._opening: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._children: dict[int, Child] = {}
        self._number = 0
        self._kept = b""
        self._unsent: deque[tuple[bytes, Sequence[int]]] = deque()

    async def open(self) -> None:
        """Start the spawner, unless it runs already. Raises OSError."""
        while self._link is None:
            if self._opening is not None:
                await asyncio.wait((self._opening,))
                continue
            self._loop = asyncio.get_running_loop()
            self._opening = self._loop.create_future()
            try:
                await self._connect(self._loop)
            finally:
                self._opening.set_result(None)
                self._opening = None

    async def close(self, grace_s: float) -> None:
        """Stop the running programs, which get `grace_s` to end, and wait until the spawner is gone."""
        left = tuple(self._children.values())
        for child in left:
            child.stop(grace_s)
        try:
            if left:
                await asyncio.wait([child.ended for child in left], timeout=grace_s + KILL_S)
        finally:
            self._lose()  # the spawner kills the programs that remain
        while self._processes:
            process = self._processes[-1]
            try:
                await asyncio.to_thread(process.wait, CLOSE_S)
            except subprocess.TimeoutExpired:
                log.warning("the spawner of programs, process %d, does not end: it is killed", process.pid)
                process.kill()
                await asyncio.to_thread(process.wait)
            self._processes.remove(process)

    async def start(self, variables: Mapping[str, str]) -> Child:
        """Start the program. Raises OSError if it cannot be started."""
        await self.open()
        loop = asyncio.get_running_loop()
        self._number += 1
        theirs: list[int] = []
        ours: list[int] = []
        try:
            for reads in (True, False, False):
                ends = os.pipe()
                theirs.append(ends[0 if reads else 1])
                ours.append(ends[1 if reads else 0])
                os.set_blocking(ours[-1], False)
        except OSError:
            _close(theirs + ours)
            raise
        child = Child(self, self._number, ours, loop)
        self._children[child.number] = child
        child.ended.add_done_callback(lambda _: self._children.pop(child.number, None))
        self._send({"start": child.number, "env": dict(variables)}, theirs)
        try:
            await child.started
        except BaseException:
            child.stop(0)
            _close(ours)
            raise
        return child

    def tell(self, **order: object) -> None:
        """Send the spawner an order. Without a spawner, no program is left that the order could concern."""
        if self._link is not None:
            self._send(order, ())

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> None:
        self._processes = [process for process in self._processes if process.poll() is None]
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            await self._spawn(loop, theirs)
            async with asyncio.timeout(READY_S):
                await loop.sock_sendall(ours, json.dumps(self._settings).encode() + b"\n")
                answer = await loop.sock_recv(ours, 4096)
            if not answer:
                raise ConnectionError("the spawner of programs ended at once")
        except BaseException:
            ours.close()
            raise
        self._kept = b""
        self._link = ours
        loop.add_reader(ours.fileno(), self._receive)

    async def _spawn(self, loop: asyncio.AbstractEventLoop, link: socket.socket) -> None:
        """Start a spawner on a thread. However often the caller is canceled, it is known before this returns."""
        canceled: asyncio.CancelledError | None = None
        with link:
            spawning = loop.run_in_executor(None, _start_spawner, link)
            while not spawning.done():
                try:
                    await asyncio.wait((spawning,))
                except asyncio.CancelledError as error:
                    canceled = error
        if spawning.exception() is None:
            self._processes.append(spawning.result())
        if canceled is not None:
            raise canceled
        spawning.result()

    def _send(self, order: Mapping[str, object], fds: Sequence[int]) -> None:
        self._unsent.append((msgspec.json.encode(order) + b"\n", fds))
        if len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        """Send as much as there is room for. File descriptors are closed here once they are sent."""
        link, loop = self._link, self._loop
        assert link is not None
        assert loop is not None
        while self._unsent:
            line, fds = self._unsent[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds))]
            try:
                sent = link.sendmsg([line], rights if fds else [])
            except BlockingIOError:
                loop.add_writer(link.fileno(), self._flush)
                return
            except OSError:
                self._lose()
                return
            _close(fds)
            if sent < len(line):
                self._unsent[0] = line[sent:], ()
            else:
                self._unsent.popleft()
        loop.remove_writer(link.fileno())

    def _receive(self) -> None:
        assert self._link is not None
        try:
            data = self._link.recv(65536)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            log.error("the spawner of programs is gone: its programs were killed")
            self._lose()
            return
        *lines, self._kept = (self._kept + data).split(b"\n")
        for line in lines:
            self._handle(msgspec.json.decode(line))

    def _handle(self, word: dict[str, Any]) -> None:
        number = word.get("started") or word.get("failed") or word.get("ended")
        child = self._children.get(number) if isinstance(number, int) else None
        if child is None:
            return
        if "ended" in word:
            _settle(child.ended, word["code"])
        elif "started" in word:
            _settle(child.started, word["pid"])
        elif not child.started.done():
            what = self._settings["cwd" if word["at"] == "cwd" else "path"]
            errno = word["errno"] or 0
            child.started.set_exception(OSError(errno, f"{os.strerror(errno)} ({word['at']})", what))

    def _lose(self) -> None:
        """Note that the spawner is gone, and with it all its programs."""
        link, loop, self._link = self._link, self._loop, None
        if link is None or loop is None:
            return
        loop.remove_reader(link.fileno())
        loop.remove_writer(link.fileno())
        link.close()
        for _, fds in self._unsent:
            _close(fds)
        self._unsent.clear()
        for child in tuple(self._children.values()):
            if not child.started.done():
                child.started.set_exception(ConnectionError("the spawner of programs is gone"))
            _settle(child.ended, -signal.SIGKILL)
        self._children.clear()


def _start_spawner(link: socket.socket) -> "subprocess.Popen[bytes]":
    """Start the spawner. It has a session of its own, so that Ctrl-C at a terminal reaches only the server."""
    script = str(Path(program_spawner.__file__))
    return subprocess.Popen(
        [sys.executable, "-I", "-S", script],
        stdin=link.fileno(),
        stdout=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def _limits(program: Program) -> list[tuple[str, int, int]]:
    limits = [("RLIMIT_CORE", 0, 0)]
    if program.max_memory_bytes is not None:
        limits.append(("RLIMIT_AS", program.max_memory_bytes, program.max_memory_bytes))
    if program.max_cpu_s is not None:  # SIGXCPU, then SIGKILL for a program that ignores it
        limits.append(("RLIMIT_CPU", program.max_cpu_s, program.max_cpu_s + 1))
    return limits


def _settle(future: "asyncio.Future[int]", value: int) -> None:
    if not future.done():
        future.set_result(value)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
