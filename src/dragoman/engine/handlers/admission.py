"""Admission: the Handler that checks scopes, rates and streams, and notes each call in the audit trail.

Invariant: a call that is refused here has reached no task. The handlers behind decide whose a task is.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from msgspec import Struct

from dragoman.dialects.v1.operations import TABLE
from dragoman.engine.erasures import Erasures
from dragoman.engine.handler import Answered, Handler, OpenStream
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.handlers.usage import OpenStreams, Rates, UsageExchange
from dragoman.engine.key_stops import KeyStops
from dragoman.model.errors import A2AError, Forbidden, TooManyRequests
from dragoman.model.ids import Clock
from dragoman.model.operations import (
    Call,
    CompleteTask,
    DeleteTask,
    Operation,
    SendMessage,
    Subscribe,
    UpdateStatus,
    task_id_of,
)
from dragoman.model.principal import Principal, Scope
from dragoman.model.task import Record, TaskHead
from dragoman.store.audit import AuditEntry
from dragoman.store.members import TeamMembers

STREAM_RETRY_S = 5
"""`Retry-After` for a caller with too many streams. Nobody knows when one of them ends."""


class Action(Struct, frozen=True):
    """The name of an operation in A2A 1.0, and the scope it needs; None if the engine asks for more than a scope."""

    action: str
    scope: Scope | None


KINDS: Mapping[type[Operation], Action] = MappingProxyType(
    {
        **{kind: Action(row.method, row.scope) for kind, row in TABLE.items()},
        DeleteTask: Action("DeleteTask", Scope.CANCEL),
        CompleteTask: Action("CompleteTask", None),
        UpdateStatus: Action("UpdateStatus", None),
    }
)

VERBS: Mapping[Scope, str] = MappingProxyType(
    {
        Scope.SEND: "send",
        Scope.READ: "read tasks",
        Scope.CANCEL: "cancel",
        Scope.PUSH: "register webhooks",
        Scope.CARD: "read the extended card",
    }
)


class Admission:
    """A Handler that passes on the calls that a principal may make: see `engine.handler.Handler`.

    `rates` and `streams` None set no limit; `trail` None notes nothing. With an `exchange` other replicas count, too.
    `stops` has the keys that an operator stopped: a call that was under way when its key was revoked is refused.
    `erasures` has the principals whose data is being deleted: their calls leave no trace.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        rates: Rates | None,
        streams: OpenStreams | None,
        trail: Trail | None,
        clock: Clock,
        exchange: UsageExchange | None = None,
        stops: KeyStops | None = None,
        erasures: Erasures | None = None,
    ) -> None:
        self._handler = handler
        self.dialect_of, self.agent_of, self.look = handler.dialect_of, handler.agent_of, handler.look  # nothing to add
        self._stops = stops
        self._erasures = erasures
        self._rates = rates
        self._streams = streams
        self._exchange = exchange
        self._trail = trail
        self._exempt = None if trail is None else trail.exempt
        self._clock = clock

    async def call(self, call: Call) -> Answered:
        """Answer a unary operation: see `engine.handler.Handler.call`."""
        kind = KINDS[type(call.operation)]
        if self._erasures is not None and self._erasures.under_way:
            self._erasures.check(call.principal.id)
        try:
            if self._exchange is not None:
                await self._let_call(self._exchange, call.principal)
            self._admit(call, kind)
            result = await self._handler.call(call)
        except BaseException as error:
            self._note_raised(call, kind, error)
            raise
        if self._exempt is not None and call.principal.id not in self._exempt:
            self._note_allowed(call, kind, result.head if isinstance(result, Record) else None)
        return result

    async def stream(self, call: Call) -> OpenStream:
        """Open a stream: see `engine.handler.Handler.stream`."""
        kind = KINDS[type(call.operation)]
        if self._erasures is not None and self._erasures.under_way:
            self._erasures.check(call.principal.id)
        try:
            if self._exchange is not None:
                await self._let_call(self._exchange, call.principal)
            self._admit(call, kind)
            stays = not (isinstance(call.operation, Subscribe) and call.operation.past_only)
            counts = self._streams if stays else None
            stream = await (self._handler.stream(call) if counts is None else self._counted(call, counts))
        except BaseException as error:
            self._note_raised(call, kind, error)
            raise
        if self._exempt is not None and call.principal.id not in self._exempt:
            self._note_allowed(call, kind, stream.head)
        return stream

    def note(self, entry: AuditEntry) -> None:
        """Note a refusal that happened before there was a call, such as a request without a key."""
        if self._trail is not None:
            self._trail.note(entry)

    # -- checks --------------------------------------------------------------------------------------------------------

    def _admit(self, call: Call, kind: Action) -> None:
        """Raises Forbidden or TooManyRequests."""
        principal = call.principal
        if principal.key and self._stops is not None:
            self._stops.check(principal.key)
        if principal.agents is not None and not principal.reaches(call.agent):
            raise Forbidden(f"this key or token is not for agent {call.agent!r}")
        if principal.scopes is not None and kind.scope is not None:
            check_scope(principal.scopes, kind.scope)
            if isinstance(call.operation, SendMessage) and call.operation.push_config is not None:
                check_scope(principal.scopes, Scope.PUSH)
        if (rates := self._rates) is None:
            return
        if rates.per_s or principal.limits is not None:
            own = _own_rate(principal)
            if wait_s := rates.take(principal.id, self._clock.now_ms(), own):
                raise TooManyRequests("max_requests_per_s", f"more requests than {own or rates.per_s} a second", wait_s)
        most = _team_rate(principal)
        if most and (wait_s := rates.take(_team_name(principal), self._clock.now_ms(), most)):
            raise TooManyRequests("max_requests_per_s", f"your team makes more requests than {most} a second", wait_s)

    @staticmethod
    async def _let_call(exchange: UsageExchange, principal: Principal) -> None:
        """Wait until this replica may let one more call of the principal through, and of its team."""
        await exchange.let_call(principal.id, _own_rate(principal))
        if most := _team_rate(principal):
            await exchange.let_call(_team_name(principal), most)

    # -- streams -------------------------------------------------------------------------------------------------------

    async def _counted(self, call: Call, streams: OpenStreams) -> OpenStream:
        """Open a stream and count it. It is counted before it opens, so that concurrent calls cannot pass the limit."""
        owner = call.principal.id
        if self._exchange is not None:
            await self._exchange.let_open(streams, owner)
        if not streams.take(owner):
            most = streams.most
            raise TooManyRequests(
                "max_streams", f"{most} {'stream is' if most == 1 else 'streams are'} open: close one", STREAM_RETRY_S
            )
        try:
            stream = await self._handler.stream(call)
        except BaseException:
            streams.release(owner)
            raise
        stream.when_closed(partial(streams.release, owner))
        return stream

    # -- notes ---------------------------------------------------------------------------------------------------------

    def _note_allowed(self, call: Call, kind: Action, head: TaskHead | None) -> None:
        if self._trail is not None:
            task_id = head.id if head is not None else task_id_of(call.operation)
            self._trail.note(self._entry(call, kind, task_id, ""))

    def _note_raised(self, call: Call, kind: Action, error: BaseException) -> None:
        """Note a refusal, or that the caller left while it waited; the operation goes on then."""
        trail = self._trail
        if trail is None:
            return
        if isinstance(error, asyncio.CancelledError):
            if trail.keeps(call.principal.id):
                trail.note(self._entry(call, kind, task_id_of(call.operation), ""))
            return
        reason = type(error).__name__ if isinstance(error, A2AError) else "InternalError"
        trail.note(self._entry(call, kind, task_id_of(call.operation), reason))

    def _entry(self, call: Call, kind: Action, task_id: str, reason: str) -> AuditEntry:
        return AuditEntry(
            at_ms=self._clock.now_ms(),
            principal=call.principal.id,
            action=kind.action,
            agent=call.agent,
            task_id=task_id,
            allowed=not reason,
            reason=reason,
            peer=call.peer,
            key=call.principal.key,
        )


def _own_rate(principal: Principal) -> int | None:
    """The rate of the principal's key, if it has one of its own."""
    return None if principal.limits is None else principal.limits.max_requests_per_s


def _team_rate(principal: Principal) -> int | None:
    return None if principal.team_limits is None else principal.team_limits.max_requests_per_s


def _team_name(principal: Principal) -> str:
    """The name under which the requests of a team are counted. No caller has it."""
    return TeamMembers(principal.team).first


def check_scope(scopes: frozenset[Scope], needed: Scope) -> None:
    """Check that one of the scopes of a caller is the one that is needed. Raises Forbidden."""
    if needed not in scopes:
        has = ", ".join(sorted(scopes))
        raise Forbidden(
            f"this key or token may not {VERBS[needed]}: it has the scopes {has}"
            if has
            else "this key or token has no scope"
        )
