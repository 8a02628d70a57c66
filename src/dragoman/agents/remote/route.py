"""UpstreamRoute: all that runs and the server need of one agent of another server.

Invariant: it is opened once, before the first call, and closed after the last. Then it may be opened again.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.breaker import Breaker, State
from dragoman.agents.remote.access import UpstreamAccess
from dragoman.agents.remote.card import CardKeys, is_dragoman
from dragoman.agents.remote.endpoint import Probes, UpstreamEndpoint
from dragoman.agents.remote.failures import UNFOUND, Unfound
from dragoman.agents.remote.health import UpstreamHealth, Wakes
from dragoman.client.credentials import CredentialsFactory
from dragoman.client.http import complete
from dragoman.config import Upstream
from dragoman.engine.upstream_notes import UpstreamNotes
from dragoman.model.errors import A2AError
from dragoman.model.task import Task, TaskHead, TaskStatus
from dragoman.net.egress import OPERATORS_RULES, EgressRules
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.upstreams")

CONTEXTS_MAX = 10_000
"""The most conversations whose upstream ids are kept in memory; the store has all."""


_TIME_CHARS = 13
"""Characters of a UUIDv7 that hold its time (RFC 9562 §5.7). A context as old as its task has no earlier tasks."""


class RouteMember(Struct, frozen=True):
    """The place of a route in a pool of several. `first`: it is that of tasks from before there was a pool.

    Its card is read every `probe_s`. `chance` spreads that, and `wakes` is for all members.
    """

    name: str
    order: int
    weight: int
    first: bool
    probe_s: float
    chance: Callable[[], float]
    wakes: Wakes


class UpstreamRoute:
    """The route to the agent of the table `upstream`. Belongs to the loop that opens it.

    `access` is the way there, `endpoint` the card and the connection, `health` says whether calls get through, and
    `contexts` are the conversations. `name` is the agent's id, for callers, and `label` that of the member, too, for
    operators. `member` is None if the agent has one upstream.
    """

    __slots__ = (
        "_group",
        "_watching",
        "access",
        "busy",
        "contexts",
        "endpoint",
        "health",
        "label",
        "left",
        "member",
        "name",
    )

    def __init__(
        self,
        name: str,
        upstream: Upstream,
        make_credentials: CredentialsFactory,
        clock: Callable[[], float],
        rules: EgressRules = OPERATORS_RULES,
        member: RouteMember | None = None,
    ) -> None:
        breaker = Breaker(upstream.failures, upstream.pause_s, clock)
        keys = CardKeys(upstream.key_places, clock) if upstream.key_places else None
        self.name = name
        self.member = member
        self.label = name if member is None else f"{name}/{member.name}"
        self.busy = 0
        """How many runs of this process have their tasks there."""
        self.access = UpstreamAccess(upstream, make_credentials, keys, rules)
        self.health = UpstreamHealth(self.label, breaker, agent=name, wakes=None if member is None else member.wakes)
        probes = None if member is None else Probes(member.probe_s, member.chance)
        self.endpoint = UpstreamEndpoint(self.label, self.access, self.health, probes)
        self.contexts = Contexts()
        self.left = 0
        """How many sends await their answer although their task was canceled."""
        self._group: JobGroup | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self, group: JobGroup) -> None:
        """Read the card within a bounded time, and keep it up to date from now on."""
        self._group = group
        await self.endpoint.open()
        self._watching = group.keep(f"upstream: {self.label}", self.endpoint.watch)

    async def close(self) -> None:
        """Stop watching the card, and close all connections."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._group = None
        await self.access.close()
        self.endpoint.close()

    def begin_task(self) -> None:
        """Count a run that has its task there."""
        self.busy += 1

    def end_task(self) -> None:
        """Count it no more."""
        self.busy -= 1

    @property
    def state(self) -> str | None:
        """Why it cannot be called; None if it can, as far as is known."""
        match self.health.breaker.state:
            case State.OPEN:
                return "it does not answer: calls are held back for a while"
            case State.HALF_OPEN:
                return "it did not answer: the next call shows whether it does"
            case State.CLOSED:
                return self.endpoint.fault or self.health.shut_out or None

    def made(self, notes: UpstreamNotes) -> bool:
        """Whether a task with these notes is, or was, at this upstream."""
        member = self.member
        return member is None or notes.member == member.name or (member.first and not notes.member)

    @property
    def faulty(self) -> bool:
        """Whether there is a known fault, so that other members go before it."""
        health = self.health  # every send asks this of every member, so that nothing is called for one that is well
        if health.suspect or self.endpoint.fault or health.shut_out:
            return True
        return health.rests_until_s > 0 and health.resting

    @property
    def fault(self) -> str | None:
        """Why it cannot be called, or is called after other members; None if it is well, as far as is known."""
        if (state := self.state) is not None or self.member is None:
            return state
        if self.health.resting:
            return "it asks for no calls at present"
        return "the last call or probe did not get through" if self.health.suspect else None

    @property
    def dragoman(self) -> bool | None:
        """Whether the upstream's card is that of a Dragoman; None if no card was read."""
        card = self.endpoint.shown_card
        return None if card is None else is_dragoman(card)

    async def cancel_task(self, task_id: str) -> Task | A2AError | Unfound | None:
        """Cancel the upstream's task, and return its answer, or why there is none. The upstream may refuse."""
        try:
            connection = await self.endpoint.connection()
            if connection is None:
                return None
            answer = await connection.cancel(task_id)
            self.health.record_answer()
            return answer
        except (A2AError, *UNFOUND) as error:
            log.info("upstream %s: its task %s was not canceled: %s", self.label, task_id, self.access.describe(error))
            return error

    async def read_status(self, task_id: str) -> TaskStatus | str:
        """Read the status of the upstream's task, without secrets; a text says why it cannot be read."""
        try:
            connection = await self.endpoint.connection()
            if connection is None:
                return "it speaks no A2A, and so has no tasks"
            status = (await connection.get(task_id)).status
            self.health.record_answer()
        except (A2AError, *UNFOUND) as error:
            return self.access.describe(error)
        if status.message is None:
            return status
        parts = tuple(self.access.credentials.masking.parts(status.message.parts))
        return replace(status, message=replace(status.message, parts=parts))

    def run_beside(self, work: Coroutine[Any, Any, None]) -> bool:
        """Start work that outlives the run that needs it. The work must be bounded. False if nothing is open."""
        if self._group is None:
            work.close()
            return False
        self._group.create_task(work, name=f"beside {self.label}")
        return True

    async def chat(self, messages: list[dict[str, str]], traceparent: str | None) -> str:
        """Its answer over chat completions. Raises HttpRefusal, InvalidAgentResponse, EgressError or NoToken."""
        headers = {"traceparent": traceparent} if traceparent else {}
        return await complete(
            self.access.http,
            self.access.place,
            self.name,
            messages,
            timeout_s=self.access.timeouts.answer_s,
            headers=headers,
        )


def is_new(head: TaskHead) -> bool:
    """Whether the task's conversation was made with the task, so that it has no earlier ones."""
    return head.context_id[:_TIME_CHARS] == head.id[:_TIME_CHARS]


class Contexts:
    """The conversations with one upstream. `kept`: it adopts the ids that it is given, as far as is known."""

    def __init__(self) -> None:
        self.kept = False
        self._ids: OrderedDict[tuple[str, str], str] = OrderedDict()

    def of(self, head: TaskHead) -> str:
        """The upstream's own id of the task's conversation, if it has one and that is in memory, else empty."""
        return self._ids.get((head.owner, head.context_id), "")

    def keep(self, head: TaskHead, asked: str, given: str) -> None:
        """Record that the upstream answered with the id `given` for the conversation that we called `asked`."""
        self.kept = asked == given
        if asked != given:
            self._ids[head.owner, head.context_id] = given
            while len(self._ids) > CONTEXTS_MAX:
                self._ids.popitem(last=False)
