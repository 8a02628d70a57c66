"""The transition table, and what a log folds to (A2A 1.0 §4.1.3, §4.2)."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.engine.runs.endings import closing
from dragoman.model.events import ArtifactChunk, Event, Logged, MessageReceived, StatusChanged, Submitted
from dragoman.model.lifecycle import FOLLOWS, Fold, fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import INTERRUPTED, STATES, TERMINAL, Progress, Record, TaskHead, TaskState, Usage
from tests.kit.values import chunk

S = TaskState
T = "2026-11-20T07:00:00.000Z"
HEAD = TaskHead(id="t", context_id="c", agent="a", owner="o", dialect="1.0", mount="/", created_at=T)


def user(text: str) -> Message:
    return Message(message_id=text, role=Role.USER, parts=(Part(text=text),))


def folded(*events: Event) -> Record:
    return fold(HEAD, None, [Logged(seq, event) for seq, event in enumerate((Submitted(user("hi"), T), *events), 1)])


def texts(record: Record, index: int = 0) -> list[str | None]:
    return [part.text for part in record.artifacts[index].parts]


def test_nothing_follows_a_terminal_state() -> None:
    """Invariant 4."""
    assert all(not FOLLOWS[state] for state in TERMINAL)
    assert not any(successor in FOLLOWS[state] for state in TERMINAL for successor in STATES)


def test_a_waiting_task_goes_on_or_ends() -> None:
    for state in INTERRUPTED:
        assert FOLLOWS[state] == TERMINAL | {S.WORKING}


def test_every_state_is_in_the_table_and_none_goes_back_to_submitted() -> None:
    assert set(FOLLOWS) == set(STATES)
    assert not any(S.SUBMITTED in FOLLOWS[state] for state in STATES if state is not S.SUBMITTED)
    assert S.WORKING in FOLLOWS[S.WORKING]
    assert all(state in FOLLOWS[S.SUBMITTED] for state in STATES)


def test_text_that_goes_on_is_joined_and_parts_of_a_chunk_stay_apart() -> None:
    record = folded(chunk("a", append=False), chunk("b"), chunk("c", "d"), chunk("e"))
    assert texts(record) == ["abc", "de"]
    typed = ArtifactChunk(Artifact(artifact_id="a", parts=(Part(text="x", media_type="text/x"),)), True)
    assert texts(folded(chunk("a", append=False), typed, chunk("b"), chunk("c"))) == ["a", "x", "bc"]


def test_a_record_is_the_same_however_often_it_is_made() -> None:
    whole = Fold(HEAD)
    whole.add(1, Submitted(user("hi"), T))
    whole.add(2, chunk("a", append=False))
    assert texts(whole.record()) == ["a"]
    whole.add(3, chunk("b"))
    assert texts(whole.record()) == ["ab"]
    whole.add(4, StatusChanged(S.WORKING, T))
    assert texts(whole.record()) == ["ab"]
    whole.add(5, chunk("c"))
    assert texts(whole.record()) == ["abc"]


def test_a_chunk_that_does_not_append_replaces() -> None:
    """A2A 1.0 §4.2.2."""
    record = folded(chunk("a", append=False), chunk("b", append=False), chunk("x", artifact_id="b", append=True))
    assert texts(record) == ["b"]
    assert texts(record, 1) == ["x"]


def test_an_artifact_that_is_replaced_is_not_kept() -> None:
    """A task that is loaded begins with a record."""
    replaced = Artifact(artifact_id="a", parts=(Part(text="old"),))
    task = Fold(HEAD, replace(folded(), artifacts=(replaced,)))
    held = sys.getrefcount(replaced)
    task.add(2, ArtifactChunk(Artifact(artifact_id="a", parts=(Part(text="new"),)), last_chunk=True))
    assert task.record().artifacts[0].parts[0].text == "new"
    assert sys.getrefcount(replaced) == held - 1


def test_open_artifacts_are_closed_by_their_last_chunk_or_the_end() -> None:
    begun = (chunk("a", append=False), chunk("b", artifact_id="b", append=False, last=True))
    assert folded(*begun).open_artifacts == ("a",)
    assert folded(*begun, chunk("c", last=True)).open_artifacts == ()
    assert folded(*begun, StatusChanged(S.COMPLETED, T)).open_artifacts == ()
    assert folded(*begun, StatusChanged(S.INPUT_REQUIRED, T)).open_artifacts == ("a",)


def test_chunked_artifacts_are_those_that_did_not_come_whole() -> None:
    begun = (chunk("a", append=False), chunk("b", artifact_id="b", append=False, last=True))
    assert folded(*begun, chunk("c", last=True), StatusChanged(S.COMPLETED, T)).chunked_artifacts == ("a",)
    assert folded(*begun, chunk("again", append=False, last=True)).chunked_artifacts == ()
    record = folded(*begun)
    assert fold(HEAD, record, [Logged(record.seq + 1, StatusChanged(S.COMPLETED, T))]).chunked_artifacts == ("a",)


def test_a_question_moves_into_the_history_before_its_answer() -> None:
    question = Message(message_id="q", role=Role.AGENT, parts=(Part(text="?"),))
    asked = folded(StatusChanged(S.INPUT_REQUIRED, T, message=question))
    assert [m.message_id for m in asked.history] == ["hi"]
    answered = folded(
        StatusChanged(S.INPUT_REQUIRED, T, message=question),
        MessageReceived(user("yes"), T),
        StatusChanged(S.WORKING, T),
    )
    assert [m.message_id for m in answered.history] == ["hi", "q", "yes"]
    assert answered.status.message is None


def test_progress_and_usage_stay_until_there_are_newer_ones() -> None:
    record = folded(
        StatusChanged(S.WORKING, T, progress=Progress(1, 2), usage=Usage(1, 1, 2)),
        StatusChanged(S.WORKING, T),
        StatusChanged(S.COMPLETED, T, duration_ms=5),
    )
    assert (record.progress, record.usage, record.duration_ms) == (Progress(1, 2), Usage(1, 1, 2), 5)


def test_the_time_that_a_task_waits_for_its_caller_is_added_up() -> None:
    at = [T.replace(":00.000Z", f":{second:02}.250Z") for second in range(30)]
    events = (
        StatusChanged(S.WORKING, at[1]),
        StatusChanged(S.INPUT_REQUIRED, at[2]),
        StatusChanged(S.WORKING, at[5]),
        StatusChanged(S.WORKING, at[9]),
        StatusChanged(S.AUTH_REQUIRED, at[10]),
        StatusChanged(S.CANCELED, at[20]),
    )
    assert [folded(*events[:length]).waited_ms for length in range(7)] == [0, 0, 0, 3000, 3000, 3000, 13_000]
    before = Fold(HEAD, folded(*events[:4]))
    before.add(6, events[4])
    assert before.ahead(events[5:]).record().waited_ms == 13_000
    late = folded(StatusChanged(S.INPUT_REQUIRED, at[9]), StatusChanged(S.WORKING, at[5]))
    assert late.waited_ms == 0, "clocks of two servers differ"


def test_a_log_begins_with_submitted() -> None:
    with pytest.raises(ValueError, match="begins with Submitted"):
        fold(HEAD, None, [Logged(1, chunk("a"))])


def test_a_duration_is_never_negative() -> None:
    assert closing(HEAD, S.COMPLETED, 0).duration_ms == 0


plain = st.builds(Part, text=st.text("ab", max_size=2))
other = st.builds(Part, data=st.integers(0, 9)) | st.builds(Part, text=st.just("m"), media_type=st.just("text/x"))
artifacts = st.builds(
    Artifact,
    artifact_id=st.sampled_from("ab"),
    parts=st.lists(plain | other, min_size=1, max_size=3).map(tuple),
    name=st.none() | st.just("n"),
)
events = st.one_of(
    st.builds(ArtifactChunk, artifacts, st.booleans(), st.booleans()),
    st.builds(
        StatusChanged,
        st.sampled_from(sorted(frozenset(STATES) - TERMINAL - {S.SUBMITTED})),
        st.just(T),
        message=st.none() | st.just(user("s")),
        progress=st.none() | st.just(Progress(1, 2)),
        usage=st.none() | st.just(Usage(1, 2, 3)),
    ),
    st.builds(MessageReceived, st.just(user("m")), st.just(T)),
)


@given(st.lists(events, max_size=12), st.lists(st.integers(1, 13)), st.sampled_from([None, *sorted(TERMINAL)]))
def test_a_log_folded_in_pieces_is_the_log_folded_whole(
    between: list[Event], looks: list[int], end: TaskState | None
) -> None:
    """Snapshot and rest give what the log gives, and looking in between changes nothing."""
    log = [Submitted(user("hi"), T), *between]
    if end is not None:
        log.append(StatusChanged(end, T, duration_ms=1))
    logged = [Logged(seq, event) for seq, event in enumerate(log, 1)]
    whole = fold(HEAD, None, logged)
    for cut in range(1, len(logged)):
        assert fold(HEAD, fold(HEAD, None, logged[:cut]), logged[cut:]) == whole
    looked = Fold(HEAD)
    for item in logged:
        looked.add(item.seq, item.event)
        if item.seq in looks:
            looked.record()
    assert looked.record() == whole
    assert replace(whole, seq=0) == replace(looked.record(), seq=0)
