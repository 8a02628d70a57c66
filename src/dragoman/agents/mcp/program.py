"""ProgramLink: an MCP server that is a program of ours, reached over its standard input and output.

Invariant: no shell reads its command line, it sees only the environment that it is given, and when the link is closed,
nothing of its process group is left.
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress

from dragoman.agents.mcp.link import Away, HandleMessage, Link
from dragoman.agents.program.pipes import ErrorLog
from dragoman.dialects.mcp import client
from dragoman.dialects.mcp.client import OutgoingRequest, ServerResponse
from dragoman.model.errors import InvalidAgentResponse
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.mcp")

LINE_BYTES_MAX = 32 * 1024 * 1024
"""Longest message: as much as an answer over HTTP may hold."""

UNSENT_BYTES_MAX = 1024 * 1024
"""A program that leaves more input than this unread is given up."""

TELL_S = 5.0
LEAVE_S = 1.0
"""How long a program may take to end once its input has ended, and once more after SIGTERM, until SIGKILL."""

ENDED = "its server has ended: it may or may not have been done"
STUCK = "its server does not read its requests"

READ_BYTES = 8192


class ProgramReach:
    """A program of `words` that sees `environ`. `name` is the server's, for the log."""

    exchange = None  # a program is started with its secrets, and called in nobody's name

    def __init__(self, name: str, words: tuple[str, ...], environ: Mapping[str, str]) -> None:
        self.place = " ".join(words)
        self._name = name
        self._words = words
        self._environ = environ

    def link(self, group: JobGroup, hear: HandleMessage) -> Link:
        """A link to a program of its own."""
        return ProgramLink(self._name, self._words, self._environ, group, hear)

    async def close(self) -> None:
        """Do nothing: links share nothing."""


class ProgramLink:
    """A session with the program of `words`, which sees `environ`. It is read in `group`. `name` is for the log."""

    def __init__(
        self, name: str, words: Sequence[str], environ: Mapping[str, str], group: JobGroup, hear: HandleMessage
    ) -> None:
        self._name = name
        self._words = words
        self._environ = environ
        self._group = group
        self._hear = hear
        self._process: Process | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._waiting: dict[int, asyncio.Future[ServerResponse]] = {}
        self._reading: list[asyncio.Task[None]] = []
        self.over = False

    async def open(self) -> None:
        """Start the program."""
        loop = asyncio.get_running_loop()
        try:  # like asyncio.create_subprocess_exec, which keeps the transport private
            self._transport, protocol = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(limit=LINE_BYTES_MAX, loop=loop),
                *self._words,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=dict(self._environ),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in a word
            self.over = True
            why = f"{self._words[0]} cannot be started: {getattr(error, 'strerror', None) or error}"
            raise Away("its server cannot be started", why) from error
        self._process = Process(self._transport, protocol, loop)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._reading = [
            self._group.create_task(self._read(self._process.stdout), name=f"read {self._name}"),
            self._group.create_task(self._log(self._process.stderr), name=f"log {self._name}"),
        ]

    def note_version(self, version: str, *, changes: bool) -> None:
        """Do nothing: the program's messages are read from the start."""

    async def subscribe(self, request: OutgoingRequest) -> None:
        """Write the request. Its notifications come among the other messages, and it ends with the program."""
        await self.tell(request.body)

    async def give_up(self, request: OutgoingRequest, reason: str) -> None:
        """Write that nobody waits for the answer any more."""
        await self.tell(client.cancelled(request.id, reason))

    async def ask(self, request: OutgoingRequest) -> ServerResponse:
        """Write a request, and wait until its answer was read."""
        if self.over:
            raise Away(ENDED, f"{self._words[0]} has ended")
        waiting: asyncio.Future[ServerResponse] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = waiting
        try:
            await self._write(request.body)
            return await waiting
        finally:
            del self._waiting[request.id]
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # the program ended before the request was written: the write raises that

    async def tell(self, body: bytes) -> None:
        """Write a message."""
        try:
            async with asyncio.timeout(TELL_S):
                await self._write(body, waits=not self._is_reading())
        except TimeoutError as error:
            raise Away(STUCK, f"{self._words[0]} does not read") from error

    async def close(self) -> None:
        """End the program: its input ends, then SIGTERM, then SIGKILL, the last two for its whole process group."""
        self._lose("the session was closed")
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        ending = asyncio.ensure_future(process.wait())
        try:
            if not await _wait_end(ending):
                _signal(process, signal.SIGTERM)
                await _wait_end(ending)
        finally:
            _signal(process, signal.SIGKILL)  # and all that it started
            if self._transport is not None:
                self._transport.close()  # a process that left the group may hold its pipes
            await _wait_end(ending)
            ending.cancel()
        for task in self._reading:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._reading, return_exceptions=True)

    def _is_reading(self) -> bool:
        """Whether the caller is the reader of the program's output, which must not wait for its input."""
        return asyncio.current_task() in self._reading

    async def _write(self, body: bytes, *, waits: bool = True) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing() or self.over:
            raise Away(ENDED, f"{self._words[0]} has ended")
        if process.stdin.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self._lose("it does not read its input")
            raise Away(STUCK, f"{self._words[0]} does not read")
        process.stdin.write(body + b"\n")
        if waits:
            try:
                await process.stdin.drain()
            except ConnectionError as error:
                raise Away(ENDED, f"{self._words[0]} has ended") from error

    async def _read(self, output: asyncio.StreamReader) -> None:
        """Read the program's messages line by line as long as the session lasts; then drop the rest."""
        why = f"{self._words[0]} has ended"
        try:
            while not self.over and (line := await output.readline()):
                if line.strip():
                    await self._dispatch(line)
        except ValueError:
            why = f"{self._words[0]} wrote a line of more than {LINE_BYTES_MAX} bytes"
        except OSError as error:
            why = f"{self._words[0]}: {error.strerror}"
        finally:
            self._lose(why)
        with suppress(OSError):
            while await output.read(READ_BYTES):
                pass

    async def _dispatch(self, line: bytes) -> None:
        try:
            messages = client.decode_messages(line)
        except InvalidAgentResponse as error:  # a greeting, or forgotten debug output
            log.warning("mcp server %s: %s", self._name, error.message)
            return
        for message in messages:
            if not isinstance(message, ServerResponse):
                await self._hear(message)
                await asyncio.sleep(0)  # lets others run while a program asks without end
            elif (waiting := self._waiting.get(message.id)) is not None and not waiting.done():
                waiting.set_result(message)

    async def _log(self, errors: asyncio.StreamReader) -> None:
        """Log what the program writes to its standard error."""
        complaints = ErrorLog(log, f"mcp server {self._name}")
        while piece := await errors.read(READ_BYTES):
            complaints.feed(piece)
        complaints.end()

    def _lose(self, why: str) -> None:
        """Mark the session as over, and fail all waiting requests."""
        if not self.over:
            log.info("mcp server %s: %s", self._name, why)
        self.over = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Away(ENDED, why))


async def _wait_end(ending: asyncio.Future[int]) -> bool:
    done, _ = await asyncio.wait((ending,), timeout=LEAVE_S)
    return bool(done)


def _signal(process: Process, number: signal.Signals) -> None:
    """Signal the process group, which outlives the program if the program left others behind."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
