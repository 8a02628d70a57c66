"""The access log: one line for each request, as text or JSON, written beside the loop.

Invariant: noting a request is one addition to a list. Lines are formatted and written by a thread, in their order. A
destination that takes none costs lines, which are counted, and neither requests nor memory.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.telemetry.coalescing import about
from dragoman.telemetry.logs import ESCAPED

log = logging.getLogger("dragoman.access")

FLUSH_S = 0.25
"""Time between two writes: a line is in its place soon enough for `tail -f`, and a busy server writes many at once."""

PENDING_MAX = 20_000
"""Most lines that wait to be written, some 10 MB."""

BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@+~*,;[]{}()<>|^!?&%$#")
"""The characters of a value that is written without quotes: no space, quote, equals sign or backslash."""


class Access(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that was answered, or whose stream has ended.

    `principal` is a name, never a key. `remote` is the client's address. `binding` and
    `operation` are those of the metrics. `status` is that of HTTP, or the number of gRPC's. `outcome` is `ok`,
    `refused` (a fault of the caller), `failed` (a fault here) or `left`; `error` is the class of the error. `path` is
    set for requests that are no operation of A2A. `trace` is the id of the caller's trace.
    """

    remote: str
    principal: str
    binding: str
    operation: str
    status: int
    outcome: str
    duration_ms: float
    bytes_in: int
    bytes_out: int
    dialect: str = ""
    agent: str = ""
    task: str = ""
    error: str = ""
    method: str = ""
    path: str = ""
    trace: str = ""
    replica: str = ""


def format_json(at_ms: int, access: Access) -> str:
    """An object with `time` and the fields of `Access` that are not empty."""
    try:
        fields = msgspec.json.encode(access)
    except UnicodeEncodeError:  # bytes of a path that are no text
        fields = msgspec.json.encode(replace(access, path=access.path.encode("utf-8", "backslashreplace").decode()))
    return f'{{"time":"{_time(at_ms)}",{fields[1:].decode()}'


def format_text(at_ms: int, access: Access) -> str:
    """The time, then `name=value` for each field that is not empty; a value with unusual characters has quotes."""
    fields = msgspec.to_builtins(access)
    return f"{_time(at_ms)} " + " ".join(f"{name}={_spell(str(value))}" for name, value in fields.items())


FORMATS = {"text": format_text, "json": format_json}


class AccessLog:
    """Writes lines to the file at `path`, to standard error (None), or to standard output (`-`).

    A file that was moved away, as logrotate does, is made anew. `form` is `text` or `json`; `name` tells a replica from
    others.
    """

    def __init__(self, form: str, path: str | None, name: str = "") -> None:
        self.name = name
        self._format = FORMATS[form]
        self._path = None if path is None or path == "-" else Path(path)
        self._descriptor = {None: sys.__stderr__, "-": sys.__stdout__}.get(path) if self._path is None else None
        self._pending: list[tuple[int, Access]] = []
        self._dropped = 0
        self._file: int | None = None
        self._writing: asyncio.Future[None] | None = None

    def open(self) -> None:
        """Open the file. Raises OSError if that fails."""
        if self._path is not None:
            self._file = _open(self._path)

    def note(self, at_ms: int, access: Access) -> None:
        """Write a line soon, for a request that ended at that time."""
        if len(self._pending) < PENDING_MAX:
            self._pending.append((at_ms, access))
        else:
            self._dropped += 1

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await asyncio.sleep(FLUSH_S)
            if self._pending:
                await self.flush()

    async def flush(self) -> None:
        """Write every line that was noted."""
        if self._writing is not None:  # the loop left it when it was canceled
            await asyncio.wait((self._writing,))
        lines, self._pending = self._pending, []
        dropped, self._dropped = self._dropped, 0
        if dropped:
            log.warning("the access log has a gap: %d lines could not be written in time", dropped, extra=about("gap"))
        try:
            self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, lines))
            await asyncio.shield(self._writing)
        except OSError as error:
            log.warning(
                "the access log has a gap: %d lines cannot be written: %s", len(lines), error, extra=about("write")
            )

    async def close(self) -> None:
        """Write what is left, and close the file."""
        await self.flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, lines: Sequence[tuple[int, Access]]) -> None:
        text = "".join(f"{self._format(at_ms, access)}\n" for at_ms, access in lines)
        if self._path is None:
            if self._descriptor is not None:
                encoding = self._descriptor.encoding
                self._descriptor.write(text.encode(encoding, "backslashreplace").decode(encoding))
                self._descriptor.flush()
            return
        if self._file is None or _moved(self._file, self._path):
            if self._file is not None:
                os.close(self._file)
                self._file = None
            self._file = _open(self._path)
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        while left:
            left = left[os.write(self._file, left) :]


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)


def _moved(file: int, path: Path) -> bool:
    """Whether another file, or none, is at the path by now."""
    with suppress(FileNotFoundError):
        return not os.path.samestat(os.fstat(file), path.stat())
    return True


def _time(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _spell(value: str) -> str:
    if BARE.issuperset(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').translate(ESCAPED) + '"'
