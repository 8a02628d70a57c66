"""The mark of a question: what Markdown shows of it, what interfaces do to it, and whose question it is."""

import time

import pytest
from markdown_it import MarkdownIt

from dragoman.dialects.openai.chores import is_chore
from dragoman.dialects.openai.conversation import answer_id, answered_in, conversation_id_of, fits_turns, read_turns
from dragoman.dialects.openai.marks import Mark, end_quote, find_question, spell_mark, split_mark, strip_marks
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus

TASK_ID = "01a225ee-fcf8-7073-9e1d-d84e3c135a22"
AT = "2026-11-29T06:00:00.000Z"

SHAPES = [
    "From where?",
    "Which?\n\n- a\n- b",
    "> quoted",
    "```py\nx = 1\n```",
    "| a |\n|---|\n| 1 |",
    "    code",
    "# Title",
    "<details>\nmore\n</details>",
    "it ends with a\\",
    "[a](b",
    "",
]


def said(role: Role, text: str, message_id: str = "", **more: object) -> Message:
    return Message(message_id=message_id or text, role=role, parts=(Part(text=text),), **more)  # type: ignore[arg-type]


def user(text: str) -> Message:
    return said(Role.USER, text)


def agent(text: str, message_id: str = "") -> Message:
    return said(Role.AGENT, text, message_id)


def waiting(*history: Message, question: Message, earlier: tuple[Message, ...] = ()) -> Record:
    head = TaskHead(
        id=TASK_ID, context_id="c", agent="a", owner="o", dialect="openai", mount="/", created_at=AT, earlier=earlier
    )
    status = TaskStatus(state=TaskState.INPUT_REQUIRED, message=question, timestamp=AT)
    return Record(head=head, seq=3, status=status, history=history)


@pytest.mark.parametrize("text", SHAPES)
def test_markdown_shows_nothing_of_a_mark(text: str) -> None:
    shown = MarkdownIt("commonmark").render(text + spell_mark(TASK_ID, agent("q")))
    assert shown.strip() == MarkdownIt("commonmark").render(text).strip()


@pytest.mark.parametrize("text", SHAPES)
@pytest.mark.parametrize(
    "around", [str, str.strip, lambda text: text.replace("\n", "\r\n"), lambda text: text + "\n\n"]
)
def test_a_mark_is_found_again_in_what_interfaces_make_of_a_text(text: str, around: object) -> None:
    assert callable(around)
    question = agent("q", "0199-q")
    bare, mark = split_mark(around(text + spell_mark(TASK_ID, question)))
    assert mark is not None
    assert bare.split() == text.split()
    record = waiting(user("hi"), question=question)
    assert find_question(record, mark) == question


def test_a_mark_belongs_to_one_question_of_one_task() -> None:
    first, second = agent("Which?", "id-1"), agent("Which?", "id-2")
    record = waiting(user("hi"), first, user("a"), question=second)
    marks = [split_mark(spell_mark(TASK_ID, each))[1] for each in (first, second)]
    assert [find_question(record, mark) for mark in marks if mark is not None] == [first, second]
    _, elsewhere = split_mark(spell_mark("01a225ee-0000-7073-9e1d-d84e3c135a22", second))
    assert elsewhere is not None
    assert find_question(record, elsewhere) is None
    assert find_question(record, Mark(TASK_ID, "A" * 16)) is None


def test_a_text_of_several_questions_has_the_last_mark() -> None:
    first, second = spell_mark(TASK_ID, agent("1")), spell_mark(TASK_ID, agent("2"))
    bare, mark = split_mark(f"one{first}\n\ntwo{second}")
    assert (bare, mark) == ("one\n\ntwo", split_mark(second)[1])
    for text in ("[//]: # (a comment)", "[//]: # (dragoman-question nothing)", "plain"):
        assert split_mark(text) == (text, None)


def test_an_answer_that_quotes_a_mark_asks_nothing() -> None:
    quote = f"one{spell_mark(TASK_ID, agent('1'))}"
    assert end_quote("one") == "one"
    assert split_mark(end_quote(quote)) == (quote, None)
    assert split_mark(end_quote(end_quote(quote))) == (end_quote(quote), None)  # of a server behind a server
    asks = f"{end_quote(quote)}{spell_mark(TASK_ID, agent('2'))}"
    assert split_mark(asks) == split_mark(f"one{spell_mark(TASK_ID, agent('2'))}")
    assert strip_marks(asks) == "one"


def test_white_space_costs_no_more_than_other_text() -> None:
    text = f"x{' ' * 100_000}y [//]: #"
    began = time.process_time()
    assert split_mark(text) == (text, None)
    assert time.process_time() - began < 1  # ten, if the space is looked at from each of its characters


def test_the_turns_must_be_those_of_the_task_down_to_its_question() -> None:
    task = waiting(user("Book"), agent("From where?"), user("Berlin"), question=agent("When?"), earlier=(user("Hi"),))
    turns = (user("Hi"), user("Book"), agent("Output\n\nFrom  where?"), user(" Berlin "), agent("When?"))
    assert fits_turns(task, read_turns(turns))
    assert fits_turns(task, read_turns(turns[1:]))
    assert fits_turns(task, read_turns(turns[-2:]))
    for other in (
        turns[-1:],
        turns[:-1],
        (user("more"), *turns),
        (*turns[:-2], user("Paris"), turns[-1]),
        (*turns[:-1], agent("Where?")),
        (*turns[:-2], agent("Berlin"), turns[-1]),
        (),
    ):
        assert not fits_turns(task, read_turns(other))


def test_long_turns_are_read_once_for_many_tasks() -> None:
    task = waiting(user("Book"), question=agent("When?"))
    turns = (user("Book"), agent("a word " * 100_000 + "Where?"))
    began = time.process_time()
    before = read_turns(turns)
    assert not any(fits_turns(task, before) for _ in range(500))
    assert time.process_time() - began < 1  # several seconds, if they are read for each task


def test_a_message_of_a_conversation_answers_the_question_that_is_shown_last() -> None:
    question, before = agent("When?"), agent("From where?")
    task = waiting(user("Book"), before, user("Berlin"), question=question)
    shown = (user("Book"), before, user("Berlin"), question)
    assert answered_in(task, user("Monday"), shown) == question
    assert answered_in(task, user("Monday"), (*shown, said(Role.AGENT, " "))) == question
    assert answered_in(task, user("Berlin"), shown[:2]) == before  # the same answer again
    assert answered_in(task, user("Paris"), shown[:2]) is None  # another one, which it cannot hear any more
    assert answered_in(task, user("Monday"), (user("Hi"), agent("Hello"))) is None
    assert answered_in(task, user("Monday"), ()) == question  # no turns are repeated
    assert answered_in(task, user("Book"), ()) is None  # the first message again
    repeats = waiting(user("Book"), question=question, earlier=(user("Hi"), agent("Hello")))
    assert answered_in(repeats, user("Hi there"), ()) is None  # the interface does repeat turns


def test_the_same_answer_to_the_same_question_is_the_same_message() -> None:
    question, parts = agent("When?", "q1"), (Part(text="Monday"),)
    known = answer_id(TASK_ID, question, parts)
    assert known == answer_id(TASK_ID, question, parts)
    assert known != answer_id(TASK_ID, question, (Part(text="monday"),))
    assert known != answer_id(TASK_ID, agent("When?", "q2"), parts)


@pytest.mark.parametrize("value", ["", " ", "null", "None", "undefined", "NEW", "{{LIBRECHAT_BODY_CONVERSATIONID}}"])
def test_a_header_without_an_id_names_no_conversation(value: str) -> None:
    assert conversation_id_of(value) is None
    assert conversation_id_of(" b861a0dc ") == "b861a0dc"


def test_what_has_turns_before_it_is_no_chore() -> None:
    chore = user("Provide a concise, 5-word-or-less title for the conversation, …\n\nConversation:\nUser: hi")
    assert is_chore(chore, ())
    assert is_chore(chore, (said(Role.USER, "be brief", metadata={"role": "system"}),))
    assert not is_chore(chore, (user("hi"), agent("hello")))
