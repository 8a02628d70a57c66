"""The places of numbered words, and what a log with and without them replays."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from dragoman.engine.api import Run
from dragoman.engine.runs.places import (
    PATH_CHARACTERS,
    Branch,
    RunPlaces,
    begin_first_branch,
    enter_named_branch,
    place_tasks,
    present_branch,
    return_to_branch,
    start_within_branch,
)
from dragoman.engine.runs.replay import NOTHING, Replay, ReplayMismatch, replay_of
from dragoman.engine.words import Delegation, Say, Step
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Event,
    Logged,
    MessageReceived,
    Noted,
    Placed,
    StatusChanged,
    Stepped,
    Submitted,
    TakenMessage,
)
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import TaskHead, TaskState
from dragoman.store.codec import Codec
from tests.engine.house import Scripted, echo, house, say, text_of

S = TaskState
AT = "2026-01-01T00:00:00.000Z"
HEAD = TaskHead(id="t", context_id="c", agent="agent", owner="anna", dialect="1.0", mount="/", created_at=AT)


def tell(kind: str = "question", name: str = "") -> tuple[str, int]:
    with RunPlaces(counted=False).tell(kind, name, None) as told:  # type: ignore[arg-type]
        return told


async def word(found: list[str], turns: int = 0) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    found.append(tell()[0])


async def other(found: list[str], turns: int = 0) -> None:
    await word(found, turns)


async def places_of(*tasks: tuple[Callable[..., Awaitable[None]], int]) -> list[list[str]]:
    """The places that tasks tell, each started at once and waiting some turns of the loop."""
    place_tasks(asyncio.get_running_loop())

    async def first_branch() -> list[list[str]]:
        begin_first_branch()
        found: list[list[str]] = [[] for _ in tasks]
        await asyncio.gather(*(make(told, turns) for told, (make, turns) in zip(found, tasks, strict=True)))
        return found

    return await asyncio.create_task(first_branch())


async def test_a_place_does_not_depend_on_who_comes_first() -> None:
    for turns in ((0, 1, 2), (2, 1, 0), (1, 0, 1)):
        found = await places_of((word, turns[0]), (other, turns[1]), (word, turns[2]))
        assert found == [["0/word#1/1"], ["0/other#1/1"], ["0/word#2/1"]]


async def test_words_count_in_their_branch_and_a_branch_begins_behind_them() -> None:
    place_tasks(asyncio.get_running_loop())

    async def first_branch() -> list[str]:
        begin_first_branch()
        found: list[str] = []
        await word(found)
        await asyncio.create_task(word(found))
        await asyncio.wait_for(asyncio.sleep(0), 1)
        await asyncio.create_task(other(found))
        await word(found)
        await asyncio.create_task(other(found))
        return found

    assert await asyncio.create_task(first_branch()) == ["1", "1/word#1/1", "1/other#1/1", "2", "2/other#1/1"]


async def test_a_task_that_is_a_word_is_one_of_the_branch_that_starts_it() -> None:
    place_tasks(asyncio.get_running_loop())

    async def ask(found: dict[int, tuple[str, int]], number: int) -> None:
        for _ in range(3 - number):
            await asyncio.sleep(0)
        found[number] = tell("delegation")

    ask.__qualname__ = "Run.delegate"

    async def first_branch() -> dict[int, tuple[str, int]]:
        begin_first_branch()
        found: dict[int, tuple[str, int]] = {}
        await asyncio.gather(ask(found, 1), ask(found, 2))
        found[3] = tell("delegation")
        return found

    told = await asyncio.create_task(first_branch())
    assert told == {1: ("1", 1), 2: ("2", 2), 3: ("3", 3)}


async def test_a_factory_that_the_loop_has_makes_the_tasks() -> None:
    loop, made = asyncio.get_running_loop(), []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        made.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **options)

    loop.set_task_factory(factory)
    try:
        place_tasks(loop)
        place_tasks(loop)
        assert await places_of((word, 0)) == [["0/word#1/1"]]
        assert made.count("word") == 1
    finally:
        loop.set_task_factory(None)


async def test_a_task_in_a_context_of_its_own_is_a_branch_too() -> None:
    place_tasks(asyncio.get_running_loop())

    async def first_branch() -> list[str]:
        begin_first_branch()
        found: list[str] = []
        await asyncio.get_running_loop().create_task(word(found), context=copy_context())
        return found

    assert await asyncio.create_task(first_branch()) == ["0/word#1/1"]


async def test_a_task_that_the_factory_has_not_seen_has_no_place_of_its_own() -> None:
    """It has that of its occurrence, and two of one name at once cannot be told apart."""
    place_tasks(asyncio.get_running_loop())
    loop, places = asyncio.get_running_loop(), RunPlaces(counted=False)

    async def told() -> str:
        assert present_branch() is None
        with places.tell("question", "where", None) as (place, _):
            await asyncio.sleep(0)
            return place

    async def first_branch() -> list[Any]:
        begin_first_branch()
        one = await asyncio.Task(told(), loop=loop)
        both = await asyncio.gather(
            asyncio.Task(told(), loop=loop), asyncio.Task(told(), loop=loop), return_exceptions=True
        )
        return [one, *both]

    one, two, failed = await asyncio.create_task(first_branch())
    assert (one, two) == ("question:where#1", "question:where#2")
    assert isinstance(failed, RuntimeError)


async def test_a_task_can_speak_for_the_branch_that_starts_it() -> None:
    place_tasks(asyncio.get_running_loop())

    async def first_branch() -> list[str]:
        begin_first_branch()
        found: list[str] = []
        await start_within_branch(word(found))
        await word(found)
        return found

    assert await asyncio.create_task(first_branch()) == ["1", "2"]


async def test_code_in_a_foreign_thread_is_in_no_branch() -> None:
    place_tasks(asyncio.get_running_loop())

    async def first_branch() -> object:
        begin_first_branch()
        return await asyncio.to_thread(present_branch)

    assert await asyncio.create_task(first_branch()) is None


# -- the log -----------------------------------------------------------------------------------------------------------


def message(text: str, role: Role = Role.USER) -> Message:
    return Message(message_id=text, role=role, parts=(Part(text=text),))


def asked(text: str, place: str | None, *taken: TakenMessage) -> StatusChanged:
    placed = None if place is None else Placed(place, taken)
    return StatusChanged(S.INPUT_REQUIRED, AT, message(text, Role.AGENT), placed=placed)


def replay(*events: Event, places: bool = True, crashed: bool = True) -> Replay:
    log = [Submitted(message("go"), AT, places), StatusChanged(S.WORKING, AT), *events]
    return replay_of(HEAD, [Logged(seq, event) for seq, event in enumerate(log, 1)], crashed=crashed)[1]


def answers(replay: Replay, *words: tuple[str, str]) -> list[str | None]:
    found = (replay.answer((Part(text=text),), place) for text, place in words)
    return [None if answer is None else answer.text for answer in found]


def answered(text: str, place: str | None) -> tuple[Event, ...]:
    return asked(text, place), MessageReceived(message(f"{text}!"), AT), StatusChanged(S.WORKING, AT)


def test_answers_are_found_by_place_in_any_order() -> None:
    log = replay(*answered("a", "0/f#1/1"), *answered("b", "0/f#2/1"), *answered("a", "0/f#1/2"))
    found = answers(log, ("b", "0/f#2/1"), ("c", "0/f#2/2"), ("a", "0/f#1/1"), ("a", "0/f#1/2"))
    assert found == ["b!", None, "a!", "a!"]
    assert not log.active


def test_answers_of_an_earlier_version_are_taken_in_their_order() -> None:
    log = replay(*answered("a", None), *answered("b", None), places=False)
    assert not log.places
    assert answers(log, ("a", ""), ("b", ""), ("c", "")) == ["a!", "b!", None]
    changed = replay(*answered("a", None), *answered("b", None), places=False)
    with pytest.raises(ReplayMismatch) as raised:
        answers(changed, ("b", ""))
    assert raised.value.place == "question 1"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (("question", "b", "1"), "place 1: the question “a” is recorded, but the question “b” came"),
        (("delegation", "other", "1"), "place 1: the question “a” is recorded, but a delegation to other came"),
        (("question", "a", "2"), "place 2: a delegation to other is recorded, but the question “a” came"),
        (("delegation", "third", "2"), "place 2: a delegation to other is recorded, but a delegation to third came"),
        (
            ("delegation", "other", "3"),
            "place 2: a delegation to other is recorded, but a delegation to other at place 3 came",
        ),
    ],
)
def test_a_difference_says_the_place_what_is_recorded_and_what_came(told: tuple[str, str, str], said: str) -> None:
    kind, name, place = told
    log = replay(*answered("a", "1"), Delegated(1, "other", "child", S.COMPLETED, AT, placed=Placed("2")))
    with pytest.raises(ReplayMismatch) as raised:
        if kind == "question":
            log.answer((Part(text=name),), place)
        else:
            log.delegated(1, name, place)
    assert str(raised.value) == said
    assert str(log.left()) == "place 1: the question “a” is recorded, but the end of the run came"


async def test_a_named_branch_begins_with_its_first_word_each_time() -> None:
    place_tasks(asyncio.get_running_loop())

    async def first_branch() -> list[str]:
        begin_first_branch()
        found: list[str] = []
        await word(found)
        for _ in range(2):
            before = enter_named_branch("pay")
            await asyncio.create_task(word(found))  # the one that works for it
            await asyncio.create_task(word(found))
            await word(found)
            return_to_branch(before)
        enter_named_branch("x" * PATH_CHARACTERS)
        await word(found)
        return_to_branch(before)
        await word(found)
        return found

    *found, long, last = await asyncio.create_task(first_branch())
    assert found == ["1", *(["@pay/1", "@pay/1/word#1/1", "@pay/2"] * 2)]
    assert (long[0], len(long), last) == ("@", 35, "2")


def step(place: str, name: str = "pay") -> Stepped:
    return Stepped(name, "", AT, AT, Placed(place), result=(Part(text=name),))


def test_words_of_a_named_branch_stay_and_are_not_missed() -> None:
    log = replay(chunk("Hello"), step("@a/1"), *answered("b", "@a/2"), chunk("there"), places=True)
    assert (log.active, log.repeats) == (False, False)
    assert not log.drops(None, Say((Part(text="Hello"),)))
    assert log.until == 0  # so that all that was said is replaced
    for _ in range(2):
        assert log.stepped(Step("pay"), "@a/1") == step("@a/1")
        assert answers(log, ("b", "@a/2")) == ["b!"]
    assert log.stepped(Step("pay"), "@b/1") is None
    with pytest.raises(ReplayMismatch, match=r"place @a/1: the step “pay” is recorded, but the step “buy” came"):
        log.stepped(Step("buy"), "@a/1")


def test_words_of_a_named_branch_are_kept_in_their_run() -> None:
    assert NOTHING.keep_word("1", step("1")) is NOTHING
    kept = NOTHING.keep_word("@a/1", step("@a/1"))
    assert (kept.stepped(Step("pay"), "@a/1"), kept.active) == (step("@a/1"), False)
    assert NOTHING.stepped(Step("pay"), "@a/1") is None
    assert kept.keep_word("@a/2", message("yes")) is kept
    assert answers(kept, ("anything", "@a/2")) == ["yes"]


def test_a_change_of_the_code_is_unknown_to_a_named_branch_that_has_come_further() -> None:
    log = replay(step("@a/2"))
    assert (log.knows_patch("new", Branch("@a/")), log.knows_patch("new", Branch("@b/"))) == (False, None)


def test_a_message_belongs_to_the_question_that_took_it_once_that_is_written() -> None:
    early = MessageReceived(message("early"), AT)
    untaken = replay(early)
    assert [late.text for late in untaken.late] == ["early"]
    taken = replay(early, Noted({"x": "y"}, Placed(taken=(TakenMessage("0/f#1/1", "early"),))))
    assert taken.late == ()
    assert answers(taken, ("b", "0/f#2/1"), ("a", "0/f#1/1")) == [None, "early"]
    behind = replay(early, asked("b", "0/f#2/1", TakenMessage("0/f#1/1", "early")), MessageReceived(message("b!"), AT))
    assert behind.late == ()
    assert answers(behind, ("b", "0/f#2/1"), ("a", "0/f#1/1")) == ["b!", "early"]


def chunk(text: str, artifact_id: str = "x", placed: Placed | None = None) -> ArtifactChunk:
    return ArtifactChunk(Artifact(artifact_id=artifact_id, parts=(Part(text=text),)), True, False, placed)


def test_what_a_branch_said_before_the_last_answer_of_another_one_is_not_said_again() -> None:
    said = (chunk("a said"), *answered("b", "0/f#2/1"), chunk("after"))
    log = replay(*answered("a", "0/f#1/1"), *said)
    assert answers(log, ("a", "0/f#1/1"), ("b", "0/f#2/1")) == ["a!", "b!"]
    assert not log.active
    assert log.repeats
    assert log.drops(None, chunk("a said"))
    assert not log.drops(None, chunk("a said"))
    assert not log.drops(None, chunk("after"))
    calm = replay(*answered("a", "0/f#1/1"), *said, crashed=False)
    assert calm.drops(None, chunk("after"))


def test_what_a_branch_says_anew_is_not_lost_because_another_one_has_said_the_same() -> None:
    """It says so before the other one repeats itself, so that it passes for the repetition."""
    recorded = (*answered("a", "0/f#1/1"), chunk("same"), chunk("b's"), *answered("b", "0/f#2/1"))
    behind, before = Branch("0/f#1/"), Branch("0/f#2/")
    log = replay(*recorded)
    assert answers(log, ("a", "0/f#1/1")) == ["a!"]
    assert [log.drops(behind, chunk("same")), log.drops(before, chunk("same"))] == [True, False]
    assert [log.drops(before, chunk(text)) for text in ("same", "b's", "otherwise")] == [True, True, True]
    in_order = replay(*recorded)
    assert answers(in_order, ("a", "0/f#1/1")) == ["a!"]
    assert [in_order.drops(before, chunk("same")), in_order.drops(behind, chunk("same"))] == [True, False]


def test_what_a_later_run_replaced_counts_no_more() -> None:
    dead = (*answered("a", "0/f#1/1"), chunk("a said"), *answered("b", "0/f#2/1"))
    since = 4  # the seq of the first answer
    log = replay(*dead, chunk("b said", placed=Placed(replaces=since)), *answered("c", "0/f#2/2"))
    assert not log.drops(None, chunk("a said"))
    assert log.drops(None, chunk("b said"))
    unanswered = replay(*dead, chunk("b said", placed=Placed(replaces=since)))
    assert unanswered.drops(None, chunk("a said"))  # what replaced it is replaced itself


def test_events_of_an_earlier_version_are_read_and_the_fields_are_kept() -> None:
    """A log without the fields decodes; with them, a round trip gives the same."""
    import msgspec

    codec = Codec()
    old: list[Any] = [
        ["s", message("go"), AT],
        ["t", 0, AT],
        ["d", 1, "other", "child", "TASK_STATE_COMPLETED", AT],
        ["n", {"a": "b"}],
        ["a", Artifact(artifact_id="x", parts=())],
    ]
    old[1][1] = "TASK_STATE_WORKING"
    read = codec.events(msgspec.msgpack.encode(old))
    assert isinstance(read[0], Submitted)
    assert not read[0].places
    assert [getattr(event, "placed", None) for event in read] == [None] * 5
    new = (
        Submitted(message("go"), AT, places=True),
        asked("a", "0/f#1/1", TakenMessage("1", "m")),
        Delegated(1, "other", "child", S.COMPLETED, AT, placed=Placed("2")),
        Noted({"a": "b"}, Placed(taken=(TakenMessage("1", "m"),))),
        chunk("x", placed=Placed(replaces=3, kept=1)),
    )
    assert codec.events(codec.encode(new)) == new


# -- whole runs --------------------------------------------------------------------------------------------------------


async def test_a_run_whose_code_changed_says_where_and_what(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    words = ["where?", "when?"]

    async def script(run: Run) -> None:
        async def book() -> None:
            for text in words:
                await run.ask((Part(text=text),))

        async with asyncio.TaskGroup() as group:
            group.create_task(book())

    async with house(Scripted(script), url=url) as h:
        task_id = (await h.send()).head.id
    words[0] = "why?"
    async with house(Scripted(script), url=url) as h:
        task = await h.send("here", task_id=task_id)
        assert task.state is S.FAILED
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "replay_mismatch"}
        book = "0/test_a_run_whose_code_changed_says_where_and_what.<locals>.script.<locals>.book#1/1"
        assert task.status.message.text == (
            "The agent did not repeat what it had done before the restart, so that what is recorded does not fit. "
            f"At place {book}, the question “where?” is recorded, but the question “why?” came."
        )


async def test_delegations_that_are_told_at_once_are_numbered_as_they_are_started() -> None:
    async def script(run: Run) -> None:
        orders = (Delegation(agent="other", parts=(Part(text=text),)) for text in ("one", "two"))
        both = await asyncio.gather(*map(run.delegate, orders))
        third = await run.delegate(Delegation(agent="other", parts=(Part(text="three"),)))
        await say(run, " ".join(f"{each.number} {each.text}" for each in (*both, third)))

    async with house(Scripted(script), Scripted(echo, "other")) as h:
        assert text_of(await h.send()) == "1 one 2 two 3 three"


async def test_branches_of_a_run_that_became_a_task_have_places(tmp_path: Path) -> None:
    """An agent that may answer with a Message asks in two branches, and its server is killed between two answers."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    turns = [0, 3]

    async def script(run: Run) -> None:
        async def book(name: str, wait: int) -> str:
            for _ in range(wait):
                await asyncio.sleep(0)
            return (await run.ask((Part(text=name),))).text

        async with asyncio.TaskGroup() as group:
            booked = [group.create_task(book(*each)) for each in zip(("one", "two"), turns, strict=True)]
        await say(run, " ".join(task.result() for task in booked))

    agent = Scripted(script, direct="auto", restartable=True)
    async with house(agent, url=url, crashes=True) as h:
        task = await h.send()
        assert task.status.message is not None
        assert task.status.message.text == "one"
        task = await h.send("first", task_id=task.head.id)
        assert task.status.message is not None
        assert task.status.message.text == "two"
    turns.reverse()
    async with house(agent, url=url) as h:
        task = await h.send("second", task_id=task.head.id)
        assert (task.state, text_of(task)) == (S.COMPLETED, "first second")
