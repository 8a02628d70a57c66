"""The task that updates amount to, and what a snapshot adds to it: pure, by property."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import Part
from dragoman.client.task_fold import TaskFold, join_text, missing, parts_beyond
from dragoman.model.message import Artifact, Message, Role
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

PARTS = st.lists(st.one_of(st.text("ab", max_size=3).map(lambda text: Part(text=text)), st.just(Part(data=1))))
STATES = st.sampled_from([TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED])


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    names = draw(st.lists(st.sampled_from("xyz"), unique=True))
    said = draw(st.none() | st.sampled_from(["One", "Two"]))
    message = None if said is None else Message(message_id=said, role=Role.AGENT, parts=(Part(text=said),))
    return Task(
        id="t",
        context_id="c",
        status=TaskStatus(state=draw(STATES), message=message, timestamp=draw(st.sampled_from(["", "later"]))),
        artifacts=tuple(Artifact(artifact_id=name, parts=tuple(draw(PARTS))) for name in names),
    )


def meant(task: Task | None) -> object:
    """A task without what may differ: times, and how texts are cut."""
    assert task is not None
    status = replace(task.status, timestamp="")
    return status, {each.artifact_id: join_text(each.parts) for each in task.artifacts}


def folded(*updates: Update) -> TaskFold:
    fold = TaskFold()
    for update in updates:
        fold.add(update)
    return fold


@settings(deadline=None)
@given(seen=tasks(), now=tasks())
def test_what_is_missing_leads_to_how_the_task_stands(seen: Task, now: Task) -> None:
    kept = {each.artifact_id for each in now.artifacts}
    seen = replace(seen, artifacts=tuple(each for each in seen.artifacts if each.artifact_id in kept))
    assert meant(folded(seen, *missing(seen, now)).task()) == meant(now)


def test_chunks_of_an_artifact_without_a_name_stay_in_it() -> None:
    def chunk(name: str, text: str) -> ArtifactUpdate:
        artifact = Artifact(artifact_id=name, parts=(Part(text=text),))
        return ArtifactUpdate(task_id="t", context_id="c", artifact=artifact, append=True)

    done = StatusUpdate(task_id="t", context_id="c", status=TaskStatus(state=TaskState.COMPLETED, timestamp=""))
    task = folded(chunk("", "a"), chunk("x", "b"), chunk("x", "c"), done).task()
    assert task is not None
    assert [(each.artifact_id, join_text(each.parts)[0].text) for each in task.artifacts] == [("", "a"), ("x", "bc")]


@settings(deadline=None)
@given(now=tasks())
def test_nothing_is_missing_of_what_was_seen(now: Task) -> None:
    assert missing(now, now) == ()
    fold = folded(now)
    assert fold.news(now) == ()
    for artifact in now.artifacts:
        assert fold.news(ArtifactUpdate(task_id="t", context_id="c", artifact=artifact)) == ()
    assert fold.news(StatusUpdate(task_id="t", context_id="c", status=now.status)) == ()


@settings(deadline=None)
@given(seen=tasks(), now=tasks())
def test_the_news_of_single_updates_lead_to_how_the_task_stands(seen: Task, now: Task) -> None:
    kept = {each.artifact_id for each in now.artifacts}
    fold = folded(replace(seen, artifacts=tuple(each for each in seen.artifacts if each.artifact_id in kept)))
    whole = [ArtifactUpdate(task_id="t", context_id="c", artifact=artifact) for artifact in now.artifacts]
    for update in (*whole, StatusUpdate(task_id="t", context_id="c", status=now.status)):
        for news in fold.news(update):
            fold.add(news)
    assert meant(fold.task()) == meant(now)


def test_a_chunk_and_a_message_are_news_each_time_they_come() -> None:
    artifact = Artifact(artifact_id="x", parts=(Part(text="a"),))
    chunk = ArtifactUpdate(task_id="t", context_id="c", artifact=artifact, append=True)
    message = Message(message_id="m", role=Role.AGENT, parts=artifact.parts)
    fold = folded(chunk, message)
    assert (fold.news(chunk), fold.news(message)) == ((chunk,), (message,))


@settings(deadline=None)
@given(before=PARTS, more=PARTS)
def test_what_follows_is_what_was_added(before: list[Part], more: list[Part]) -> None:
    rest = parts_beyond(before, [*before, *more])
    assert rest is not None
    assert join_text([*before, *rest]) == join_text([*before, *more])


@pytest.mark.parametrize(
    ("seen", "now", "more"),
    [
        (["ab"], ["a", "bc"], ["c"]),
        (["ab"], ["a"], None),
        (["ab"], ["b"], None),
        ([], ["a"], ["a"]),
        (["a"], ["a"], []),
    ],
)
def test_texts_are_compared_however_they_are_cut(seen: list[str], now: list[str], more: list[str] | None) -> None:
    rest = parts_beyond([Part(text=each) for each in seen], [Part(text=each) for each in now])
    assert (None if rest is None else [part.text for part in rest]) == more


def test_chunks_are_joined() -> None:
    chunks = [
        ArtifactUpdate(
            task_id="t",
            context_id="c",
            artifact=Artifact(artifact_id="a", parts=(Part(text=text),)),
            append=text != "1",
        )
        for text in "123"
    ]
    status = StatusUpdate(task_id="t", context_id="c", status=TaskStatus(state=TaskState.COMPLETED, timestamp=""))
    fold = folded(*chunks, status)
    task = fold.task()
    assert task is not None
    assert [part.text for part in task.artifacts[0].parts] == ["123"]
    assert (task.id, task.context_id, fold.state) == ("t", "c", TaskState.COMPLETED)
    assert folded(*chunks).task() is None


def test_chunks_that_a_server_kept_as_parts_are_told_as_one_text() -> None:
    seen = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING, timestamp=""))
    kept = Artifact(artifact_id="x", parts=(Part(text="a"), Part(text="b"), Part(data=1), Part(text="c")))
    (chunk,) = missing(seen, replace(seen, artifacts=(kept,)))
    assert isinstance(chunk, ArtifactUpdate)
    assert chunk.artifact.parts == (Part(text="ab"), Part(data=1), Part(text="c"))


@pytest.mark.parametrize("odd", [None, 0, 3], ids=["all continue it", "the first begins it anew", "one is of another"])
def test_chunks_are_added_at_once_only_if_all_continue_the_latest_artifact(odd: int | None) -> None:
    def chunk(number: int) -> ArtifactUpdate:
        named = "y" if number == odd and odd else "x"
        parts = (Part(text=f"{number} "),)
        artifact = Artifact(artifact_id=named, parts=parts)
        return ArtifactUpdate(task_id="t", context_id="c", artifact=artifact, append=not (number == odd == 0))

    begun = Task(
        id="t",
        context_id="c",
        status=TaskStatus(state=TaskState.WORKING, timestamp=""),
        artifacts=(Artifact(artifact_id="x", parts=(Part(text="so far "),)),),
    )
    first = ArtifactUpdate(
        task_id="t", context_id="c", artifact=Artifact(artifact_id="x", parts=(Part(text="1 "),)), append=True
    )
    chunks = [chunk(number) for number in range(5)]
    one_by_one, at_once = folded(begun, first, *chunks), folded(begun, first)
    assert at_once.extend(chunks) is (odd is None)
    assert meant(at_once.task()) == meant((one_by_one if odd is None else folded(begun, first)).task())
