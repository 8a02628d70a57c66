"""Administration: what an operator reads across principals, noted in the audit trail; and the changes beside it.

Invariant: every access has an entry in the trail under the operator's own name, also when the change itself is carried
out as a call of the task's owner. Only bindings that have admitted an operator may call it.
"""

from collections.abc import Callable, Mapping

from dragoman.admin import logs, overview, tasks
from dragoman.admin.logs import LogQuery
from dragoman.admin.overview import UpstreamLines
from dragoman.admin.question import Answer, Given, Question
from dragoman.bus.api import Bus, NoBus
from dragoman.config.prices import NO_PRICES, Prices
from dragoman.engine.admin.access import AccessNotes
from dragoman.engine.admin.answers import Answers, Asked, Functions, bind
from dragoman.engine.admin.change_feeds import ChangeFeed, ChangeReader
from dragoman.engine.admin.change_hints import ChangeHints
from dragoman.engine.admin.conversations import list_conversations
from dragoman.engine.admin.delegation_tree import DelegationTrees
from dragoman.engine.admin.deliveries import DeliveryAdministration
from dragoman.engine.admin.feeds import LogFeed, follow_log
from dragoman.engine.admin.folded_places import FoldedPlaces, Linked, unlinked
from dragoman.engine.admin.inspection import Inspector
from dragoman.engine.admin.keys import KeyChanges, Mint
from dragoman.engine.admin.moments import read_moment
from dragoman.engine.admin.overview import Overview, ServerFacts
from dragoman.engine.admin.playback import read_content
from dragoman.engine.admin.shared_reads import SharedReads
from dragoman.engine.admin.stored_answers import stored_answers
from dragoman.engine.admin.task_changes import TaskChanges
from dragoman.engine.admin.upstream_questions import ask_upstream
from dragoman.engine.admin.wire import read_wire
from dragoman.engine.announcements import Announcer
from dragoman.engine.handler import Handler
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.key_stops import KeyStops
from dragoman.engine.operated_tasks import OperatedTasks
from dragoman.store.api import Store
from dragoman.telemetry.pulse import Pulse


class Administration:
    """Answers operators, each question of the table by the function that is bound to it here.

    `mint` makes fresh keys. `linked` replaces the bytes of large files by URLs. The `bus`, which must not be open yet,
    tells of other replicas' commits. The `announcer` renders deliveries again, and has them sent. `jobs` returns those
    that have failed lately. `streams` has the functions of the questions that open a stream.
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
    ) -> None:
        self._store = store
        self._operated = operated
        self._facts: ServerFacts
        self._notes = AccessNotes(trail, store.clock)
        self._hints = ChangeHints(store, NoBus() if bus is None else bus)
        self._changes = ChangeReader(store, self._hints, keepalive_s)
        places = FoldedPlaces(store, linked, operated.known_record)
        inspector = Inspector(store, places, operated.idle)
        self.tasks = TaskChanges(handler, operated, store, inspector, self._notes)
        keys = KeyChanges(store, mint, stops or KeyStops(store.shared, store.clock))
        webhooks = DeliveryAdministration(store, announcer)
        stored = stored_answers(store, inspector, keys, webhooks, prices)
        figures = Overview(store, pulse, jobs, operated.figures)
        served = self._served_answers(places, figures)
        self._answers = Answers(stored | served, self._notes, SharedReads())
        self.streams: Functions = {
            overview.FOLLOW_CHANGES.name: self._follow_changes,
            logs.READ_LOG.name: self._follow_log,
        }

    def _served_answers(self, places: FoldedPlaces, figures: Overview) -> Functions:
        """The functions of the questions that only a server answers."""
        store, changes = self._store, self.tasks
        trees = DelegationTrees(store)
        return dict(
            (
                bind(tasks.LIST_CONVERSATIONS, lambda asked: list_conversations(store, asked.given)),
                bind(
                    logs.READ_CONTENT,
                    lambda asked: read_content(places, asked.id, asked.given.after, asked.given.limit),
                ),
                bind(logs.READ_MOMENT, lambda asked: read_moment(places, asked.id, asked.given.seq)),
                bind(
                    logs.READ_WIRE,
                    lambda asked: read_wire(
                        places, asked.id, asked.given.dialects.split(","), asked.given.after, asked.given.limit
                    ),
                ),
                bind(
                    logs.READ_TREE,
                    lambda asked: trees.read(asked.id, {each.agent: each for each in self._facts.upstreams()}),
                ),
                bind(tasks.ASK_UPSTREAM, lambda asked: ask_upstream(places, self._facts, asked.id)),
                bind(tasks.ANSWER_TASK, lambda asked: changes.answer(asked.operator, asked.id, asked.given)),
                bind(tasks.SEND_AGAIN, lambda asked: changes.send_again(asked.operator, asked.id)),
                bind(tasks.CANCEL_TASK, lambda asked: changes.cancel(asked.operator, asked.id, asked.given.reason)),
                bind(tasks.CANCEL_TASKS, lambda asked: changes.cancel_many(asked.operator, asked.given)),
                bind(
                    tasks.DELETE_TASK, lambda asked: changes.delete(asked.operator, asked.id, force=asked.given.force)
                ),
                bind(tasks.DELETE_TASKS, lambda asked: changes.delete_many(asked.operator, asked.given)),
                bind(overview.LIST_AGENTS, lambda _: figures.agents(self._facts)),
                bind(overview.LIST_WORKERS, lambda _: figures.workers(self._facts)),
                bind(overview.LIST_UPSTREAMS, self._upstreams),
                bind(overview.LIST_REPLICAS, lambda _: figures.replicas()),
                bind(overview.SHOW_STATS, lambda _: figures.stats(self._facts.open_streams())),
            )
        )

    async def _upstreams(self, _: Asked[None]) -> UpstreamLines:
        return UpstreamLines(upstreams=self._facts.upstreams())

    async def answer(self, question: Question[Given, Answer], asked: Asked[Given]) -> Answer:
        """Answer a question, or carry out an act. Raises A2AError."""
        return await self._answers.answer(question, asked)

    async def _follow_changes(self, asked: Asked[None]) -> ChangeFeed:
        """Return the changes from now on, or from a position in an earlier feed. Raises A2AError."""
        feed = self._changes.open(asked.position)
        self._notes.note(asked.operator, "events.follow")
        return feed

    async def _follow_log(self, asked: Asked[LogQuery]) -> LogFeed:
        """Return the events of a task after the position or seq that was given, and those to come. Raises A2AError."""
        work = follow_log(self._store, self._operated, asked.id, asked.position or str(asked.given.after))
        return await self._notes.noted(asked.operator, "tasks.follow", work, task_id=asked.id)

    def serve(self, facts: ServerFacts) -> None:
        """Set what the server knows, at the start and after a reload."""
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
