"""Administration: what an operator reads across principals, noted in the audit trail; and the changes beside it.

Invariant: every access has an entry in the trail under the operator's own name, also when the change itself is carried
out as a call of the task's owner. Only bindings that have admitted an operator may call it.
"""

from collections.abc import Callable, Mapping

from dragoman.admin.overview import AgentLines, ReplicaLines, Stats, UpstreamLines, WorkerLines
from dragoman.admin.usage import UsageQuery, UsageReport
from dragoman.bus.api import Bus, NoBus
from dragoman.config.prices import NO_PRICES, Prices
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.engine.admin.change_feeds import ChangeFeed, ChangeReader
from dragoman.engine.admin.change_hints import ChangeHints
from dragoman.engine.admin.deliveries import DeliveryAdministration
from dragoman.engine.admin.folded_places import FoldedPlaces, Linked, unlinked
from dragoman.engine.admin.inspection import Inspector
from dragoman.engine.admin.keys import KeyAdministration, KeyChanges, Mint
from dragoman.engine.admin.overview import Overview, ServerFacts
from dragoman.engine.admin.records import Records
from dragoman.engine.admin.shared_reads import SharedReads
from dragoman.engine.admin.task_changes import TaskChanges
from dragoman.engine.admin.task_reads import TaskReads
from dragoman.engine.admin.usage_report import UsageReporter
from dragoman.engine.announcements import Announcer
from dragoman.engine.handler import Handler
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.key_stops import KeyStops
from dragoman.engine.operated_tasks import OperatedTasks
from dragoman.model.ids import Clock
from dragoman.store.api import Store
from dragoman.telemetry.pulse import Pulse


class Administration:
    """Answers operators. `reads` is what they see of tasks, and `tasks` changes them; `keys` changes keys, `webhooks`
    deliveries; `records` is the audit trail.

    `mint` makes fresh keys. `linked` replaces the bytes of large files by URLs. The `bus`, which must not be open yet,
    tells of other replicas' commits. The `announcer` renders deliveries again, and has them sent. `jobs` returns those
    that have failed lately.
    """

    def __init__(
        self,
        handler: Handler,
        operated: OperatedTasks,
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
        self._notes = notes = AccessNotes(trail, clock)
        self._shared = shared = SharedReads()
        places = FoldedPlaces(store, linked, operated.known_record)
        inspector = Inspector(store, clock, places, operated.idle)
        self._overview = Overview(store, clock, pulse, jobs, operated.figures)
        self._usage = UsageReporter(store, clock, prices)
        self._hints = ChangeHints(store, NoBus() if bus is None else bus)
        self._changes = ChangeReader(store, clock, self._hints, keepalive_s)
        self.keys = KeyAdministration(KeyChanges(store, clock, mint, stops or KeyStops(store.shared, clock)), notes)
        self.records = Records(store, notes)
        self.webhooks = DeliveryAdministration(store, notes, clock, announcer)
        self.reads = TaskReads(store, operated, inspector, places, notes, shared, clock, linked)
        self.tasks = TaskChanges(handler, operated, store, inspector, notes)

    async def follow_changes(self, operator: Operator, position: str | None) -> ChangeFeed:
        """Return the changes from now on, or from a position in an earlier feed. Raises A2AError."""
        feed = self._changes.open(position)
        self._notes.note(operator, "events.follow")
        return feed

    def serve(self, facts: ServerFacts) -> None:
        """Set what the server knows, for the feeds that are open, at the start and after a reload."""
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

    async def show_stats(self, operator: Operator, facts: ServerFacts) -> Stats:
        """How much there is to do. Raises A2AError."""
        work = self._shared.read("stats", lambda: self._overview.stats(facts.open_streams()))
        return await self._notes.noted(operator, "stats.show", work)

    async def show_usage(self, operator: Operator, query: UsageQuery) -> UsageReport:
        """Return the usage of callers, in groups. Raises A2AError."""
        return await self._notes.noted(operator, "usage.show", self._usage.report(query))
