"""UpstreamRoute: all that runs and the server need of one agent of another server.

Invariant: it is opened once, before the first call, and closed after the last. Then it may be opened again.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from dragoman.agents.breaker import Breaker, State
from dragoman.agents.remote.access import UpstreamAccess
from dragoman.agents.remote.card import CardKeys
from dragoman.agents.remote.endpoint import UpstreamEndpoint
from dragoman.agents.remote.failures import UNFOUND, Unfound
from dragoman.agents.remote.health import UpstreamHealth
from dragoman.client.credentials import CredentialsFactory
from dragoman.client.http import complete
from dragoman.config import Upstream
from dragoman.model.errors import A2AError
from dragoman.model.task import Task, TaskHead, TaskStatus
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.upstreams")

CONTEXTS_MAX = 10_000
"""The most conversations whose upstream ids are kept in memory; the store has all."""


class UpstreamRoute:
    """The route to the agent of the table `upstream`. Belongs to the loop that opens it.

    `access` is the way there, `endpoint` the card and the connection, `health` says whether calls get through, and
    `contexts` are the conversations.
    """

    __slots__ = ("_group", "_watching", "access", "contexts", "endpoint", "health", "name")

    def __init__(
        self,
        name: str,
        upstream: Upstream,
        make_credentials: CredentialsFactory,
        clock: Callable[[], float],
    ) -> None:
        breaker = Breaker(upstream.failures, upstream.pause_s, clock)
        keys = CardKeys(upstream.key_places, clock) if upstream.key_places else None
        self.name = name
        self.access = UpstreamAccess(upstream, make_credentials, keys)
        self.health = UpstreamHealth(name, breaker)
        self.endpoint = UpstreamEndpoint(name, self.access, self.health)
        self.contexts = Contexts()
        self._group: JobGroup | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self, group: JobGroup) -> None:
        """Read the card within a bounded time, and keep it up to date from now on."""
        self._group = group
        await self.endpoint.open()
        self._watching = group.keep(f"upstream: {self.name}", self.endpoint.watch)

    async def close(self) -> None:
        """Stop watching the card, and close all connections."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._group = None
        await self.access.close()
        self.endpoint.close()

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

    async def cancel_task(self, task_id: str) -> Task | A2AError | Unfound | None:
        """Cancel the upstream's task, and return its answer, or why there is none. The upstream may refuse."""
        try:
            connection = await self.endpoint.connection()
            return None if connection is None else await connection.cancel(task_id)
        except (A2AError, *UNFOUND) as error:
            log.info("upstream %s: its task %s was not canceled: %s", self.name, task_id, self.access.describe(error))
            return error

    async def read_status(self, task_id: str) -> TaskStatus | str:
        """Read the status of the upstream's task, without secrets; a text says why it cannot be read."""
        try:
            connection = await self.endpoint.connection()
            if connection is None:
                return "it speaks no A2A, and so has no tasks"
            status = (await connection.get(task_id)).status
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
        self._group.create_task(work, name=f"beside {self.name}")
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
