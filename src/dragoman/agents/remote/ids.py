"""The ids of one of our tasks at an upstream: of the task, of its conversation, and of its messages.

Invariant: the id of the upstream's task is written to the log before anything that follows from it. A message has the
same id each time it is sent.
"""

from hashlib import blake2b

from msgspec.structs import replace

from dragoman.agents.remote.card import is_dragoman
from dragoman.agents.remote.route import UpstreamRoute, is_new
from dragoman.client import Connection
from dragoman.dialects.extensions import ACTING, LINEAGE
from dragoman.engine.api import Run
from dragoman.engine.upstream_notes import UpstreamNotes, read_upstream_notes
from dragoman.model.acting_chain import Chain, metadata_of
from dragoman.model.message import Message, Role
from dragoman.model.operations import StreamMessage
from dragoman.model.task import TaskHead


class UpstreamIds:
    """The upstream's ids for `run`. `number` counts the messages: the one that is sent next, or is being sent."""

    __slots__ = ("_context_id", "_route", "_run", "number", "task_id")

    def __init__(self, run: Run, route: UpstreamRoute) -> None:
        self.task_id = ""
        self.number = 1
        self._context_id = ""
        self._run = run
        self._route = route

    def load_context(self, context_id: str) -> None:
        """Load the upstream's id of the conversation, as an earlier task noted it."""
        self._context_id = context_id

    def load(self, notes: UpstreamNotes, number: int) -> None:
        """Load the ids that an earlier run noted. `number` messages are recorded."""
        self.task_id, self._context_id = notes.task, notes.context
        self.number = number

    def begin_anew(self) -> None:
        """The first message is sent again: the upstream has named no task."""
        self.number = 1

    def begin_next(self) -> None:
        """The upstream has all recorded messages."""
        self.number += 1

    @property
    def message_id(self) -> str:
        """The id of the message with the current number."""
        return derive_message_id(self._run.head, self.number)

    def record_taken(self) -> None:
        """Record that the upstream has the message with the current number."""
        if self.number > 1:
            self._run.note(sent=str(self.number))
        self.number += 1

    def record_task(self, task_id: str, context_id: str, more: dict[str, str]) -> None:
        """Record the upstream's ids of the task and the conversation, with more notes."""
        self.task_id = task_id
        self._run.note(task=task_id, context=context_id or self._context_id, **more)
        self.keep_context(context_id)

    def keep_context(self, context_id: str) -> None:
        """Record the upstream's id of the conversation."""
        if context_id:
            self._route.contexts.keep(self._run.head, self._context_id, context_id)
            self._context_id = context_id

    async def build_send(self, message: Message, connection: Connection, chain: Chain) -> StreamMessage:
        """Build the operation that sends one of our messages under the upstream's ids.

        A Dragoman is told the acting `chain`. Others are not: it names parties that are none of their business.
        """
        run, route = self._run, self._route
        references: list[str] = []
        if message.reference_task_ids:
            named = [read_upstream_notes(record.note or {}) for record in await run.references()]
            references = [notes.task for notes in named if notes.task and route.made(notes)]
        if not self._context_id:
            known = route.contexts.of(run.head) or await self._context_before()
            self._context_id = known or derive_context_id(run.head)
        return make_send(
            run, message, connection, chain, self.message_id, self._context_id, self.task_id, tuple(references)
        )

    async def _context_before(self) -> str:
        """The upstream's own id of the conversation, as an earlier task noted it; empty if the upstream uses ours."""
        head = self._run.head
        if self._route.contexts.kept or is_new(head):
            return ""
        notes = read_upstream_notes(await self._run.noted())
        return notes.context if self._route.made(notes) else ""


def make_send(
    run: Run,
    message: Message,
    connection: Connection,
    chain: Chain,
    message_id: str,
    context_id: str,
    task_id: str = "",
    references: tuple[str, ...] = (),
) -> StreamMessage:
    """Make the operation that sends a message of `run` under these ids of the upstream. See `build_send`."""
    head, card, tongue = run.head, connection.card, connection.tongue
    metadata = {**(message.metadata or {}), LINEAGE: list(run.lineage)}
    metadata.pop(ACTING, None)
    if chain and card is not None and is_dragoman(card.whole):
        metadata[ACTING] = metadata_of(chain)
    sent = replace(
        message,
        message_id=message_id,
        role=Role.USER,
        context_id=context_id,
        task_id=task_id or None,
        reference_task_ids=references,
        metadata=metadata,
    )
    return StreamMessage(
        message=sent,
        return_immediately=not (tongue.streams and (card is None or card.streams)),
        history_length=0 if tongue.name == "1.0" else None,
        accepted_output_modes=head.accepted_output_modes,
        metadata=head.metadata,
        skill=head.skill,
        skills=head.skills,
        earlier=head.earlier,
    )


def find_context(route: UpstreamRoute, head: TaskHead) -> str:
    """The id of the conversation for the upstream, if it is known without a look into the log, else empty."""
    contexts = route.contexts
    return contexts.of(head) or (derive_context_id(head) if contexts.kept or is_new(head) else "")


def derive_context_id(head: TaskHead) -> str:
    """The conversation id sent to an upstream. It differs between callers that chose the same context id."""
    return _uuid_of(f"{head.owner}\0{head.agent}\0{head.context_id}")


def derive_message_id(head: TaskHead, number: int) -> str:
    """The id under which the message with that number is sent, each time the same."""
    return _uuid_of(f"{head.id}\0{number}")


def _uuid_of(text: str) -> str:
    """A UUID of version 8 (RFC 9562 §5.8), always the same for a text."""
    made = blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{made[:8]}-{made[8:12]}-8{made[13:16]}-a{made[17:20]}-{made[20:]}"
