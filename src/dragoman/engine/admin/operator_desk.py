"""OperatorDesk: the functions that answer operators from one store: that of the server, or what one team has of it.

Invariant: a desk reads and changes nothing but what its store has, so that the desk of a team knows of no other one.
Whom it answers is decided before: see `engine.admin.administration`.
"""

from collections.abc import Callable, Mapping

from dragoman.admin import bulk, logs, overview, principals, search, switches, tasks
from dragoman.admin.bulk import BulkJob, BulkRequest
from dragoman.admin.logs import LogQuery
from dragoman.admin.overview import UpstreamLines
from dragoman.admin.question import Answer, Given, Question
from dragoman.config.prices import Prices
from dragoman.engine.admin.access import AccessNotes, store_away
from dragoman.engine.admin.answers import Answers, Asked, Functions, bind
from dragoman.engine.admin.bulk_jobs import BulkRunner
from dragoman.engine.admin.change_feeds import ChangeReader
from dragoman.engine.admin.conversations import list_conversations
from dragoman.engine.admin.delegation_tree import DelegationTrees
from dragoman.engine.admin.deliveries import DeliveryAdministration
from dragoman.engine.admin.feeds import LogFeed, follow_log
from dragoman.engine.admin.folded_places import FoldedPlaces, Linked
from dragoman.engine.admin.inbox import list_inbox
from dragoman.engine.admin.inspection import Inspector, whose_of
from dragoman.engine.admin.keys import KeyChanges, Mint, TeamReach
from dragoman.engine.admin.moments import read_moment
from dragoman.engine.admin.overview import Overview, ServerFacts
from dragoman.engine.admin.playback import read_content
from dragoman.engine.admin.principal_deletion import PrincipalEraser
from dragoman.engine.admin.principal_export import PrincipalExporter
from dragoman.engine.admin.search import search_all
from dragoman.engine.admin.shared_reads import SharedReads
from dragoman.engine.admin.stored_answers import stored_answers
from dragoman.engine.admin.switch_changes import SwitchChanges
from dragoman.engine.admin.task_changes import TaskChanges
from dragoman.engine.admin.upstream_questions import ask_upstream
from dragoman.engine.admin.wire import read_wire
from dragoman.engine.admin.wire_summary import WireSummaries
from dragoman.engine.announcements import Announcer
from dragoman.engine.erasures import Erasures
from dragoman.engine.handler import Handler
from dragoman.engine.key_stops import KeyStops
from dragoman.engine.operated_tasks import OperatedTasks
from dragoman.engine.record_reader import RecordReader
from dragoman.engine.spending import SpendingRules
from dragoman.store.api import Store, StoreError
from dragoman.store.blobs.api import BlobStore
from dragoman.telemetry.pulse import Pulse


class OperatorDesk:
    """Answers the questions of the table about what a store has. `serve` comes before the first one.

    `operated` are the tasks of the store, and `changes` reads what changes in it. `teams` are those that
    there are, as keys are made for no other. `jobs_of_many` carries out bulk acts. `pulse`, `jobs` and `further` are as
    in `Administration`: those of a whole server.
    """

    def __init__(
        self,
        store: Store,
        operated: OperatedTasks,
        changes: ChangeReader,
        teams: TeamReach,
        *,
        handler: Handler,
        notes: AccessNotes,
        mint: Mint,
        prices: Prices,
        linked: Linked,
        announcer: Announcer | None,
        stops: KeyStops,
        erasures: Erasures,
        blobs: BlobStore | None,
        records: RecordReader,
        rules: Callable[[], SpendingRules],
        jobs_of_many: BulkRunner,
        pulse: Pulse | None = None,
        jobs: Callable[[], Mapping[str, str]] = dict,
        further: Functions | None = None,
    ) -> None:
        self.facts: ServerFacts
        self.changes = changes
        self._store = store
        self._operated = operated
        self._notes = notes
        self._bulk = jobs_of_many
        places = FoldedPlaces(store, linked, operated.known_record)
        inspector = Inspector(store, places, operated.idle)
        self.tasks = TaskChanges(handler, operated, store, inspector, notes)
        keys = KeyChanges(store, mint, stops, teams)
        self._eraser = PrincipalEraser(store, self.tasks, erasures, stops)
        self._switches = SwitchChanges(store, records)
        webhooks = DeliveryAdministration(store, announcer)
        stored = stored_answers(store, inspector, keys, webhooks, prices, PrincipalExporter(store, blobs), rules)
        served = self._served_answers(places, inspector, Overview(store, pulse, jobs, operated.figures))
        self._answers = Answers(stored | served | (further or {}), notes, SharedReads())

    def _served_answers(self, places: FoldedPlaces, inspector: Inspector, figures: Overview) -> Functions:
        """The functions of the questions that only a server answers."""
        store, changes = self._store, self.tasks
        trees, summaries = DelegationTrees(store), WireSummaries(places)
        return dict(
            (
                bind(tasks.LIST_CONVERSATIONS, lambda asked: list_conversations(store, asked.given)),
                bind(search.SEARCH, lambda asked: search_all(store, inspector, self.facts, asked.given)),
                bind(tasks.LIST_INBOX, lambda asked: list_inbox(places, inspector, asked.given)),
                bind(
                    logs.READ_CONTENT,
                    lambda asked: read_content(places, asked.id, asked.given.after, asked.given.limit),
                ),
                bind(logs.READ_MOMENT, lambda asked: read_moment(places, asked.id, asked.given.seq)),
                bind(
                    logs.READ_WIRE,
                    lambda asked: read_wire(
                        places,
                        asked.id,
                        asked.given.dialects.split(","),
                        asked.given.after,
                        asked.given.limit,
                        each=asked.given.each,
                    ),
                ),
                bind(logs.SUMMARIZE_WIRE, lambda asked: summaries.read(asked.id, asked.given.dialects.split(","))),
                bind(
                    logs.READ_TREE,
                    lambda asked: trees.read(asked.id, self.facts.upstreams()),
                ),
                bind(tasks.ASK_UPSTREAM, lambda asked: ask_upstream(places, self.facts, asked.id)),
                bind(tasks.ANSWER_TASK, lambda asked: changes.answer(asked.operator, asked.id, asked.given)),
                bind(tasks.SEND_AGAIN, lambda asked: changes.send_again(asked.operator, asked.id)),
                bind(tasks.CANCEL_TASK, lambda asked: changes.cancel(asked.operator, asked.id, asked.given.reason)),
                bind(tasks.CANCEL_TASKS, lambda asked: changes.cancel_many(asked.operator, asked.given)),
                bind(
                    tasks.DELETE_TASK, lambda asked: changes.delete(asked.operator, asked.id, force=asked.given.force)
                ),
                bind(tasks.DELETE_TASKS, lambda asked: changes.delete_many(asked.operator, asked.given)),
                bind(bulk.START_BULK, self._start_bulk),
                bind(bulk.LIST_BULK, self._bulk.list),
                bind(bulk.STOP_BULK, self._bulk.stop),
                bind(principals.DELETE_PRINCIPAL, self._eraser.delete),
                bind(switches.DRAIN_AGENT, self._switches.drain),
                bind(switches.DISABLE_AGENT, self._switches.disable),
                bind(switches.ENABLE_AGENT, self._switches.enable),
                bind(switches.DRAIN_MEMBER, self._switches.drain),
                bind(switches.DISABLE_MEMBER, self._switches.disable),
                bind(switches.ENABLE_MEMBER, self._switches.enable),
                bind(overview.LIST_AGENTS, lambda _: figures.agents(self.facts)),
                bind(overview.LIST_WORKERS, lambda _: figures.workers(self.facts)),
                bind(overview.LIST_UPSTREAMS, self._upstreams),
                bind(overview.LIST_REPLICAS, lambda _: figures.replicas()),
                bind(overview.SHOW_STATS, lambda _: figures.stats(self.facts.open_streams())),
            )
        )

    async def _start_bulk(self, asked: Asked[BulkRequest]) -> BulkJob:
        """Raises InvalidParams, UnsupportedOperation if too many jobs are under way, or Unavailable."""
        changes = self.tasks
        whose_of(asked.given.principal, asked.given.team)
        try:
            return await self._bulk.start(
                asked, lambda wanted: changes.match(wanted, wanted.states), changes.act, self._notes
            )
        except StoreError as error:
            raise store_away() from error

    async def _upstreams(self, _: Asked[None]) -> UpstreamLines:
        return UpstreamLines(upstreams=self.facts.upstreams())

    async def answer(self, question: Question[Given, Answer], asked: Asked[Given]) -> Answer:
        """Answer a question, or carry out an act. Raises A2AError."""
        return await self._answers.answer(question, asked)

    async def follow_log(self, asked: Asked[LogQuery]) -> LogFeed:
        """Return the events of a task after the position or seq that was given, and those to come. Raises A2AError."""
        return await follow_log(self._store, self._operated, asked.id, asked.position or str(asked.given.after))

    def serve(self, facts: ServerFacts) -> None:
        """Set what the server knows, at the start and after a reload."""
        self.facts = facts
        self._switches.serve(facts)
        self.changes.serve(facts)
