"""A transport calls one endpoint of an agent, over one binding, in one dialect. Here is what all of them share.

`http_transport` has JSON-RPC and HTTP+JSON, `grpc_transport` has gRPC; `transports` makes either.

Invariant of every transport: errors are an A2AError (the agent's own, or InvalidAgentResponse), a PeerError or a
NoAnswer. A call that may have been carried out is not repeated unless a repeat does no harm. No event of a stream is
reported twice: an event counts as a repeat only if both its id and its data came before, because some servers give all
events one id, and some number each stream from 1.
"""

import math
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dragoman.client.card import Interface
from dragoman.client.credentials import Credentials
from dragoman.client.errors import HttpRefusal
from dragoman.client.retries import Repetition, Retrier, RetryLater, Timeouts
from dragoman.dialects.api import Tongue
from dragoman.model.errors import A2AError, AgentFailed, InvalidAgentResponse, UnsupportedOperation
from dragoman.model.operations import (
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    SendMessage,
    StreamMessage,
    Subscribe,
)
from dragoman.model.updates import Update

T = TypeVar("T")

Batch = list[tuple[str, Update]]
"""Updates, each with an event id: the id of the newest event that is complete with this update, empty if it has none.
"""


class UpdateBatch:
    """Updates of a stream that came together, and the id of each: see `Batch`. `chunks`: each is a chunk of an artifact
    that holds a single plain text, and nothing else.
    """

    __slots__ = ("chunks", "ids", "updates")

    def __init__(self, ids: list[str], updates: list[Update], *, chunks: bool = False) -> None:
        self.ids = ids
        self.updates = updates
        self.chunks = chunks


class UpdateReader(Protocol):
    """The updates of one stream, from one endpoint. No call is made before the first `next`."""

    async def next(self) -> UpdateBatch | None:
        """Return the next updates, at least one; None once the agent has ended the stream.

        Raises A2AError, PeerError or NoAnswer.
        """
        ...

    def close(self) -> None:
        """Stop reading. Call it in any case."""
        ...


KNOWN_MAX = 1024
"""How many of the newest events are remembered, at least. No server repeats more than this from before its reader's
position.
"""

_NUMBER = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?", re.ASCII)
"""An event's number, and the number of the frame where one event is several. Longer numbers are timestamps: the
JavaScript SDK numbers its frames by the millisecond, so that two in a row can look like direct successors.
"""

_READS = (GetTask, ListTasks, Subscribe, GetPushConfig, ListPushConfigs, DeletePushConfig, GetExtendedCard)
"""Operations that do no harm when they are carried out twice."""

_DONE = (InvalidAgentResponse, AgentFailed)
"""Errors of a call that may have been carried out, however long the agent asks to wait."""


def succeeds(event_id: str, before: str) -> bool:
    """Whether one event directly follows another by number, so that nothing can be missing between them.

    The order is `7`, `8.1`, `8.2`, `8`, `9`: the last frame of an event has the event's number alone.
    """
    old, new = _NUMBER.fullmatch(before), _NUMBER.fullmatch(event_id)
    if old is None or new is None:
        return False
    number, frame = int(old[1]), int(old[2] or 0)
    if frame:
        return int(new[1]) == number and int(new[2] or frame + 1) == frame + 1
    return int(new[1]) == number + 1 and int(new[2] or 1) == 1


class StreamPosition:
    """The events of a stream reported so far. `id` is the id of the newest complete event, empty if none has one.

    `retry_ms` is the reconnection delay that a server asked for when it ended the stream, None if it did not. `over`:
    nothing comes after the updates of the newest batch.
    """

    __slots__ = ("_known", "id", "over", "retry_ms")

    def __init__(self, event_id: str = "") -> None:
        self.id = event_id
        self.retry_ms: int | None = None
        self.over = False
        self._known: dict[str, int] = {}

    def begin(self) -> None:
        """A stream begins that goes on from here: its end has yet to come."""
        self.retry_ms, self.over = None, False

    def move(self, event_id: str) -> None:
        """The event has been reported, and has this id."""
        self.id = event_id

    def begin_all(self, ids: list[str], data: list[str]) -> bool:
        """Record events none of which has come before. Returns False, and records none, if one may have."""
        if "" in ids:
            return not any(ids)
        known = self._known
        before = len(known)
        if before and not known.keys().isdisjoint(ids):
            return False
        fresh = dict(zip(ids, map(hash, data), strict=True))
        if len(fresh) < len(ids):
            return False
        if before:
            known.update(fresh)
        else:
            self._known = fresh
        self._forget()
        return True

    def _forget(self) -> None:
        if len(self._known) >= 2 * KNOWN_MAX:
            self._known = dict(list(self._known.items())[KNOWN_MAX:])

    def note_batch(self, *, over: bool) -> None:
        """A batch begins, after which nothing comes if that is `over`."""
        self.over = over

    def note_end(self, retry_ms: int | None) -> None:
        """The stream has ended, and the server asked for this delay."""
        self.retry_ms = retry_ms

    def repeats(self, event_id: str, data: str | bytes) -> bool:
        """Record an event, and return whether it came before."""
        if not event_id:
            return False
        known, said = self._known, hash(data)
        if event_id in known:
            return len(known) > 1 and known[event_id] == said
        known[event_id] = said
        self._forget()
        return False


class WireLog(Protocol):
    """Is told what goes over the wire. Headers have no credentials, which are added later."""

    def request(self, verb: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """A request is sent."""
        ...

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """An answer came; `body` is empty for a stream."""
        ...

    def piece(self, data: bytes) -> None:
        """A piece of a stream came."""
        ...


class CallHeaders(Struct, frozen=True, kw_only=True):
    """The headers of one call, which are metadata over gRPC, and its `repetition`.

    A message without an `idempotency_key` is known by its own id. `after` is the id of the last event that the caller
    of a stream has seen.
    """

    idempotency_key: str | None = None
    traceparent: str | None = None
    after: str | None = None
    repetition: Repetition = Repetition.HERE

    def by_name(self, operation: Operation) -> dict[str, str]:
        """Return those that go with this operation, by the name of the header."""
        headers = {}
        if self.after and isinstance(operation, StreamMessage | Subscribe):
            headers["Last-Event-ID"] = self.after
        if type(operation) is StreamMessage or isinstance(operation, SendMessage):
            headers["Idempotency-Key"] = self.idempotency_key or operation.message.message_id
        if self.traceparent:
            headers["traceparent"] = self.traceparent
        return headers


NO_HEADERS = CallHeaders()


class CallTerms(Struct, frozen=True, kw_only=True):
    """How the calls of one connection are made; `connect` takes these as arguments.

    `headers` go with every call. So do those of `credentials` over gRPC; over HTTP the client adds them.
    """

    timeouts: Timeouts
    retrier: Retrier
    headers: Mapping[str, str] = {}
    credentials: Credentials | None = None
    extensions: Sequence[str] = ()
    wire: WireLog | None = None

    def anonymous(self) -> "CallTerms":
        """Return the same terms without what tells the agent who is calling."""
        return replace(self, headers={}, credentials=None)

    def sends_s(self, interface: Interface) -> float:
        """Return for how long a send to this endpoint that may have arrived is repeated, in seconds."""
        return self.retrier.retries.repeats_s(interface.dedupes_s)

    def call(
        self,
        make: Callable[[], Awaitable[T]],
        repeats_s: float,
        repetition: Repetition = Repetition.HERE,
        began_ms: int | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Return the result of `make`, which is repeated for `repeats_s` even if the call may have been carried out."""
        return self.retrier.call(
            make, repeatable=repeats_s > 0, within_s=repeats_s or math.inf, repetition=repetition, began_ms=began_ms
        )


def repeated_s(operation: Operation, sends_s: float) -> float:
    """Return for how long an operation that may have been carried out is repeated, in seconds; 0 if never. `sends_s`
    is that of sends."""
    if isinstance(operation, SendMessage):
        return sends_s
    return math.inf if isinstance(operation, _READS) else 0.0


def address(operation: Operation, interface: Interface) -> Operation:
    """Return the operation for the tenant of the endpoint, unless it names one itself."""
    return replace(operation, tenant=interface.tenant) if interface.tenant and not operation.tenant else operation


def check_stream(operation: StreamMessage | Subscribe, spoken: Tongue) -> None:
    """Raises UnsupportedOperation if the dialect has no such stream."""
    if not (spoken.streams if isinstance(operation, StreamMessage) else spoken.subscribes):
        raise UnsupportedOperation(f"the dialect {spoken.name} has no such stream: use send, then get")


def extensions_header(spoken: Tongue) -> str:
    """The header in which a client declares its extensions (A2A 0.3 §3.2.2, 1.0 §3.2.6)."""
    return "X-A2A-Extensions" if spoken.name == "0.3" else "A2A-Extensions"


def refusal(
    error: A2AError | HttpRefusal, after_s: float | None, *, for_now: bool, repeatable: bool, full: bool, away: bool
) -> A2AError | HttpRefusal | RetryLater:
    """Return what to raise for a call that was refused with `error`: RetryLater if it may be made again.

    `after_s` is how long the agent asks to wait. `for_now`: the status says that a later call may succeed; `full`: it
    says that there are too many (429); `away`: that the agent is not available (503). A call that is not `repeatable`
    is made again only if it has certainly not been carried out: a proxy may have passed on what it refuses.
    """
    if after_s is not None:
        error.retry_after_s = math.ceil(after_s)
    error.untaken = not isinstance(error, _DONE) and (full or (away and after_s is not None))
    again = repeatable and (for_now or after_s is not None)
    if isinstance(error, _DONE) or not (again or (error.untaken and after_s is not None)):
        return error
    return RetryLater(error, after_s)
