"""The server's log: one line for one event, as text for people or as JSON for machines.

Invariant: a message is one line, whatever it contains. A traceback follows on lines of its own; in JSON it is a field.
"""

import logging
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from dragoman.telemetry.coalescing import CoalescingHandler

ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    code: f"\\u{code:04x}" for code in (0x2028, 0x2029)
}
"""Control characters and line ends, so that a caller's text cannot forge a line or drive a terminal."""


class TextFormatter(logging.Formatter):
    """`2026-11-20T07:00:00.000Z info    dragoman.server: stopping`; a traceback follows on lines of its own.

    A server with a name writes it in brackets before the logger: `info    [2] dragoman.server: stopping`.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._name = f"[{name}] " if name else ""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the lines of the traceback if there is one."""
        message = record.getMessage().translate(ESCAPED)
        line = f"{_time(record)} {record.levelname.lower():<7} {self._name}{record.name}: {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """An object with `time`, `level`, `logger`, `message`, and `exception` if there is one.

    A server with a name adds it as `replica`. Texts passed with the record as `extra={"fields": {…}}` become members,
    too.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._own = {"replica": name} if name else {}

    def format(self, record: logging.LogRecord) -> str:
        """The object, on one line."""
        line: dict[str, str] = (
            getattr(record, "fields", {})
            | self._own
            | {
                "time": _time(record),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": record.getMessage(),
            }
        )
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode({key: _encodable(value) for key, value in line.items()}).decode()


def log_to(stream: TextIO, level: str, form: str, name: str = "") -> None:
    """Write log records of `level` (`debug`, `info` …) and above to `stream`. `form` is `text` or `json`.

    `name` tells a replica from others whose records go to the same stream. Records that repeat themselves about one
    subject are coalesced: see `coalescing`.
    """
    output = CoalescingHandler(stream)
    output.setFormatter(JsonFormatter(name) if form == "json" else TextFormatter(name))
    logging.basicConfig(level=level.upper(), handlers=[output], force=True)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
