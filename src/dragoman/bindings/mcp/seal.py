"""Seals: what a client of MCP 2026-07-28 carries for the server, so that no server remembers it.

    task's id       the task, and 128 bits that nobody can guess who was not told
    requestState    the question of a task that a call waits for, bound to its caller and its tool, for a day

Invariant: what was not sealed by a server of this store, for this caller and this tool, opens nothing. All servers of a
store have one key, which outlives them.
"""

import asyncio
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from dragoman.dialects.mcp.stateless import MAX_STATE
from dragoman.model.errors import InvalidParams
from dragoman.model.ids import Clock

PURPOSE = b"dragoman mcp 1"

TAG_BYTES = 16

STATE_MS = 86_400_000
"""How long a `requestState` can be answered. The task may wait longer: a call that names it answers it, too."""


class WaitingCall(Struct, frozen=True, array_like=True):
    """The call that a `requestState` stands for: its task, the mark of the question, and when it was sealed."""

    task_id: str
    mark: str
    sealed_ms: int


class McpSeal:
    """Seals and opens. `load_secret` gets the secret of the store; it is asked once."""

    def __init__(self, load_secret: Callable[[], Awaitable[bytes]], clock: Clock) -> None:
        self._load_secret = load_secret
        self._clock = clock
        self._key = b""
        self._loading = asyncio.Lock()

    @property
    def prepared(self) -> bool:
        """Whether the key is here."""
        return bool(self._key)

    async def prepare(self) -> None:
        """Get the key, before anything is sealed or opened. Raises StoreError."""
        async with self._loading:
            if not self._key:
                self._key = hmac.digest(await self._load_secret(), PURPOSE, "sha256")

    def seal_task(self, task_id: str) -> str:
        """Return the id under which a client asks for the task."""
        return f"{task_id}.{_encode(self._tag('task', task_id))}"

    def open_task(self, sealed: str) -> str | None:
        """Return the task with that id; None if no server has told it."""
        task_id = sealed.rpartition(".")[0]
        return (
            task_id
            if hmac.compare_digest(self.seal_task(task_id).encode(), sealed.encode("utf-8", "replace"))
            else None
        )

    def seal_call(self, task_id: str, mark: str, owner: str, tool: str) -> str:
        """Return the `requestState` of a call of that caller and tool that waits for the answer to a question."""
        content = msgspec.msgpack.encode(WaitingCall(task_id, mark, self._clock.now_ms()))
        return _encode(self._tag("call", owner, tool, content=content) + content)

    def open_call(self, sealed: str, owner: str, tool: str) -> WaitingCall:
        """Return the call that a `requestState` stands for. Raises InvalidParams if it is not its own."""
        raw = _decode(sealed) if len(sealed) <= MAX_STATE else b""
        content = raw[TAG_BYTES:]
        if not hmac.compare_digest(self._tag("call", owner, tool, content=content), raw[:TAG_BYTES]):
            raise InvalidParams("requestState", "is not of this call: send back the one that its last result had")
        call = msgspec.msgpack.decode(content, type=WaitingCall)
        if self._clock.now_ms() > call.sealed_ms + STATE_MS:
            raise InvalidParams("requestState", "has expired: call the tool again, with task_id to answer that task")
        return call

    def _tag(self, *words: str, content: bytes = b"") -> bytes:
        assert self._key  # see `prepare`
        bound = msgspec.msgpack.encode((words, content))
        return hmac.digest(self._key, bound, "sha256")[:TAG_BYTES]


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    """Decode our base64; empty for anything else, also for another spelling of the same bytes."""
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
    return raw if _encode(raw) == text else b""
