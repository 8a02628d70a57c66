"""Overview: what a server serves and how much it has to do, for an operator.

Invariant: it only reads. Numbers of tasks come from the store's counters, so that they cost no more for more tasks, and
count the tasks of all replicas; what agents, workers and upstreams do is what this process knows.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec.structs import asdict

from dragoman.admin.overview import (
    AgentFacts,
    AgentLine,
    AgentLines,
    KnownWorker,
    ReplicaLine,
    ReplicaLines,
    StateLine,
    Stats,
    UpstreamLine,
    WorkerLine,
    WorkerLines,
    WorkersHere,
)
from dragoman.admin.tasks import STATES_BY_WORD
from dragoman.engine.upstream_notes import UpstreamNotes
from dragoman.model.ids import timestamp
from dragoman.model.task import TaskStatus
from dragoman.store.api import ListQuery, Owners, Store
from dragoman.store.figures import OpenTasks, StoreFigures
from dragoman.store.usage import DAY_MS
from dragoman.telemetry.pulse import Pulse


class ServerFacts(Protocol):
    """The facts that the server itself knows at this moment."""

    def agents(self) -> tuple[AgentFacts, ...]:
        """The agents that are served."""
        ...

    def workers(self) -> tuple[WorkersHere, ...]:
        """Those that workers serve."""
        ...

    async def known_workers(self) -> tuple[KnownWorker, ...]:
        """The workers of all these, as every server on the store knows them. Raises StoreError."""
        ...

    def upstreams(self) -> tuple[UpstreamLine, ...]:
        """Those of other servers."""
        ...

    def open_streams(self) -> int:
        """How many streams are open here."""
        ...

    async def ask_upstream(self, agent: str, notes: UpstreamNotes) -> TaskStatus | str:
        """Ask the upstream for the status of its task, which has these notes. A text says why there is no answer."""
        ...


class Overview:
    """Reads the numbers of a store. `figures` are those that know of the runs here; default: those of the store."""

    def __init__(
        self,
        store: Store,
        pulse: Pulse | None = None,
        jobs: Callable[[], Mapping[str, str]] = dict,
        figures: Callable[[], Awaitable[StoreFigures]] | None = None,
    ) -> None:
        self._jobs = jobs
        self._store = store
        self._clock = store.clock
        self._pulse = pulse
        self._figures = figures or store.figures

    async def agents(self, facts: ServerFacts) -> AgentLines:
        """The agents with the numbers of their tasks. Raises StoreError."""
        found = await self._open_tasks()
        return AgentLines(
            agents=tuple(
                [await self._agent(each, found.get(each.id) or OpenTasks(agent=each.id)) for each in facts.agents()]
            )
        )

    async def workers(self, facts: ServerFacts) -> WorkerLines:
        """The agents that workers serve, with the numbers of their tasks, and the workers. Raises StoreError."""
        found = await self._open_tasks()
        lines = []
        for each in facts.workers():
            tasks = found.get(each.agent) or OpenTasks(agent=each.agent)
            lines.append(
                WorkerLine(
                    **asdict(each), running=tasks.running, queued=tasks.queued, oldest_queued_s=self._waited_s(tasks)
                )
            )
        return WorkerLines(workers=tuple(lines), known=await facts.known_workers())

    async def replicas(self) -> ReplicaLines:
        """The servers that are alive on the store. Raises StoreError."""
        found = await self._store.replicas.all()
        return ReplicaLines(
            replicas=tuple(
                ReplicaLine(
                    id=one.id,
                    address=one.address,
                    agents=one.agents,
                    started_at=timestamp(one.started_ms),
                    silent=one.silent,
                )
                for one in found
            )
        )

    async def stats(self, open_streams: int = 0) -> Stats:
        """The numbers of the store and of this process, where so many streams are open. Raises StoreError."""
        outbox = self._store.outbox
        pending, dead = await outbox.owed_count()
        outage, pulse = self._store.writing.outage, self._pulse
        figures = await self._figures()
        today = self._clock.now_ms() // DAY_MS
        replicas = await self._store.replicas.all()
        used = await self._store.usage.days(today, today)
        reported = any(each.total_tokens for each in used)
        return Stats(
            tasks={word: await self._count(None, word) for word in STATES_BY_WORD if word != "unspecified"},
            queued=sum(each.queued for each in figures.open_tasks),
            running=sum(each.running for each in figures.open_tasks),
            sleeping=sum(each.sleeping for each in figures.open_tasks),
            waiting=sum(each.waiting for each in figures.open_tasks),
            webhook_calls_pending=pending,
            webhook_calls_paused=await outbox.paused_count(),
            webhook_calls_dead=dead,
            replicas=len(replicas),
            silent_replicas=sum(one.silent for one in replicas),
            writes=self._store.writing.writes,
            failed_writes=self._store.writing.failed_writes,
            outage=None if outage is None else outage.reason,
            store_bytes=figures.size_bytes,
            state={
                each.kind: StateLine(each.scopes, each.entries, each.bytes)
                for each in await self._store.state.count_kinds()
            },
            input_tokens_today=sum(each.input_tokens for each in used) if reported else None,
            output_tokens_today=sum(each.output_tokens for each in used) if reported else None,
            streams=None if pulse is None else open_streams,
            requests_a_minute=() if pulse is None else pulse.requests_a_minute(),
            tasks_a_minute={} if pulse is None else pulse.tasks_a_minute(),
            first_event=None if pulse is None else pulse.first_events(),
            completion=None if pulse is None else pulse.completions(),
            commit=None if pulse is None else pulse.commits(),
            webhook_calls={} if pulse is None else pulse.webhook_calls(),
            jobs=self._jobs(),
        )

    async def _open_tasks(self) -> dict[str, OpenTasks]:
        return {tasks.agent: tasks for tasks in (await self._figures()).open_tasks}

    def _waited_s(self, tasks: OpenTasks) -> float | None:
        """How long the longest-waiting queued task has waited."""
        since_ms = tasks.queued_since_ms
        return None if since_ms is None else max(0, self._clock.now_ms() - since_ms) / 1000

    async def _agent(self, agent: AgentFacts, tasks: OpenTasks) -> AgentLine:
        return AgentLine(
            **asdict(agent),
            queued=tasks.queued,
            running=tasks.running,
            sleeping=tasks.sleeping,
            waiting=tasks.waiting,
            total=await self._count(agent.id, None),
            oldest_queued_s=self._waited_s(tasks),
        )

    async def _count(self, agent: str | None, word: str | None) -> int:
        state = None if word is None else STATES_BY_WORD[word]
        query = ListQuery(owner=Owners.ALL, agent=agent, state=state, limit=1, max_bytes=1)
        return (await self._store.list_rows(query)).total
