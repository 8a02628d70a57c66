"""QuestionFinder: which task's question a chat completion answers, if its caller names no task.

A chat interface repeats the conversation. The task is found by the conversation's id, by the mark in the question, or,
if one person alone can be meant, by the turns themselves.

Invariant: only tasks of the caller with the agent that was asked are looked at, by indexes of the store. In doubt there
is no such task: a message that begins a task harms nobody, while an answer in another person's task does.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.openai.conversation import (
    Person,
    answer_id,
    answered_in,
    fits_turns,
    person_of,
    read_turns,
    shows_last,
)
from dragoman.dialects.openai.decode import Chat
from dragoman.dialects.openai.marks import find_question, open_question
from dragoman.engine.handler import Answered
from dragoman.model.errors import TaskNotFound, UnsupportedOperation
from dragoman.model.ids import Clock
from dragoman.model.message import Message
from dragoman.model.operations import GetTask, ListTasks, SendMessage, TaskPage
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskState

DIALECT = "openai"
"""The dialect that is stored with the tasks of chat completions."""

CONVERSATION_TASKS = 20
"""How many tasks of a conversation are looked at, the newest first. One waits at a time, but for abandoned branches."""

PAGE = 100
PAGES = 5
"""How many pages of waiting tasks are looked at for turns that fit. Beyond that nobody knows whether only one fits."""

Look = Callable[[GetTask | ListTasks], Awaitable[Answered]]
"""Answers about tasks of the caller with the agent. Raises A2AError."""


class FinderSettings(Protocol):
    """The settings of chat completions that matter here: see `ChatSettings`."""

    @property
    def reply_within_s(self) -> float:
        """How long after a question its turns still count."""
        ...


class FoundQuestion(Struct, frozen=True):
    """A question, open or answered in the same words before, and the task that asked it."""

    task_id: str
    context_id: str
    question: Message

    def answered_by(self, send: SendMessage) -> SendMessage:
        """Return the message as an answer to the question. A repeat of it is the same message."""
        said = send.message
        return replace(
            send,
            message=replace(
                said,
                message_id=answer_id(self.task_id, self.question, said.parts),
                task_id=self.task_id,
                context_id=None,
            ),
            earlier=(),
            answers=self.question.message_id,
        )


class QuestionFinder:
    """Finds the question that one request answers."""

    def __init__(self, look: Look, settings: FinderSettings, clock: Clock) -> None:
        self._look = look
        self._settings = settings
        self._clock = clock

    async def find_question(
        self, chat: Chat, asked: Message, principal: Principal, conversation_id: str | None
    ) -> FoundQuestion | None:
        """Return the question that the message `asked` answers; None if it begins a task. Raises A2AError.

        With `conversation_id` the interface sends one, and the message has it as its context. Otherwise a context that
        the caller names limits the search to its tasks.
        """
        marked = await self._find_marked(chat)
        if conversation_id is not None:
            found = await self._find_in_conversation(chat, asked, conversation_id, marked)
            if found is not None:
                return None if marked is not None and found.task_id != marked.task_id else found
        elif marked is not None and asked.context_id not in (None, marked.context_id):
            return None
        return marked or await self._find_by_turns(chat, principal, asked.context_id)

    async def _find_marked(self, chat: Chat) -> FoundQuestion | None:
        """The question that the conversation shows last, with its mark."""
        if chat.mark is None:
            return None
        record = await self._read_task(chat.mark.task_id)
        question = None if record is None else find_question(record, chat.mark)
        if record is None or question is None or not shows_last(chat.before, question):
            return None
        return _answerable(record, question)

    async def _find_in_conversation(
        self, chat: Chat, asked: Message, conversation_id: str, marked: FoundQuestion | None
    ) -> FoundQuestion | None:
        """The newest question of a conversation that the message answers; the marked one if that is among them."""
        page = await self._look(
            ListTasks(context_id=conversation_id, page_size=CONVERSATION_TASKS, include_artifacts=False, own=True)
        )
        assert isinstance(page, TaskPage)
        fitting = []
        for record in page.records:
            if marked is not None and record.head.id == marked.task_id:
                return marked
            question = answered_in(record, asked, chat.before) if record.head.dialect == DIALECT else None
            if question is not None and (found := _answerable(record, question)) is not None:
                fitting.append(found)
        return fitting[0] if fitting else None

    async def _find_by_turns(self, chat: Chat, principal: Principal, context_id: str | None) -> FoundQuestion | None:
        """The one waiting task of the same person whose turns are those of the conversation."""
        if not (chat.before and self._settings.reply_within_s and (chat.person.named or principal.one_person)):
            return None
        before = read_turns(chat.before)
        fitting = [
            FoundQuestion(record.head.id, record.head.context_id, question)
            for record in await self._read_waiting(context_id)
            if _same_person(record, chat.person, principal)
            and fits_turns(record, before)
            and (question := open_question(record)) is not None
        ]
        return fitting[0] if len(fitting) == 1 else None

    async def _read_waiting(self, context_id: str | None) -> Iterable[Record]:
        """The caller's tasks that have begun to wait lately; none if there are too many to be sure."""
        since_ms = self._clock.now_ms() - int(self._settings.reply_within_s * 1000)
        found: list[Record] = []
        for state in (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED):
            token = ""
            for _ in range(PAGES):
                page = await self._look(
                    ListTasks(
                        context_id=context_id,
                        state=state,
                        status_after_ms=max(0, since_ms),
                        page_size=PAGE,
                        page_token=token,
                        own=True,  # nobody names the task here, so that a member's answer is never another's
                    )
                )
                assert isinstance(page, TaskPage)
                found += [record for record in page.records if record.head.dialect == DIALECT]
                token = page.next_page_token
                if not token:
                    break
            if token:
                return ()
        return found

    async def _read_task(self, task_id: str) -> Record | None:
        try:
            record = await self._look(GetTask(id=task_id))
        except (TaskNotFound, UnsupportedOperation):
            return None
        assert isinstance(record, Record)
        return record


def _answerable(record: Record, question: Message) -> FoundQuestion | None:
    """The question, unless its task failed or was canceled: whoever repeats the answer then wants another attempt."""
    if record.terminal and record.state is not TaskState.COMPLETED:
        return None
    return FoundQuestion(record.head.id, record.head.context_id, question)


def _same_person(record: Record, person: Person, principal: Principal) -> bool:
    """Whether the task was made by the person who sends the message now, for all that is known."""
    if person_of(record.head.metadata) != person:
        return False
    return person.named or (principal.one_person and bool(principal.key) and record.head.key == principal.key)
