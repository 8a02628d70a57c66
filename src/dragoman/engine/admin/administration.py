"""Administration: what an operator reads across principals, noted in the audit trail; and the changes beside it.

Invariant: every access has an entry in the trail under the operator's own name, also when the change itself is carried
out as a call of the task's owner. Only bindings that have admitted an operator may call it. The operators of one team
are answered from a store that has only what is the team's.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from dragoman.admin import logs, overview
from dragoman.admin.logs import LogQuery
from dragoman.admin.question import Answer, AnyQuestion, Given, Question
from dragoman.bus.api import Bus, NoBus
from dragoman.config.prices import NO_PRICES, Prices
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.engine.admin.answers import Asked, Functions
from dragoman.engine.admin.bulk_jobs import BulkRunner
from dragoman.engine.admin.change_feeds import ChangeFeed, ChangeReader
from dragoman.engine.admin.change_hints import ChangeHints
from dragoman.engine.admin.feeds import LogFeed
from dragoman.engine.admin.folded_places import Linked, unlinked
from dragoman.engine.admin.keys import NO_TEAMS, Mint, TeamReach
from dragoman.engine.admin.operator_desk import OperatorDesk
from dragoman.engine.admin.overview import ServerFacts
from dragoman.engine.admin.records import FOLLOW_EVENTS, FOLLOW_TASK
from dragoman.engine.admin.team_facts import TeamFacts
from dragoman.engine.admin.team_store import narrow_store
from dragoman.engine.announcements import Announcer
from dragoman.engine.erasures import Erasures
from dragoman.engine.handler import Handler
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.key_stops import KeyStops
from dragoman.engine.operated_tasks import OperatedTasks
from dragoman.engine.record_reader import RecordReader
from dragoman.engine.spending import NO_RULES, SpendingRules
from dragoman.model.errors import Forbidden
from dragoman.store.api import Store
from dragoman.store.blobs.api import BlobStore
from dragoman.telemetry.pulse import Pulse


class Administration:
    """Answers operators, those of the server at one desk, and those of each team at another.

    `mint` makes fresh keys. `linked` replaces the bytes of large files by URLs. The `bus`, which must not be open yet,
    tells of other replicas' commits. The `announcer` renders deliveries again, and has them sent. `jobs` returns those
    that have failed lately. `blobs` has the large files, if they are kept elsewhere. `teams` are those that
    there are. `records` writes what operators set. `further` are functions of parts that stand above the engine.
    `rules` are the present budgets. `streams` has the functions of the questions that open a stream.
    """

    def __init__(
        self,
        handler: Handler,
        operated: OperatedTasks,
        store: Store,
        trail: Trail,
        mint: Mint,
        prices: Prices = NO_PRICES,
        linked: Linked = unlinked,
        keepalive_s: float = 15.0,
        pulse: Pulse | None = None,
        bus: Bus | None = None,
        announcer: Announcer | None = None,
        jobs: Callable[[], Mapping[str, str]] = dict,
        stops: KeyStops | None = None,
        erasures: Erasures | None = None,
        blobs: BlobStore | None = None,
        teams: TeamReach = NO_TEAMS,
        records: RecordReader | None = None,
        further: Functions | None = None,
        rules: Callable[[], SpendingRules] = lambda: NO_RULES,
    ) -> None:
        self._notes = AccessNotes(trail, store.clock)
        self._hints = hints = ChangeHints(store, NoBus() if bus is None else bus)
        self.bulk = BulkRunner(store)
        open_desk = partial(
            OperatorDesk,
            handler=handler,
            notes=self._notes,
            mint=mint,
            prices=prices,
            linked=linked,
            announcer=announcer,
            stops=stops or KeyStops(store.shared, store.clock),
            erasures=erasures or Erasures(store.shared, store.clock),
            blobs=blobs,
            records=records or RecordReader(store, shared=store.replicas.shared),
            rules=rules,
            jobs_of_many=self.bulk,
        )
        changes = ChangeReader(store, hints, keepalive_s)
        self._of_server = open_desk(store, operated, changes, teams, pulse=pulse, jobs=jobs, further=further)
        self.tasks = self._of_server.tasks
        self._of_teams: dict[str, OperatorDesk] = {}
        """The desks of those teams whose operators have asked something."""
        self._opened = asyncio.Queue[OperatorDesk]()
        """Those that were opened since `run` began."""

        def open_for_team(team: str) -> OperatorDesk:
            own = narrow_store(store, team)
            changes = ChangeReader(own, hints, keepalive_s, of_team=True)
            return open_desk(own, operated.of_team(own, team), changes, {team: teams.get(team)})

        self._open_for_team = open_for_team
        self.streams: Functions = {
            overview.FOLLOW_CHANGES.name: self._follow_changes,
            logs.READ_LOG.name: self._follow_log,
        }

    async def answer(self, question: Question[Given, Answer], asked: Asked[Given]) -> Answer:
        """Answer a question, or carry out an act. Raises A2AError."""
        self.admit(question, asked.operator)
        return await self._desk(asked.operator).answer(question, asked)

    def admit(self, question: AnyQuestion, operator: Operator) -> None:
        """Raises Forbidden for a question about the whole server that an operator of one team asks."""
        if operator.team and not question.of_teams:
            action = question.action if isinstance(question.action, str) else ""
            self._notes.note(operator, action or question.name, reason=Forbidden.__name__)
            raise Forbidden(
                f"this is about the whole server, and your key or token is that of an operator of the team "
                f"{operator.team}: ask an operator of the server"
            )

    def _desk(self, operator: Operator) -> OperatorDesk:
        """The desk of an operator: that of the server, or of the operator's team."""
        if not operator.team:
            return self._of_server
        desk = self._of_teams.get(operator.team)
        if desk is None:
            desk = self._of_teams[operator.team] = self._open_for_team(operator.team)
            desk.serve(TeamFacts(lambda: self._of_server.facts, operator.agents))
            self._opened.put_nowait(desk)
        return desk

    async def _follow_changes(self, asked: Asked[None]) -> ChangeFeed:
        """Return the changes from now on, or from a position in an earlier feed. Raises A2AError."""
        self.admit(overview.FOLLOW_CHANGES, asked.operator)
        feed = self._desk(asked.operator).changes.open(asked.position)
        self._notes.note(asked.operator, FOLLOW_EVENTS)
        return feed

    async def _follow_log(self, asked: Asked[LogQuery]) -> LogFeed:
        """Return the events of a task after the position or seq that was given, and those to come. Raises A2AError."""
        self.admit(logs.READ_LOG, asked.operator)
        work = self._desk(asked.operator).follow_log(asked)
        return await self._notes.noted(asked.operator, FOLLOW_TASK, work, task_id=asked.id)

    def serve(self, facts: ServerFacts) -> None:
        """Set what the server knows, at the start and after a reload."""
        self._of_server.serve(facts)

    def stop(self) -> None:
        """End all feeds of changes, because the server stops."""
        for desk in self._desks():
            desk.changes.stop()

    async def hear(self) -> None:
        """Hear for ever that something has changed, here and on other replicas."""
        await self._hints.run()

    async def run(self) -> None:
        """Read for ever what changes, while somebody follows it, and for each team apart."""
        async with asyncio.TaskGroup() as group:
            for desk in self._desks():
                group.create_task(desk.changes.run())
            self._opened = asyncio.Queue()
            while True:
                desk = await self._opened.get()
                group.create_task(desk.changes.run())

    def _desks(self) -> tuple[OperatorDesk, ...]:
        return self._of_server, *self._of_teams.values()
