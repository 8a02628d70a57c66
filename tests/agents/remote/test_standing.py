"""What is noted of the upstream's task, and in which write."""

from typing import Any

import pytest

from dragoman.agents.remote.standing import UpstreamStanding
from dragoman.client.errors import NotReached
from dragoman.engine.upstream_notes import UpstreamNotes
from dragoman.model.errors import TaskNotCancelable
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import StatusUpdate
from tests.store.cases.bench import SetClock

NOW = "2027-01-15T08:00:00.000Z"


class Notebook:
    """The part of a run that notes are given to. `soon` are those that may wait for another event."""

    def __init__(self) -> None:
        self.now: list[dict[str, str]] = []
        self.soon: list[dict[str, str]] = []

    def note(self, **note: str) -> None:
        self.now.append(note)

    def note_soon(self, **note: str) -> None:
        self.soon.append(note)


@pytest.fixture
def notebook() -> Notebook:
    return Notebook()


@pytest.fixture
def standing(notebook: Notebook) -> UpstreamStanding:
    run: Any = notebook
    return UpstreamStanding(run, SetClock())


def at(second: int, state: TaskState) -> TaskStatus:
    return TaskStatus(state=state, timestamp=f"2020-01-01T00:00:{second:02}.000Z")


def update(status: TaskStatus) -> StatusUpdate:
    return StatusUpdate(task_id="x1", context_id="c1", status=status)


def test_statuses_that_come_with_the_id_are_noted_with_it(standing: UpstreamStanding, notebook: Notebook) -> None:
    first, last = at(1, TaskState.SUBMITTED), at(2, TaskState.COMPLETED)
    notes = standing.begin((update(first), update(last)))
    assert notes == {"said": "completed", "first": first.timestamp, "last": last.timestamp}
    standing.record()
    assert (notebook.now, notebook.soon) == ([], []), "nothing is new"


def test_a_state_in_between_waits_for_another_event_and_an_end_for_the_end_of_ours(
    standing: UpstreamStanding, notebook: Notebook
) -> None:
    standing.begin((update(at(1, TaskState.SUBMITTED)),))
    standing.hear(at(2, TaskState.WORKING))
    assert notebook.soon == [{"said": "working", "last": at(2, TaskState.WORKING).timestamp}]
    standing.hear(at(3, TaskState.WORKING))
    standing.hear(at(4, TaskState.COMPLETED))
    assert (notebook.now, len(notebook.soon)) == ([], 1)
    standing.record()
    assert notebook.now == [{"said": "completed", "last": at(4, TaskState.COMPLETED).timestamp}]


def test_a_server_without_times_has_none_noted(standing: UpstreamStanding, notebook: Notebook) -> None:
    silent = TaskStatus(state=TaskState.WORKING, timestamp="")
    assert standing.begin((update(silent),)) == {"said": "working"}
    standing.hear(TaskStatus(state=TaskState.COMPLETED, timestamp=""))
    standing.record()
    assert notebook.now == [{"said": "completed"}]


def test_a_lost_connection_is_noted_once_and_so_is_the_next_word(
    standing: UpstreamStanding, notebook: Notebook
) -> None:
    standing.set_link(up=False)
    assert notebook.now == [], "the upstream has not named its task"
    standing.begin((update(at(1, TaskState.WORKING)),))
    standing.set_link(up=True)
    standing.set_link(up=False)
    standing.set_link(up=False)
    (lost,) = notebook.now
    assert lost["lost"] == NOW
    standing.record()
    assert notebook.now == [lost], "the end of our task does not bring the connection back"
    standing.hear(at(2, TaskState.WORKING))
    standing.set_link(up=True)
    (found,) = notebook.soon
    assert found["lost"] == ""


def test_a_later_run_knows_what_an_earlier_one_noted(standing: UpstreamStanding, notebook: Notebook) -> None:
    last = at(2, TaskState.WORKING)
    standing.load(UpstreamNotes(task="x1", said="working", first=at(1, TaskState.WORKING).timestamp, lost=NOW))
    standing.hear(last)
    assert notebook.soon == [{"said": "working", "last": last.timestamp, "lost": ""}]


@pytest.mark.parametrize(
    ("answer", "noted"),
    [
        (Task(id="x1", context_id="c1", status=at(3, TaskState.CANCELED)), "accepted"),
        (TaskNotCancelable("x1", "completed"), "refused"),
        (NotReached("http://127.0.0.1:9", "nobody listens"), "unanswered"),
        (None, "unanswered"),
    ],
)
def test_the_answer_to_a_cancel_is_noted(
    standing: UpstreamStanding, notebook: Notebook, answer: Any, noted: str
) -> None:
    standing.begin((update(at(1, TaskState.WORKING)),))
    standing.record_cancel(answer)
    assert notebook.now[-1]["cancel"] == noted
    assert notebook.now[-1]["said"] == ("canceled" if noted == "accepted" else "working")


def test_a_time_holds_until_a_later_status_has_one(standing: UpstreamStanding) -> None:
    timed, silent = at(1, TaskState.WORKING), TaskStatus(state=TaskState.COMPLETED, timestamp="")
    notes = standing.begin((update(timed), update(silent)))
    assert notes == {"said": "completed", "first": timed.timestamp, "last": timed.timestamp}
