"""A tape of what an attempt sends and receives, byte for byte, beside the client that repairs what it reads.

Invariant: credentials are never on it: they are added to a request behind the tape, and the user's own headers are left
out. A body is kept to its first part.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from dragoman.doctor.observation import Exchange
from dragoman.doctor.subject import ExchangeLog

TAPE_BYTES_MAX = 1024 * 1024
"""The part of an answer that is kept. Longer answers are not judged by the letter."""


class Tape:
    """A WireLog that keeps the newest exchange, and tells `log` everything. `hidden` are headers that may be secret."""

    def __init__(self, log: ExchangeLog | None, hidden: Mapping[str, str]) -> None:
        self._log = log
        self._hidden = {name.lower() for name in hidden}
        self._exchange: Exchange | None = None
        self._body = bytearray()

    def take(self) -> Exchange | None:
        """Return the newest exchange, and begin anew. None if nothing was sent over HTTP."""
        taken, self._exchange = self._exchange, None
        if taken is None:
            return None
        body = bytes(self._body)
        self._body.clear()
        return replace(taken, body=body)

    def request(self, verb: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """See WireLog."""
        if self._log is not None:
            self._log.request(verb, url, headers, body)
        self._body.clear()
        if url.startswith(("grpc://", "grpcs://")):
            return
        sent = {name: value for name, value in headers.items() if name.lower() not in self._hidden}
        self._exchange = Exchange(verb=verb, url=url.partition("?")[0], sent_headers=sent, sent=body)

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """See WireLog."""
        if self._log is not None:
            self._log.answer(status, headers, body)
        if self._exchange is not None:
            self._exchange = replace(self._exchange, status=status, headers=dict(headers))
            self._add(body)

    def piece(self, data: bytes) -> None:
        """See WireLog."""
        if self._log is not None:
            self._log.piece(data)
        if self._exchange is not None:
            self._add(data)

    def _add(self, data: bytes) -> None:
        self._body += data[: max(TAPE_BYTES_MAX - len(self._body), 0)]
