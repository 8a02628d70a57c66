"""Credentials that were found good a moment ago: the hot path of authentication.

Invariant: bounded in bytes, and only what was found good comes in: a flood of wrong ones drives nothing out.
"""

from dragoman.model.principal import Principal

MAX_BYTES = 8 * 1024 * 1024
"""Some 8,000 JWTs of 1 KB, or 40,000 API keys."""

ENTRY_BYTES = 200
"""What an entry costs beside the credential."""


class Seen:
    """Whom a credential names, by the very bytes that were sent, for as long as that may be believed.

    Bytes are compared only where a hash with a secret seed (SipHash) is equal, so the time that takes tells nothing.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._entries: dict[bytes, tuple[Principal, int, int]] = {}
        self._bytes_left = max_bytes

    def get(self, sent: bytes, now_ms: int) -> Principal | None:
        """Who sent that; None if it is to be looked at anew, also when the clock was set back."""
        entry = self._entries.get(sent)
        return entry[0] if entry is not None and entry[1] <= now_ms < entry[2] else None

    def put(self, sent: bytes, principal: Principal, now_ms: int, until_ms: int) -> None:
        """Believe it until then; what was put in longest ago makes room."""
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
