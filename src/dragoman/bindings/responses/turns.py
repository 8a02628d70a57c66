"""Turns of tasks, read from their logs through the handler, and as the streams of responses.

Invariant: the frames of a stream depend on the log alone, so a stream that was cut goes on with the same bytes.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from dragoman.bindings.calls import Reception, make_call
from dragoman.bindings.http import HttpRequest
from dragoman.bindings.request import read_parameters
from dragoman.bindings.streams import UNSEEN
from dragoman.dialects import sse
from dragoman.dialects.responses.objects import ConversationItem, read_response_id
from dragoman.dialects.responses.turn import ResponseTurn, first_turn
from dragoman.engine.handler import Direct, Handler, Snapshot, Stream, StreamItem
from dragoman.model.errors import NotFound
from dragoman.model.events import Logged, MessageReceived, Submitted
from dragoman.model.operations import Call, DeleteTask, GetTask, Manners, Operation, Subscribe
from dragoman.model.task import TERMINAL, Record, TaskHead

DIALECT = "responses"
"""The dialect that is stored with the tasks made here."""

MANNERS = Manners(answers_with_message=False, subscribes_to_ended=True, reads_logs=True, cancels_ended=True)
"""A response has the id of a task, so that agents which answer directly make one, too."""

NEWEST = 1 << 62
"""The number of a turn that no task has: its log is followed to the end."""


class ReadTurn(Struct, frozen=True):
    """A turn as the log tells it up to `seq`. `said`: the log has the message that was looked for.

    `folded`: the log is gone, and the task's record told the turn.
    """

    turn: ResponseTurn
    seq: int
    said: bool = False
    folded: bool = False

    @property
    def ended(self) -> bool:
        """Whether the task has ended."""
        return self.turn.state in TERMINAL


class ResponseTurns:
    """Reads turns for callers. A turn of somebody else's task is none."""

    def __init__(self, handler: Handler, reception: Reception) -> None:
        self.handler = handler
        self.reception = reception

    async def make_call(self, request: HttpRequest, operation: Operation, after: int | None = None) -> Call:
        """Make the call of an operation that names its agent. Raises A2AError."""
        parameters = replace(read_parameters(request), after=None if after is None else str(after))
        return await make_call(
            self.reception, self.handler, request, parameters, operation, dialect=DIALECT, manners=MANNERS
        )

    async def find_agent(self, request: HttpRequest, task_id: str) -> str | None:
        """The agent of a task that the caller made at the root; None if there is no such task."""
        return await self.handler.agent_of(task_id, request.principal, request.route.mount)

    async def follow(
        self, request: HttpRequest, task_id: str, agent: str, after: int = 0, *, past_only: bool = False
    ) -> Stream:
        """Follow the log of a task behind the event `after`, or read what is there. Raises A2AError."""
        call = await self.make_call(request, Subscribe(id=task_id, tenant=agent, past_only=past_only), after)
        return await self.handler.stream(call)

    @asynccontextmanager
    async def open_log(
        self, request: HttpRequest, task_id: str, agent: str, after: int = 0
    ) -> AsyncIterator[tuple[TaskHead, AsyncIterator[Logged | Record]]]:
        """Open the log of a task as it stands, behind the event `after`. The record stands for deleted events."""
        stream = await self.follow(request, task_id, agent, after, past_only=True)
        assert stream.head is not None  # the log of a task
        try:
            yield stream.head, _items(stream)
        finally:
            stream.close()

    async def read(
        self, request: HttpRequest, task_id: str, agent: str, number: int, message_id: str = ""
    ) -> ReadTurn | None:
        """Read a turn from the log of a task as it stands, and how the task stands; None if the log is gone.

        The log of an ended task is deleted after `log_retention`. Then the record tells the first turn, unless it has
        lost something that the log had said.
        """
        async with self.open_log(request, task_id, agent) as (head, events):
            turn, seq, said = ResponseTurn(head, number, quiet=True), 0, False
            async for item in events:
                if isinstance(item, Record):
                    return _of_record(item, number)
                turn.add_event(item.event)
                seq = item.seq
                if isinstance(item.event, Submitted | MessageReceived):
                    said = said or item.event.message.message_id == message_id
            return ReadTurn(turn, seq, said)

    async def read_items(self, request: HttpRequest, task_id: str, agent: str) -> list[ConversationItem]:
        """Read the items of all turns of a task; none if its log is gone. Raises A2AError."""
        async with self.open_log(request, task_id, agent) as (head, events):
            turn, items = ResponseTurn(head, 1, quiet=True), list[ConversationItem]()
            async for item in events:
                if isinstance(item, Record):
                    return []
                if turn.over and turn.asks:
                    items += turn.encode_items()
                    turn = turn.following(quiet=True)
                turn.add_event(item.event)
            return [*items, *turn.encode_items()]

    async def read_record(self, request: HttpRequest, task_id: str, agent: str) -> Record:
        """Read a task of the caller as it stands. Raises A2AError."""
        record = await self.handler.call(await self.make_call(request, GetTask(id=task_id, tenant=agent)))
        assert isinstance(record, Record)  # nothing else answers a GetTask
        return record

    async def delete(self, request: HttpRequest, task_id: str, agent: str) -> None:
        """Delete a task of the caller that has ended, for every door. Raises TaskNotEnded, or another A2AError."""
        await self.handler.call(await self.make_call(request, DeleteTask(id=task_id, tenant=agent)))

    async def read_response(self, request: HttpRequest, text: str) -> tuple[ReadTurn, str]:
        """Read the turn of the response with an id. Also returns its agent. Raises NotFound, or another A2AError.

        A response that was not to be stored is not there, and nobody else's.
        """
        response_id = read_response_id(text)
        agent = None if response_id is None else await self.find_agent(request, response_id.task_id)
        if response_id is None or agent is None:
            raise absent(text)
        request.task_id = response_id.task_id
        found = await self.read(request, response_id.task_id, agent, response_id.turn)
        if found is None:
            raise deleted(text)
        if not found.turn.begun or not found.turn.facts.stored:
            raise absent(text)
        return found, agent


async def _items(stream: Stream) -> AsyncIterator[Logged | Record]:
    while batch := await stream.next():
        for item in batch:
            match item:
                case Logged():
                    yield item
                case Snapshot(record=record):
                    yield record
                case Direct():  # never in a log
                    pass


def absent(text: str) -> NotFound:
    """The error for the id of a response that the caller does not have."""
    return NotFound(f"no response {text[:200]!r}: use the `id` of one that was stored")


def deleted(text: str) -> NotFound:
    """The error for the id of a response whose task has lost its log."""
    return NotFound(f"the events of response {text[:200]!r} have been deleted (log_retention): read its task")


def _of_record(record: Record, number: int) -> ReadTurn | None:
    """The first turn of a task whose log was deleted; None if its record does not say all that the log had said."""
    turn = first_turn(record) if number == 1 and record.head.dialect == DIALECT else None
    return None if turn is None else ReadTurn(turn, record.seq, folded=True)


class TurnStream:
    """The events of a turn as they come: see `bindings.streams.Batches`. Those up to number `after` are left out.

    With `message_id` the turn is the one which that message belongs to, this or a later one.
    """

    __slots__ = ("_after", "_first", "_held", "_message_id", "_stream", "_turn")

    def __init__(
        self,
        stream: Stream,
        turn: ResponseTurn,
        first: Sequence[StreamItem] = (),
        after: int = -1,
        message_id: str = "",
    ) -> None:
        self._stream = stream
        self._turn = turn
        self._first = first
        self._after = after
        self._message_id = message_id
        self._held: list[bytes] = []

    @property
    def retry(self) -> bool:
        """See `engine.handler.Stream.retry`."""
        return self._stream.retry

    async def next(self, wait_s: float | None = None) -> Sequence[bytes] | None:
        """Return the frames since the last call: see `bindings.streams.Batches.next`."""
        if self._turn.over and not self._message_id:
            return None
        batch: Sequence[StreamItem] | None
        if self._first:
            batch, self._first = self._first, ()
        else:
            batch = await self._stream.next(wait_s)
        if not batch:
            return batch if batch is None else ()
        frames: list[bytes] = []
        for item in batch:
            frames += self._take(item)
        return frames or UNSEEN

    def close(self) -> None:
        """End the stream because its reader has left: see `bindings.streams.Batches.close`."""
        self._stream.close()

    def _take(self, item: StreamItem) -> Sequence[bytes]:
        if not isinstance(item, Logged):  # of an agent that answers directly, or the log is gone: see `follow`
            return ()
        turn = self._turn
        if self._message_id and turn.over:  # somebody else had answered the question: the message comes later
            turn = self._turn = turn.following()
            self._held.clear()
        frames = turn.add_event(item.event)
        if frames and self._after >= 0:
            unseen = max(0, turn.sequence - 1 - self._after)
            frames = frames[-unseen:] if unseen else []
        if not self._message_id:
            return frames
        self._held += frames
        if all(message.message_id != self._message_id for message in turn.inputs):
            return ()
        held, self._held, self._message_id = self._held, [], ""
        return held


def encode_turn(batch: Sequence[bytes]) -> Iterable[bytes]:
    """Encode frames for the transport, in pieces that let its flow control work."""
    if batch is UNSEEN:
        return batch
    joined = b"".join(batch)
    if len(joined) <= sse.PIECE_BYTES:
        return (joined,)
    return (joined[start : start + sse.PIECE_BYTES] for start in range(0, len(joined), sse.PIECE_BYTES))
