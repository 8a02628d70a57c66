"""`connect`, and a connection to one agent.

Invariant: arguments and results are values of the model in every dialect, and an agent's refusal is an A2AError.
Everything opened here is closed when the block of `connect` ends; nothing that the caller owns is.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dragoman.client.card import Interface, RemoteCard, binding_of
from dragoman.client.conversation import Content, Conversation, make_message
from dragoman.client.credentials import Credentials, check_credentials
from dragoman.client.decode import tongue
from dragoman.client.discovery import CardCache, Discovery, FoundCard, Places, places
from dragoman.client.doors import Doors
from dragoman.client.endpoint import AgentEndpoint, EndpointWish
from dragoman.client.grpc_address import grpc_url
from dragoman.client.http_transport import BegunStream
from dragoman.client.retries import RETRIES, TIMEOUTS, Repetition, Retrier, Retries, Timeouts
from dragoman.client.stream import TaskStream, check_task
from dragoman.client.transport import Batch, CallHeaders, CallTerms, StreamPosition, WireLog
from dragoman.client.transports import Transports
from dragoman.client.webhooks import TaskWebhooks
from dragoman.dialects.api import Answer, Tongue
from dragoman.dialects.cards import GRPC, HTTP_JSON, JSONRPC
from dragoman.model.card import VERSIONS, AgentCard
from dragoman.model.message import Message
from dragoman.model.operations import (
    CancelTask,
    GetExtendedCard,
    GetTask,
    ListTasks,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
    Subscribe,
)
from dragoman.model.task import Task, TaskState
from dragoman.model.updates import TaskList, Update
from dragoman.net.egress import Egress
from dragoman.net.target import is_grpc
from dragoman.net.tls import MACHINE_TLS, ClientTls, make_tls_context


class Connection:
    """A connection to one agent, as returned by `connect`."""

    def __init__(self, endpoint: AgentEndpoint) -> None:
        self._endpoint = endpoint
        self.webhooks = TaskWebhooks(endpoint)

    @property
    def card(self) -> RemoteCard | None:
        """The agent's card; None if a dialect was given, which makes the card unnecessary."""
        return self._endpoint.card

    @property
    def interface(self) -> Interface:
        """The endpoint in use."""
        return self._endpoint.interface

    @property
    def tongue(self) -> Tongue:
        """The dialect in use, and what it supports."""
        return self._endpoint.tongue

    @property
    def repeats_s(self) -> float:
        """For how long a send that may have arrived is repeated, in seconds; see Retries."""
        return self._endpoint.sends_s

    async def send(
        self,
        content: Content,
        *,
        context_id: str | None = None,
        task_id: str | None = None,
        reference_task_ids: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        message_id: str | None = None,
        skill: str | None = None,
        history_length: int | None = None,
        output_modes: Sequence[str] = (),
        return_immediately: bool = False,
        push: PushConfig | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> Task | Message:
        """Send a message, and wait until the task ends or waits for an answer; see SendMessage.

        `metadata` goes into the message. A NoAnswer whose `sent` is true carries the message id; use it to send again.
        """
        message = make_message(
            content,
            context_id=context_id,
            task_id=task_id,
            reference_task_ids=reference_task_ids,
            metadata=metadata,
            message_id=message_id,
        )
        operation = SendMessage(
            message=message,
            return_immediately=return_immediately,
            history_length=history_length,
            accepted_output_modes=tuple(output_modes),
            skill=skill,
            push_config=push,
        )
        return await self._endpoint.send(
            operation, CallHeaders(idempotency_key=idempotency_key, traceparent=traceparent)
        )

    def stream(
        self,
        content: Content,
        *,
        context_id: str | None = None,
        task_id: str | None = None,
        reference_task_ids: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        message_id: str | None = None,
        skill: str | None = None,
        history_length: int | None = None,
        output_modes: Sequence[str] = (),
        push: PushConfig | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> AsyncGenerator[Update, None]:
        """Send a message, and yield the updates of its task until the task ends or waits for an answer.

        A stream that breaks is resumed without a gap or a repeat; TaskStream says what is raised if that fails. For an
        agent without streams only its answer is yielded.
        """
        message = make_message(
            content,
            context_id=context_id,
            task_id=task_id,
            reference_task_ids=reference_task_ids,
            metadata=metadata,
            message_id=message_id,
        )
        operation = StreamMessage(
            message=message,
            history_length=history_length,
            accepted_output_modes=tuple(output_modes),
            skill=skill,
            push_config=push,
        )
        return self.task_stream(operation, idempotency_key=idempotency_key, traceparent=traceparent).updates()

    def subscribe(self, task_id: str, *, after: str | None = None) -> AsyncGenerator[Update, None]:
        """Follow an existing task, as `stream` does; `after` is the id of the last event seen."""
        return self.task_stream(Subscribe(id=task_id), after=after).updates()

    def task_stream(
        self,
        operation: StreamMessage | Subscribe,
        *,
        after: str | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        on_link: Callable[[bool], None] | None = None,
        repetition: Repetition = Repetition.HERE,
        begun: BegunStream | None = None,
    ) -> TaskStream:
        """Return a stream that resumes after a break, with its position and the task it has built so far.

        `on_link` is called with False when it breaks, and with True when the agent is heard again. `repetition` says
        whether a send that fails before the agent has named its task is repeated. `begun` is what `begin_stream`
        returned for the same operation.
        """
        beside = CallHeaders(
            idempotency_key=idempotency_key, traceparent=traceparent, after=after, repetition=repetition
        )
        return TaskStream(self._endpoint, operation, beside, on_link, begun)

    def begin_stream(self, operation: StreamMessage, *, traceparent: str | None = None) -> BegunStream | None:
        """Send the call of a stream at once, on a kept connection; None if anything has to be waited for before.

        For callers who count microseconds: `task_stream` does everything else. Give it what is returned here, for the
        same operation and `traceparent`, or close that: it holds the connection.
        """
        return self._endpoint.begin_stream(operation, CallHeaders(traceparent=traceparent))

    def conversation(self, context_id: str | None = None) -> Conversation:
        """Begin a conversation, in which each turn continues the one before."""
        return Conversation(self, context_id)

    async def get(self, task_id: str, *, history_length: int | None = None) -> Task:
        """Return the task in its current state."""
        return check_task(await self._endpoint.ask(GetTask(id=task_id, history_length=history_length)), task_id)

    async def list(
        self,
        *,
        context_id: str | None = None,
        state: TaskState | None = None,
        page_size: int = 50,
        page_token: str = "",
        history_length: int | None = None,
        status_after_ms: int | None = None,
        include_artifacts: bool = False,
    ) -> TaskList:
        """Return a page of the caller's tasks, newest status first; see ListTasks."""
        operation = ListTasks(
            context_id=context_id,
            state=state,
            page_size=page_size,
            page_token=page_token,
            history_length=history_length,
            status_after_ms=status_after_ms,
            include_artifacts=include_artifacts,
        )
        return await self._endpoint.read(operation, TaskList, "a list of tasks")

    async def cancel(self, task_id: str, *, metadata: dict[str, Any] | None = None) -> Task:
        """Cancel a task, and return it as it stands then."""
        return check_task(await self._endpoint.ask(CancelTask(id=task_id, metadata=metadata)), task_id)

    async def extended_card(self) -> AgentCard:
        """Return the card that the agent shows to authenticated callers."""
        return await self._endpoint.read(GetExtendedCard(), AgentCard, "an agent card")

    async def refresh(self, *, anew: bool = False) -> None:
        """Fetch the card again and switch to what it says now. The rules of HTTP caching apply unless `anew`.

        Raises NoCard, NoInterface, NotReached, CallTimedOut, NoToken, or CardNotVerified; then everything stays as it
        was.
        """
        await self._endpoint.refresh(anew=anew)

    async def reach(self) -> None:
        """Open a connection to the endpoint without sending a request. Raises NoAnswer."""
        await self._endpoint.reach()

    async def ask(
        self, operation: Operation, *, idempotency_key: str | None = None, traceparent: str | None = None
    ) -> Answer:
        """Return the answer to any operation that is not a stream.

        If the endpoint is gone, or has another version, the card is fetched again and another endpoint is called, once.
        """
        return await self._endpoint.ask(
            operation, CallHeaders(idempotency_key=idempotency_key, traceparent=traceparent)
        )

    async def events(
        self,
        operation: StreamMessage | Subscribe,
        *,
        after: str | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        position: StreamPosition | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Yield the updates of a stream in batches: at least one, and as many as arrived together.

        Ends when the agent ends it, or with a NoAnswer when it breaks. If the endpoint is gone, it does the same as
        `ask`. Events that `position` already knows are left out, and it records the new ones. The caller must close it.
        """
        beside = CallHeaders(idempotency_key=idempotency_key, traceparent=traceparent, after=after)
        updates = self._endpoint.stream(operation, beside, position)
        try:
            while (batch := await updates.next()) is not None:
                yield list(zip(batch.ids, batch.updates, strict=True))
        finally:
            updates.close()


@asynccontextmanager
async def connect(
    url: str,
    *,
    credentials: Credentials | None = None,
    keys: Mapping[str, Any] | None = None,
    path: str | None = None,
    version: str | None = None,
    binding: str | None = None,
    dialect: str | Tongue | None = None,
    timeouts: Timeouts = TIMEOUTS,
    retries: Retries | Retrier = RETRIES,
    egress: Egress | None = None,
    extensions: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    origins: Sequence[str] = (),
    cache: CardCache | None = None,
    double_base64: bool = False,
    card: FoundCard | None = None,
    interface: Interface | None = None,
    tls: ClientTls = MACHINE_TLS,
    wire: WireLog | None = None,
    grpc_tls: bool | None = None,
    transport: str | None = None,
) -> AsyncGenerator[Connection, None]:
    """Connect to the agent at `url` until the block ends.

    The card is looked for at `path`, or at the usual places, and says which dialect to use. `version` (`1.0`, `0.3`)
    and `binding` (`JSONRPC`, `HTTP+JSON`, `GRPC`) choose among the endpoints that it offers; `transport`, as in 0.3,
    is the same as `binding`. With a `dialect` (a name of `dialects.registry.DIALECTS`) that dialect is used at the URL,
    and no card is fetched. A gRPC endpoint without a card is `grpc://host:port`, or `grpcs://…` with TLS. `grpc_tls`
    says whether a card's address that has no scheme is called over TLS; None: if its port is 443, or the card came over
    https. `keys` is a JWK Set; one of its keys must have signed the card. `double_base64` says that the agent encodes
    the bytes of files in base64 once more, as servers of the official Python SDK do in 0.3 over HTTP+JSON and gRPC; it
    changes nothing elsewhere.

    `credentials` and `headers` go to the origin of `url` and to `origins`; only these may be dialled at any address. So
    may gRPC endpoints on the same hosts, unless that gives up TLS. With a `card` none is fetched until its endpoint is
    gone, or `refresh` asks for it anew; see `find_card`. With an `interface` of `interfaces` that endpoint is used,
    whatever happens. `tls` says which certificates are trusted and shown, unless the caller passes an `egress`. `wire`
    is told what is sent and received, without credentials.

    Without `egress` the connection opens its own. Several connections can share a `cache` of cards. Belongs to one
    event loop.

    Raises BadUrl; ValueError for an unknown name, or for two arguments that exclude each other; BadTls; TypeError for
    credentials that are a plain text; NoCard, NoInterface, NotReached, CallTimedOut, NoToken, or CardNotVerified.
    """
    check_credentials(credentials)
    over = _check_binding(binding, transport)
    _check_version(version, dialect)
    where = places(url, path)
    spoken = None if dialect is None else tongue(dialect)
    if egress is None and tls != MACHINE_TLS:
        await asyncio.to_thread(make_tls_context, tls)  # so that a bad file is an error here, not at every call
    own = Egress(connect_timeout_s=timeouts.connect_s, tls=tls) if egress is None else egress
    doors = Doors(own, (url, *where.cards, *origins), credentials, timeouts, tls)
    terms = CallTerms(
        timeouts=timeouts,
        retrier=retries if isinstance(retries, Retrier) else Retrier(retries),
        headers=dict(headers or {}),
        credentials=credentials,
        extensions=extensions,
        wire=wire,
    )
    if interface is None and spoken is not None:
        interface = _make_interface(where, over, spoken)
    endpoint = AgentEndpoint(
        Discovery(doors.known, where, CardCache() if cache is None else cache, terms),
        Transports(doors=doors, terms=terms, spoken=spoken, double_base64=double_base64),
        EndpointWish(base=where.base, fixed=interface, binding=over, version=version, grpc_tls=grpc_tls),
        keys=keys,
        given=card,
    )
    try:
        await endpoint.begin()
        yield Connection(endpoint)
    finally:
        await doors.close()
        if egress is None:
            await own.close()


def _check_binding(binding: str | None, transport: str | None) -> str | None:
    """The binding that the caller named, by either word. Raises ValueError."""
    if binding is not None and transport is not None:
        raise ValueError("`transport=` is another word for `binding=`: pass only one of them")
    word, named = ("binding", binding) if transport is None else ("transport", transport)
    over = None if named is None else binding_of(named)
    if named is not None and over is None:
        raise ValueError(f"{word} {named!r} is not known: use {JSONRPC}, {HTTP_JSON} or {GRPC}")
    return over


def _check_version(version: str | None, dialect: str | Tongue | None) -> None:
    """Raises ValueError for an unknown version, or for one beside a dialect."""
    if version is not None and version not in VERSIONS:
        raise ValueError(f"version {version!r} is not known: use {' or '.join(VERSIONS)}")
    if version is not None and dialect is not None:
        raise ValueError("`version=` chooses from the card, and `dialect=` reads no card: pass only one of them")


def _make_interface(where: Places, binding: str | None, spoken: Tongue) -> Interface:
    """Return the endpoint for a dialect that the caller named: the agent's URL as the caller wrote it."""
    over = binding or (GRPC if is_grpc(where.given) else HTTP_JSON if spoken.rpc is None else JSONRPC)
    if over == GRPC:
        return Interface(url=grpc_url(where.given, where.given), binding=over, dialect=spoken.name, event_ids=True)
    url = where.base + "/" if spoken.slash and over == JSONRPC else where.given
    return Interface(url=url, binding=over, dialect=spoken.name)
