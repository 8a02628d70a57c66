"""Streams that mend themselves: what breaks, stalls or is ended before its time is taken up where it was left.

With `Last-Event-ID`, where the server numbers its events, exactly what follows comes. Else the task is asked for and
subscribed to, and of where it stands only that is told which has not been; if that cannot be, it is asked for again
and again. A send of which nothing was heard goes out again with the same message id, if the agent knows repeated sends.

Invariant: however the stream is cut, the updates fold to the same task, and no text is told twice.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import Enum, auto
from typing import Any, Protocol

from dragoman.client.errors import CallTimedOut, HttpRefusal, NoAnswer, NoToken, PeerError, StreamLost, fate_unknown
from dragoman.client.folding import Folding
from dragoman.client.place import Batch, Place
from dragoman.client.retries import Again
from dragoman.client.timeouts import Timeouts
from dragoman.dialects.tongue import Answer, Tongue
from dragoman.model.errors import (
    A2AError,
    AgentOffline,
    InternalError,
    InvalidAgentResponse,
    InvalidParams,
    MethodNotAllowed,
    MethodNotFound,
    NotFound,
    TooManyRequests,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.message import Message
from dragoman.model.operations import GetTask, Operation, SendMessage, StreamMessage, Subscribe
from dragoman.model.task import INTERRUPTED, TERMINAL, Task, TaskStatus
from dragoman.model.updates import ArtifactUpdate, Update

_LACKING = (UnsupportedOperation, MethodNotFound, MethodNotAllowed, NotFound, InvalidParams)
"""What an agent says that cannot subscribe, or not from an event on."""

_FOR_NOW = (Unavailable, TooManyRequests, AgentOffline, InternalError)

_BROKEN = (NoAnswer, PeerError, A2AError)

LAST_S = 1.0
"""How long an agent may leave a stream open after its task has ended, or waits for its caller; some never end it."""


class Agent(Protocol):
    """Whom the stream is of: see Connection."""

    @property
    def tongue(self) -> Tongue:
        """The dialect that is spoken."""
        ...

    async def ask(
        self, operation: Operation, *, idempotency_key: str | None = None, traceparent: str | None = None
    ) -> Answer:
        """See Connection."""
        ...

    def events(
        self,
        operation: StreamMessage | Subscribe,
        *,
        after: str | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        place: Place | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """See Connection."""
        ...


class _Step(Enum):
    """How a piece of the stream is got."""

    SAID = auto()  # what the caller asked for
    RESUMED = auto()  # subscribed from an event on
    ASKED = auto()  # the task as it stands
    SUBSCRIBED = auto()  # subscribed, beginning with the task as it stands


class Following:
    """One stream. `folding` is what it amounts to so far, `place` where it stands.

    `streams` False: the agent is known to have no streams, so that a send is answered once, and then asked for. For
    `repeats_s` it takes a send that comes again for the same.
    """

    def __init__(
        self,
        agent: Agent,
        operation: StreamMessage | Subscribe,
        *,
        again: Again,
        timeouts: Timeouts,
        streams: bool = True,
        repeats_s: float = 0.0,
        after: str | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> None:
        self.folding = Folding(operation.id if isinstance(operation, Subscribe) else "")
        self.place = Place(after or "")
        self.mended = 0
        """How often it was taken up again: what comes then may say again what was told, if a server was lost."""
        self._agent = agent
        self._operation = operation
        self._send = operation if isinstance(operation, StreamMessage) else None
        self._again = again
        self._mend_s = timeouts.mend_s
        self._repeats_s = repeats_s
        self._began_ms = again.clock.now_ms()
        self._streams = streams and agent.tongue.streams
        self._key = idempotency_key
        self._traceparent = traceparent
        self._step = _Step.SAID if self._send is not None or agent.tongue.subscribes else _Step.ASKED
        self._resumes = self._subscribes = streams and agent.tongue.subscribes
        self._checks = False
        self._first = True
        self._told = False
        self._asked: TaskStatus | None = None
        self._lost_at: float | None = None
        self._ends_at: float | None = None
        self._attempt = 0

    async def updates(self) -> AsyncGenerator[Update, None]:
        """The same one by one, for whoever does not look at `folding` and `place` meanwhile. It is to be closed."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for update in batch:
                    yield update

    async def batches(self) -> AsyncGenerator[list[Update], None]:
        """What becomes of the task, until it ends or, of a send, waits for its caller. It is to be closed.

        As many updates at a time as came together, and one at least; `folding` and `place` have them already. Raises
        StreamLost if it could not be taken up again; what the agent refuses; NoAnswer as Connection, if the stream did
        not come about: one that was `sent` bears the message id.
        """
        while True:
            lost: Exception | None = None
            self._told = self._checks = settled = False
            try:
                async with aclosing(self._events()) as events:
                    while (came := await (self._last(events) if settled else anext(events, None))) is not None:
                        if not self._told:
                            self._told = True
                            if not self._fits(came[0][1]):
                                break
                        news = self._taken(came)
                        if news:
                            yield news
                        settled = self._settled
                        if not self._first and self._answered:
                            return
            except _BROKEN as error:
                lost = self._mendable(error)
            if self._over(clean=lost is None):
                return
            await self._turn(lost)

    def _taken(self, came: Batch) -> list[Update]:
        """What of that which came is new."""
        folding, place = self.folding, self.place
        news: list[Update] = []
        for event_id, update in came:
            for each in folding.news(update) if self._checks else (update,):
                folding.add(each)
                news.append(each)
            place.id = event_id or place.id
            if not self._first and type(update) is not ArtifactUpdate and self._answered:
                break
        if news:
            self._attempt = 0
        return news

    # -- the pieces ----------------------------------------------------------------------------------------------------

    def _events(self) -> AsyncGenerator[Batch, None]:
        task_id, place = self.folding.task_id, self.place
        place.retry_ms = None
        match self._step:
            case _Step.RESUMED:
                return self._agent.events(
                    Subscribe(id=task_id), after=place.id, traceparent=self._traceparent, place=place
                )
            case _Step.SUBSCRIBED:
                self._checks = True
                return self._agent.events(Subscribe(id=task_id), traceparent=self._traceparent, place=place)
            case _Step.ASKED:
                self._checks = True
                return self._answer(GetTask(id=task_id))
        if self._send is not None and not self._streams:
            return self._answer(
                SendMessage(**{name: getattr(self._send, name) for name in SendMessage.__struct_fields__})
            )
        self._checks = self.folding.status is not None
        return self._agent.events(
            self._operation,
            after=place.id or None,
            idempotency_key=self._key,
            traceparent=self._traceparent,
            place=place,
        )

    async def _last(self, events: AsyncGenerator[Batch, None]) -> Batch | None:
        """What comes next, although the task is over; None at the end, which is not waited for as long as it takes."""
        if self._ends_at is None:
            self._ends_at = asyncio.get_running_loop().time() + LAST_S
        try:
            async with asyncio.timeout_at(self._ends_at):
                return await anext(events, None)
        except TimeoutError:
            return None

    async def _answer(self, operation: SendMessage | GetTask) -> AsyncGenerator[Batch, None]:
        key: dict[str, Any] = {"idempotency_key": self._key} if isinstance(operation, SendMessage) else {}
        answer = await self._agent.ask(operation, traceparent=self._traceparent, **key)
        if not isinstance(answer, Task | Message):
            raise InvalidAgentResponse(f"expected a task, got {type(answer).__name__}")
        yield [("", answer)]

    def _fits(self, first: Update) -> bool:
        """Whether what a piece begins with can be joined to what has been told."""
        whole = isinstance(first, Task)
        match self._step:
            case _Step.SAID:
                if isinstance(first, Task) and self._send is not None and self._send.message.task_id and self._first:
                    self._asked = first.status  # it may still be the question to which this is the answer
            case _Step.RESUMED:
                self._checks = whole  # the server does not know that event any more, or never looks for it
            case _Step.SUBSCRIBED if not whole:
                self._subscribes = False  # nobody can tell how much was missed
                return False
            case _:
                pass
        return True

    # -- what comes next -----------------------------------------------------------------------------------------------

    @property
    def _answered(self) -> bool:
        """Whether a send is over, as its task waits for the caller: with another question than it answers."""
        folding = self.folding
        return self._send is not None and folding.state in INTERRUPTED and folding.status != self._asked

    @property
    def _settled(self) -> bool:
        """Whether nothing more is to come of what was asked for: the task has ended, or waits for its caller."""
        state = self.folding.state
        return state is not None and (state in TERMINAL or (state in INTERRUPTED and self._answered))

    def _over(self, *, clean: bool) -> bool:
        """Whether nothing is to be expected any more, now that a piece is over."""
        folding = self.folding
        if folding.status is None:
            return folding.message is not None
        if folding.state in TERMINAL or self._answered:
            return True
        if folding.state not in INTERRUPTED or not clean:
            return False
        if self._step is _Step.ASKED:
            return not self._subscribes and self._asked is None
        return self.place.retry_ms is None or not self._told

    @property
    def _knows(self) -> bool:
        """Whether the agent takes the send for the same if it comes again now."""
        return (self._again.clock.now_ms() - self._began_ms) / 1000 < self._repeats_s

    def _mendable(self, error: Exception) -> Exception:
        """The error, if the stream may be taken up after it; else it is raised."""
        begun = self.folding.status is not None or not self._first
        match error:
            case NoAnswer() if self._step is _Step.SAID and self._send is not None and not self.folding.task_id:
                if not (begun or error.sent):
                    raise error
                knows = self._knows and not (isinstance(error, CallTimedOut) and not begun)
                if error.sent and not knows:
                    raise fate_unknown(error, self._send.message.message_id) from error
                return error
            case NoAnswer() if begun or error.sent:
                return error
            case HttpRefusal() if begun and (error.status >= 500 or error.status == 429):
                return error
            case NoToken() if begun and not error.permanent:
                return error
            case A2AError() if self._told:
                raise error  # what the agent says in its stream is what there is to say
            case MethodNotFound() if self._first and self._send is None:
                self._resumes = self._subscribes = False
                return error
            case A2AError() if self._step is _Step.RESUMED and isinstance(error, _LACKING):
                self._resumes = False
                return error
            case A2AError() if self._step is _Step.SUBSCRIBED and isinstance(error, _LACKING):
                self._subscribes = False
                return error
            case A2AError() if begun and isinstance(error, _FOR_NOW):
                return error
            case _:
                raise error

    async def _turn(self, lost: Exception | None) -> None:
        """Wait, and choose the next piece. Raises StreamLost."""
        before = self._step
        if before is _Step.SUBSCRIBED and lost is None and not self._told:
            self._subscribes = False  # a mere acknowledgement (Evo AI)
        self._first = False
        self.mended += 1
        task_id = self.folding.task_id
        if self.place.id and task_id and self._resumes:
            self._step = _Step.RESUMED
        elif not task_id:
            self._step = _Step.SAID
            if self._send is None or not self._knows:
                raise StreamLost(self._where(lost), "the stream ended before it named a task", task_id, "")
        elif before is _Step.ASKED and lost is None and self._subscribes:
            self._step = _Step.SUBSCRIBED
        else:
            self._step = _Step.ASKED
        now = asyncio.get_running_loop().time()
        if lost is None:
            self._lost_at = None
            if self._step is _Step.SUBSCRIBED:
                return  # to what the answer before it told
        elif self._lost_at is None:
            self._lost_at = now
        elif now - self._lost_at >= self._mend_s:
            raise StreamLost(self._where(lost), str(lost), task_id, self.place.id) from lost
        self._attempt += 1
        hint_ms = self.place.retry_ms
        wait_s = self._again.wait_s(self._attempt) if hint_ms is None or self._attempt > 1 else hint_ms / 1000
        await self._again.pause(min(wait_s, self._again.retries.patience_s))

    def _where(self, lost: Exception | None) -> str:
        return lost.url if isinstance(lost, NoAnswer | PeerError) else "stream"
