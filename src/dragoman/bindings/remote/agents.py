"""Agents elsewhere, as an operator reaches them through the server: their cards, and exchanges with them.

Invariant: every exchange is in the audit trail with its operator and its URL, without the query. A credential is shown
to the origin of the card's URL alone, and kept no longer than the exchange. Time, size and number are bounded.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, NoReturn

import msgspec

from dragoman.bindings.remote import questions
from dragoman.bindings.remote.check import check_message, read_send, read_stream
from dragoman.bindings.remote.examination import PastedSubject, judge_part, judge_whole
from dragoman.bindings.remote.failures import (
    FAILURES,
    CredentialWithheld,
    audited_url,
    describe_failure,
    is_refused_here,
)
from dragoman.bindings.remote.feed import RemoteFeed
from dragoman.bindings.remote.values import (
    CallRequest,
    CardRequest,
    EndpointChoice,
    Examination,
    ExaminationRequest,
    MessageCheck,
    MessageFaults,
    RemoteAgentFacts,
    RemoteAnswer,
    RemoteCredential,
    RemoteEnd,
    RemoteEndpoint,
    RemoteFailure,
    RemoteSendRequest,
    RemoteTaskRequest,
    RemoteUpdate,
)
from dragoman.bindings.remote.ways import RemoteWays
from dragoman.client import Connection, FoundCard, Interface, Retries, Timeouts, connect, find_card, interfaces
from dragoman.client.card import beside
from dragoman.client.credentials import ApiKey, Authorized
from dragoman.client.discovery import places
from dragoman.client.errors import NoInterface
from dragoman.dialects.registry import DIALECTS
from dragoman.dialects.v1.encode import encode_update
from dragoman.doctor.observation import Observations
from dragoman.doctor.observer import observe
from dragoman.doctor.subject import ExaminationFailed
from dragoman.doctor.trial import TEXT, Wish
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.engine.admin.answers import Asked, Functions, bind
from dragoman.model.errors import InvalidParams, TooManyRequests
from dragoman.model.message import Message
from dragoman.model.operations import CancelTask, GetTask, Operation, StreamMessage
from dragoman.model.task import Task
from dragoman.model.updates import Update
from dragoman.net.target import endpoint_target

AT_ONCE_MAX = 16
"""Most exchanges at once, of all operators together."""

EXAMINATIONS_MAX = 3
"""Most examinations at once: each asks up to eight endpoints at the same time."""

TIMEOUTS = Timeouts(answer_s=300.0, mend_s=10.0)

EXCHANGE_S = 600.0
"""How long an exchange may take; a stream that is longer is left there, and its task goes on."""

STREAM_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes of the updates of one stream."""

ONCE = Retries(attempts=1, dedupes=False)
"""An operator who tries an agent wants to see what it does, and sends again by hand."""


class RemoteAgents:
    """The agents that operators name by URL. `stop` ends the open streams, `close` also the connections.

    `answers` has the functions of the questions about them, and `streams` those of the questions that open a stream.
    """

    def __init__(self, ways: RemoteWays, notes: AccessNotes, keepalive_s: float) -> None:
        self.ways = ways
        self._notes = notes
        self._keepalive_s = keepalive_s
        self._open = 0
        self._feeds: set[RemoteFeed] = set()
        self._examinations: set[RemoteFeed] = set()
        self.answers: Functions = dict(
            (
                bind(questions.CHECK_MESSAGE, self.check),
                bind(questions.READ_CARD, lambda asked: self.read_card(asked.operator, asked.given)),
                bind(questions.SEND_MESSAGE, lambda asked: self.send(asked.operator, asked.given)),
                bind(questions.READ_TASK, lambda asked: self.get(asked.operator, asked.given)),
                bind(questions.CANCEL_TASK, lambda asked: self.cancel(asked.operator, asked.given)),
            )
        )
        self.streams: Functions = dict(
            (
                bind(questions.STREAM_MESSAGE, lambda asked: self.stream(asked.operator, asked.given)),
                bind(questions.EXAMINE_AGENT, lambda asked: self.examine(asked.operator, asked.given)),
            )
        )

    async def read_card(self, operator: Operator, given: CardRequest) -> RemoteAgentFacts:
        """Fetch the card of an agent, and list its endpoints. Raises A2AError."""
        with self._admitted(operator, "remote.card", given):
            try:
                found, listed = await self._find(given, _shown_by(given.credential))
            except FAILURES as error:
                failure = self._failed(operator, "remote.card", given, error)
                return RemoteAgentFacts(card_url="", at_root=False, card=None, endpoints=(), failure=failure)
        home = endpoint_target(found.url)
        return RemoteAgentFacts(
            card_url=found.url,
            at_root=places(given.url).names_host,
            card=found.card,
            endpoints=tuple(
                RemoteEndpoint(
                    url=each.url,
                    binding=each.binding,
                    dialect=each.dialect,
                    takes_credential=each.to.origin == home.origin or beside(each.to, home),
                )
                for each in listed
            ),
            failure=None,
        )

    async def send(self, operator: Operator, given: RemoteSendRequest) -> RemoteAnswer:
        """Send a message, and return the task as it stands when it ends or waits. Raises A2AError."""
        return await self._call(operator, "remote.send", given, read_send(given.request))

    async def get(self, operator: Operator, given: RemoteTaskRequest) -> RemoteAnswer:
        """Read a task. Raises A2AError."""
        return await self._call(operator, "remote.get", given, GetTask(id=given.task_id))

    async def cancel(self, operator: Operator, given: RemoteTaskRequest) -> RemoteAnswer:
        """Cancel a task. Raises A2AError."""
        return await self._call(operator, "remote.cancel", given, CancelTask(id=given.task_id))

    async def stream(self, operator: Operator, given: RemoteSendRequest) -> RemoteFeed:
        """Send a message, and follow its task. The reader who leaves ends the exchange, and not the task.

        Raises A2AError.
        """
        operation = read_stream(given.request)

        async def follow(feed: RemoteFeed) -> None:
            await feed.put("end", RemoteEnd(await self._follow(operator, given, operation, feed)))

        return self._feed(operator, "remote.stream", given, follow)

    async def examine(self, operator: Operator, given: ExaminationRequest) -> RemoteFeed:
        """Examine an agent as `dragoman doctor` does. The reader who leaves ends the examination. Raises A2AError."""
        action = "remote.examine-active" if given.active else "remote.examine"
        if len(self._examinations) >= EXAMINATIONS_MAX:
            self._refuse(operator, action, given, f"{EXAMINATIONS_MAX} examinations are under way")

        async def run(feed: RemoteFeed) -> None:
            await feed.put("end", await self._examine(operator, action, given, feed))

        feed = self._feed(operator, action, given, run)
        self._examinations.add(feed)
        return feed

    async def check(self, asked: Asked[MessageCheck]) -> MessageFaults:
        """The faults of a message that is not sent."""
        return check_message(asked.given.text)

    def stop(self) -> None:
        """End the open streams, because the server stops."""
        for feed in tuple(self._feeds):
            feed.stop()

    async def close(self) -> None:
        """Close every connection."""
        self.stop()
        await self.ways.close()

    async def _call(self, operator: Operator, action: str, given: CallRequest, operation: Operation) -> RemoteAnswer:
        with self._admitted(operator, action, given):
            try:
                async with asyncio.timeout(EXCHANGE_S), self._connect(given) as connection:
                    answer = await connection.ask(operation)
            except FAILURES as error:
                return RemoteAnswer(answer=None, failure=self._failed(operator, action, given, error))
        if isinstance(answer, Task | Message):
            return RemoteAnswer(answer=_encode(answer), failure=None)
        failure = RemoteFailure("InvalidAgentResponse", "expected a task or a message")
        return RemoteAnswer(answer=None, failure=failure)

    async def _follow(
        self, operator: Operator, given: RemoteSendRequest, operation: StreamMessage, feed: RemoteFeed
    ) -> RemoteFailure | None:
        """Put the updates of a stream into the feed. Returns why it failed, None if the agent ended it."""
        left = STREAM_BYTES_MAX
        try:
            async with (
                asyncio.timeout(EXCHANGE_S),
                self._connect(given) as connection,
                aclosing(connection.task_stream(operation).updates()) as updates,
            ):
                async for update in updates:
                    frame = encode_update(update)
                    left -= len(frame)
                    if left < 0:
                        told = f"the stream has more than {STREAM_BYTES_MAX} bytes: read its task instead"
                        return RemoteFailure("TooLarge", told)
                    await feed.put("update", RemoteUpdate(msgspec.json.decode(frame)))
        except FAILURES as error:
            return self._failed(operator, "remote.stream", given, error)
        return None

    async def _examine(
        self, operator: Operator, action: str, given: ExaminationRequest, feed: RemoteFeed
    ) -> Examination:
        failure = None
        secrets = () if given.credential is None else (given.credential.value,)
        seen = Observations(agent=audited_url(given.url))
        try:
            subject = PastedSubject(given.url, self.ways, _shown_by(given.credential))
            wish = Wish(text=given.text or TEXT) if given.active else None
            seen = await observe(subject, wish, lambda so_far: feed.replace("findings", judge_part(so_far, secrets)))
        except ExaminationFailed as error:
            failure = RemoteFailure(type(error).__name__, error.message)
        except FAILURES as error:
            failure = self._failed(operator, action, given, error)
        return judge_whole(seen, failure, secrets)

    @asynccontextmanager
    async def _connect(self, given: CallRequest) -> AsyncGenerator[Connection, None]:
        """Connect to an endpoint. Raises CredentialWithheld, InvalidParams, and what `connect` raises."""
        shown = _shown_by(given.credential)
        if given.dialect is not None:
            if given.dialect not in DIALECTS:
                raise InvalidParams("dialect", f"must be one of {', '.join(DIALECTS)}")
            async with connect(
                given.url,
                dialect=given.dialect,
                credentials=shown,
                egress=self.ways.to(given.url),
                timeouts=TIMEOUTS,
                retries=ONCE,
            ) as connection:
                yield connection
            return
        found, listed = await self._find(given, shown)
        chosen = _choose(listed, given.endpoint, found)
        home = endpoint_target(found.url)
        if shown is not None and not (chosen.to.origin == home.origin or beside(chosen.to, home)):
            raise CredentialWithheld(home.origin, chosen.to.origin)
        async with connect(
            found.url,
            card=found,
            interface=chosen,
            credentials=shown,
            # The way to the endpoint decides by its own rules whether the address may be dialled.
            origins=(chosen.url,),
            egress=self.ways.to(chosen.url),
            timeouts=TIMEOUTS,
            retries=ONCE,
        ) as connection:
            yield connection

    async def _find(self, given: CardRequest, shown: ApiKey | None) -> tuple[FoundCard, Sequence[Interface]]:
        where = places(given.url)
        egress = self.ways.to(where.base)
        way = egress if shown is None else Authorized(egress, shown)
        found = await find_card(given.url, egress=way, timeout_s=TIMEOUTS.card_s, retries=ONCE)
        return found, interfaces(found.card, found.url, places(found.url).base)

    @contextmanager
    def _admitted(self, operator: Operator, action: str, given: CardRequest) -> Iterator[None]:
        _shown_by(given.credential)
        self._take(operator, action, given)
        try:
            yield
        finally:
            self._open -= 1

    def _feed(
        self, operator: Operator, action: str, given: CardRequest, run: Callable[[RemoteFeed], Awaitable[None]]
    ) -> RemoteFeed:
        """Open a feed of an exchange that is noted as `action`. Raises A2AError."""
        _shown_by(given.credential)  # a fault is told before the stream begins
        self._take(operator, action, given)
        feed = RemoteFeed(run, self._keepalive_s, self._ended)
        self._feeds.add(feed)
        return feed

    def _take(self, operator: Operator, action: str, given: CardRequest) -> None:
        """Count an exchange that begins, and note it. Raises TooManyRequests."""
        if self._open >= AT_ONCE_MAX:
            self._refuse(operator, action, given, f"{AT_ONCE_MAX} exchanges with agents elsewhere are open")
        self._notes.note(operator, action, subject=audited_url(given.url))
        self._open += 1

    def _refuse(self, operator: Operator, action: str, given: CardRequest, told: str) -> NoReturn:
        self._notes.note(operator, action, subject=audited_url(given.url), reason=TooManyRequests.__name__)
        raise TooManyRequests("console", f"{told}: wait until one is over", 5)

    def _ended(self, feed: RemoteFeed) -> None:
        self._feeds.discard(feed)
        self._examinations.discard(feed)
        self._open -= 1

    def _failed(self, operator: Operator, action: str, given: CardRequest, error: Exception) -> RemoteFailure:
        """Describe an error; one by which the server's own rules refused the exchange is noted, too."""
        failure = describe_failure(error, given.credential)
        if is_refused_here(error):
            self._notes.note(operator, action, subject=audited_url(given.url), reason=failure.name)
        return failure


def _shown_by(credential: RemoteCredential | None) -> ApiKey | None:
    return None if credential is None else credential.shown_by()


def _choose(listed: Sequence[Interface], wanted: EndpointChoice | None, found: FoundCard) -> Interface:
    if not listed:
        raise NoInterface(audited_url(found.url), "the card names no endpoint that is spoken here")
    if wanted is None:
        return listed[0]
    for each in listed:
        if (each.url, each.binding, each.dialect) == (wanted.url, wanted.binding, wanted.dialect):
            return each
    raise InvalidParams("endpoint", "is not in the agent's card, which may have changed: read the card again")


def _encode(update: Update) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(encode_update(update))
    return decoded
