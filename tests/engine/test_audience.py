"""The events of a log that webhooks are told of."""

from msgspec.structs import replace

from dragoman.engine.announcements import steps_of
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import TaskHead, TaskState

TIME = "2026-01-01T00:00:00.000Z"
HEAD = TaskHead(id="t", context_id="c", agent="echo", owner="ann", dialect="1.0", mount="/", created_at=TIME)
BEGIN = Submitted(Message(message_id="m", role=Role.USER, parts=(Part(text="hello"),)), TIME)
WORKING = StatusChanged(TaskState.WORKING, TIME)
WHOLE = ArtifactChunk(Artifact(artifact_id="a", parts=(Part(text="x"),)), last_chunk=True)
MORE = replace(WHOLE, append=True)
PIECE = replace(MORE, last_chunk=False)


def told(*batches: tuple[Event, ...]) -> list[tuple[int, bool, bool]]:
    """Each step as its seq, whether the state changes with it, and whether its artifact had been whole before."""
    fold, found = Fold(HEAD), []
    for events in batches:
        found += [(step.seq, step.changes, step.again) for step in steps_of(fold, events, None)]
        for seq, event in enumerate(events, fold.seq + 1):
            fold.add(seq, event)
    return found


def test_what_is_no_new_state_is_no_change() -> None:
    ended = StatusChanged(TaskState.COMPLETED, TIME)
    changes = [(1, True), (2, True), (3, False), (4, False), (5, True)]
    log: tuple[Event, ...] = (BEGIN, WORKING, WORKING, WHOLE, ended)
    assert [step[:2] for step in told(log)] == changes
    assert [step[:2] for step in told(*((event,) for event in log))] == changes


def test_an_artifact_that_goes_on_after_it_was_whole_is_so_again() -> None:
    """Only then may what is told of it be larger than its event."""
    log: tuple[Event, ...] = (BEGIN, MORE, MORE, WHOLE, PIECE, MORE, MORE)
    again = [(1, False), (2, False), (3, True), (4, False), (6, False), (7, True)]
    assert [(seq, again) for seq, _, again in told(log)] == again
    assert [(seq, again) for seq, _, again in told(*((event,) for event in log))] == again


def test_artifacts_that_came_in_pieces_and_are_whole_are_known_also_of_a_snapshot() -> None:
    fold = Fold(HEAD)
    for seq, event in enumerate((BEGIN, WHOLE), 1):
        fold.add(seq, event)
    assert fold.joined_artifacts == ()
    fold.add(3, PIECE)
    assert fold.joined_artifacts == ()
    fold.add(4, MORE)
    assert fold.joined_artifacts == Fold(HEAD, fold.record()).joined_artifacts == ("a",)
