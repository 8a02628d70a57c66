"""Seen: a cache of credentials that were verified a moment ago, for the hot path of authentication.

Invariant: bounded in bytes. Only valid credentials come in, so that a flood of wrong ones evicts nothing.
"""

from dragoman.model.principal import Principal

MAX_BYTES = 8 * 1024 * 1024
"""Enough for some 8,000 JWTs of 1 KB, or 40,000 API keys."""

ENTRY_BYTES = 200
"""The bytes of an entry beside the credential."""


class Seen:
    """The principals of credentials, by the exact bytes that were sent, for as long as they may be accepted.

    Bytes are compared only if a hash with a secret seed (SipHash) is equal, so that timing reveals nothing.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._entries: dict[bytes, tuple[Principal, int, int]] = {}
        self._bytes_left = max_bytes

    def get(self, sent: bytes, now_ms: int) -> Principal | None:
        """The principal of a credential; None if it must be verified anew, also after the clock was set back."""
        entry = self._entries.get(sent)
        return entry[0] if entry is not None and entry[1] <= now_ms < entry[2] else None

    def put(self, sent: bytes, principal: Principal, now_ms: int, until_ms: int) -> None:
        """Accept a credential until `until_ms`. The oldest entries make room."""
        self._remove(sent)
        self._entries[sent] = (principal, now_ms, until_ms)
        self._bytes_left -= len(sent) + ENTRY_BYTES
        while self._bytes_left < 0:
            self._remove(next(iter(self._entries)))

    def _remove(self, sent: bytes) -> None:
        if self._entries.pop(sent, None) is not None:
            self._bytes_left += len(sent) + ENTRY_BYTES

    def __len__(self) -> int:
        return len(self._entries)
