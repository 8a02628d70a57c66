"""Administration: what an operator reads across principals, noted in the audit trail; and the changes beside it.

Invariant: every access has an entry in the trail under the operator's own name, also when the change itself is carried
out as a call of the task's owner. Only bindings that have admitted an operator may call it.
"""

from collections.abc import Callable, Mapping, Sequence

from dragoman.bus.api import Bus, NoBus
from dragoman.config.prices import NO_PRICES, Prices
from dragoman.engine.admin.access import AccessNotes, OperatedEngine, Operator
from dragoman.engine.admin.change_feeds import ChangeFeed, ChangeReader
from dragoman.engine.admin.change_hints import ChangeHints
from dragoman.engine.admin.conversations import ConversationLines, ConversationQuery, Conversations
from dragoman.engine.admin.delegation_tree import DelegationTrees, Tree
from dragoman.engine.admin.deliveries import DeliveryAdministration
from dragoman.engine.admin.feeds import LogFeed
from dragoman.engine.admin.folded_places import FoldedPlaces, Linked, unlinked
from dragoman.engine.admin.inspection import Inspector, TaskFilter, TaskLines, TaskOrder, TaskReport, Timeline
from dragoman.engine.admin.keys import KeyAdministration, KeyChanges, Mint
from dragoman.engine.admin.moments import Moment, Moments
from dragoman.engine.admin.overview import (
    AgentLines,
    Overview,
    ReplicaLines,
    ServerFacts,
    Stats,
    UpstreamLines,
    WorkerLines,
)
from dragoman.engine.admin.playback import Playback, Recording
from dragoman.engine.admin.records import Records
from dragoman.engine.admin.shared_reads import SharedReads
from dragoman.engine.admin.task_changes import TaskChanges
from dragoman.engine.admin.upstream_questions import UpstreamAnswer, UpstreamQuestions
from dragoman.engine.admin.usage_report import UsageQuery, UsageReport, UsageReporter
from dragoman.engine.admin.wire import Wire, WireReader
from dragoman.engine.announcements import Announcer
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.key_stops import KeyStops
from dragoman.model.ids import Clock
from dragoman.model.task import TERMINAL
from dragoman.store.api import Store
from dragoman.telemetry.pulse import Pulse


class Administration:
    """Answers operators. `tasks` changes tasks, `keys` the keys, `webhooks` deliveries; `records` is the audit trail.

    `mint` makes fresh keys. `linked` replaces the bytes of large files by URLs. The `bus`, which must not be open yet,
    tells of other replicas' commits. The `announcer` renders deliveries again, and has them sent. `jobs` returns those
    that have failed lately.
    """

    def __init__(
        self,
        engine: OperatedEngine,
        store: Store,
        trail: Trail,
        clock: Clock,
        mint: Mint,
        prices: Prices = NO_PRICES,
        linked: Linked = unlinked,
        keepalive_s: float = 15.0,
        pulse: Pulse | None = None,
        bus: Bus | None = None,
        announcer: Announcer | None = None,
        jobs: Callable[[], Mapping[str, str]] = dict,
        stops: KeyStops | None = None,
    ) -> None:
        self._notes = AccessNotes(trail, clock)
        places = FoldedPlaces(store, linked, engine.known_record)
        self._inspector = Inspector(store, clock, places, engine.idle)
        self._conversations = Conversations(store)
        self._overview = Overview(store, clock, pulse, jobs, engine.figures)
        self._usage = UsageReporter(store, clock, prices)
        self._playback = Playback(store, linked)
        self._moments = Moments(store, places)
        self._wire = WireReader(store, linked, places)
        self._trees = DelegationTrees(store)
        self._questions = UpstreamQuestions(store, clock, places)
        self._engine = engine
        self._store = store
        self._shared = SharedReads()
        self._facts: ServerFacts
        self._hints = ChangeHints(store, NoBus() if bus is None else bus)
        self._changes = ChangeReader(store, clock, self._hints, keepalive_s)
        self.keys = KeyAdministration(
            KeyChanges(store, clock, mint, stops or KeyStops(store.shared, clock)), self._notes
        )
        self.records = Records(store, self._notes)
        self.webhooks = DeliveryAdministration(store, self._notes, clock, announcer)
        self.tasks = TaskChanges(engine, store, self._inspector, self._notes)

    async def list_tasks(
        self, operator: Operator, wanted: TaskFilter, limit: int, cursor: str, order: TaskOrder | None = None
    ) -> TaskLines:
        """A page of tasks. Raises A2AError."""
        asked = ("tasks", wanted, limit, cursor, order)
        work = self._shared.read(asked, lambda: self._inspector.list(wanted, limit, cursor, order))
        return await self._notes.noted(operator, "tasks.list", work)

    async def list_conversations(self, operator: Operator, query: ConversationQuery) -> ConversationLines:
        """A page of conversations. Raises A2AError."""
        work = self._shared.read(query, lambda: self._conversations.list(query))
        return await self._notes.noted(operator, "conversations.list", work)

    async def show_task(self, operator: Operator, task_id: str) -> TaskReport:
        """One task. Raises A2AError."""
        work = self._shared.read(("task", task_id), lambda: self._inspector.show(task_id))
        return await self._notes.noted(operator, "tasks.show", work, task_id=task_id)

    async def read_log(self, operator: Operator, task_id: str, after: int, limit: int) -> Timeline:
        """The events of a task after seq `after`. Raises A2AError."""
        work = self._inspector.log(task_id, after, limit)
        return await self._notes.noted(operator, "tasks.log", work, task_id=task_id)

    async def follow_log(self, operator: Operator, task_id: str, after: str) -> LogFeed:
        """The events of a task after the id `after`, and those to come. Raises A2AError."""
        return await self._notes.noted(operator, "tasks.follow", self._follow(task_id, after), task_id=task_id)

    async def _follow(self, task_id: str, after: str) -> LogFeed:
        known = await self._store.head(task_id)
        feed = LogFeed(await self._engine.follow(task_id, after))
        if known is not None and known[2] in TERMINAL:
            feed.ended(known[2])
        return feed

    async def follow_changes(self, operator: Operator, position: str | None) -> ChangeFeed:
        """Return the changes from now on, or from a position in an earlier feed. Raises A2AError."""
        feed = self._changes.open(position)
        self._notes.note(operator, "events.follow")
        return feed

    def serve(self, facts: ServerFacts) -> None:
        """Set what the server knows, also for the feeds that are open, at the start and after a reload."""
        self._facts = facts
        self._changes.serve(facts)

    def stop(self) -> None:
        """End all feeds of changes, because the server stops."""
        self._changes.stop()

    async def hear(self) -> None:
        """Hear for ever that something has changed, here and on other replicas."""
        await self._hints.run()

    async def run(self) -> None:
        """Read for ever what changes, while somebody follows it."""
        await self._changes.run()

    async def read_content(self, operator: Operator, task_id: str, after: int, limit: int) -> Recording:
        """The events of a task after seq `after`, with their content. Raises A2AError."""
        work = self._playback.content(task_id, after, limit)
        return await self._notes.noted(operator, "tasks.content", work, task_id=task_id)

    async def read_moment(self, operator: Operator, task_id: str, seq: int | None) -> Moment:
        """The task after its event `seq`, or as it stands. Raises A2AError."""
        work = self._shared.read(("moment", task_id, seq), lambda: self._moments.read(task_id, seq))
        return await self._notes.noted(operator, "tasks.content", work, task_id=task_id)

    async def read_tree(self, operator: Operator, task_id: str) -> Tree:
        """The task with those that were delegated from it. Raises A2AError."""
        upstreams = {each.agent: each for each in self._facts.upstreams()}
        asked = ("tree", task_id, frozenset(upstreams))
        work = self._shared.read(asked, lambda: self._trees.read(task_id, upstreams))
        return await self._notes.noted(operator, "tasks.tree", work, task_id=task_id)

    async def ask_upstream(self, operator: Operator, task_id: str, facts: ServerFacts) -> UpstreamAnswer:
        """Ask the agent of another server how its task stands that it made of this one. Raises A2AError."""
        return await self._notes.noted(
            operator,
            "tasks.ask-upstream",
            self._questions.ask(task_id, facts),
            task_id=task_id,
            made=lambda answer: answer.agent,
        )

    async def read_wire(
        self, operator: Operator, task_id: str, dialects: Sequence[str], after: int, limit: int
    ) -> Wire:
        """The events of a task after seq `after`, as streams of `dialects` carry them. Raises A2AError."""
        asked = ("wire", task_id, tuple(dialects), after, limit)
        work = self._shared.read(asked, lambda: self._wire.read(task_id, dialects, after, limit))
        return await self._notes.noted(operator, "tasks.wire", work, task_id=task_id)

    async def list_agents(self, operator: Operator, facts: ServerFacts) -> AgentLines:
        """The agents, with the numbers of their tasks. Raises A2AError."""
        work = self._shared.read("agents", lambda: self._overview.agents(facts))
        return await self._notes.noted(operator, "agents.list", work)

    async def list_workers(self, operator: Operator, facts: ServerFacts) -> WorkerLines:
        """The agents that workers serve, and the workers. Raises A2AError."""
        work = self._shared.read("workers", lambda: self._overview.workers(facts))
        return await self._notes.noted(operator, "workers.list", work)

    async def list_upstreams(self, operator: Operator, facts: ServerFacts) -> UpstreamLines:
        """The agents of other servers."""
        self._notes.note(operator, "upstreams.list")
        return UpstreamLines(upstreams=facts.upstreams())

    async def list_replicas(self, operator: Operator) -> ReplicaLines:
        """The servers on the store. Raises A2AError."""
        return await self._notes.noted(operator, "replicas.list", self._overview.replicas())

    async def show_stats(self, operator: Operator) -> Stats:
        """How much there is to do. Raises A2AError."""
        work = self._shared.read("stats", lambda: self._overview.stats(self._facts.open_streams()))
        return await self._notes.noted(operator, "stats.show", work)

    async def show_usage(self, operator: Operator, query: UsageQuery) -> UsageReport:
        """Return the usage of callers, in groups. Raises A2AError."""
        return await self._notes.noted(operator, "usage.show", self._usage.report(query))
