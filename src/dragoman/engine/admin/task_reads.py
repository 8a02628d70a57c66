"""TaskReads: what operators read of tasks, whoever owns them.

Invariant: each read has an entry in the audit trail, also one that is refused. Equal reads of a moment are made once.
"""

from collections.abc import Sequence

from dragoman.admin.logs import Moment, Recording, Timeline, Tree, Wire
from dragoman.admin.tasks import (
    ConversationLines,
    ConversationQuery,
    TaskFilter,
    TaskLines,
    TaskOrder,
    TaskReport,
    UpstreamAnswer,
)
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.engine.admin.conversations import Conversations
from dragoman.engine.admin.delegation_tree import DelegationTrees
from dragoman.engine.admin.feeds import LogFeed
from dragoman.engine.admin.folded_places import FoldedPlaces, Linked
from dragoman.engine.admin.inspection import Inspector
from dragoman.engine.admin.moments import Moments
from dragoman.engine.admin.overview import ServerFacts
from dragoman.engine.admin.playback import Playback
from dragoman.engine.admin.shared_reads import SharedReads
from dragoman.engine.admin.upstream_questions import UpstreamQuestions
from dragoman.engine.admin.wire import WireReader
from dragoman.engine.operated_tasks import OperatedTasks
from dragoman.model.ids import Clock
from dragoman.model.task import TERMINAL
from dragoman.store.api import Store


class TaskReads:
    """Reads tasks, their logs, and the conversations and delegations to which they belong."""

    __slots__ = (
        "_conversations",
        "_inspector",
        "_moments",
        "_notes",
        "_operated",
        "_playback",
        "_questions",
        "_shared",
        "_store",
        "_trees",
        "_wire",
    )

    def __init__(
        self,
        store: Store,
        operated: OperatedTasks,
        inspector: Inspector,
        places: FoldedPlaces,
        notes: AccessNotes,
        shared: SharedReads,
        clock: Clock,
        linked: Linked,
    ) -> None:
        self._store = store
        self._operated = operated
        self._inspector = inspector
        self._notes = notes
        self._shared = shared
        self._conversations = Conversations(store)
        self._playback = Playback(store, linked)
        self._moments = Moments(store, places)
        self._wire = WireReader(store, linked, places)
        self._trees = DelegationTrees(store)
        self._questions = UpstreamQuestions(store, clock, places)

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
        feed = LogFeed(await self._operated.follow(task_id, after))
        if known is not None and known[2] in TERMINAL:
            feed.ended(known[2])
        return feed

    async def read_content(self, operator: Operator, task_id: str, after: int, limit: int) -> Recording:
        """The events of a task after seq `after`, with their content. Raises A2AError."""
        work = self._playback.content(task_id, after, limit)
        return await self._notes.noted(operator, "tasks.content", work, task_id=task_id)

    async def read_moment(self, operator: Operator, task_id: str, seq: int | None) -> Moment:
        """The task after its event `seq`, or as it stands. Raises A2AError."""
        work = self._shared.read(("moment", task_id, seq), lambda: self._moments.read(task_id, seq))
        return await self._notes.noted(operator, "tasks.content", work, task_id=task_id)

    async def read_tree(self, operator: Operator, task_id: str, facts: ServerFacts) -> Tree:
        """The task with those that were delegated from it. Raises A2AError."""
        upstreams = {each.agent: each for each in facts.upstreams()}
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
