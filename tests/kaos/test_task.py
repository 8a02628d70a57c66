"""Task, as KAOS has it in Python and in JSON."""

from typing import Any

import pytest

from dragoman.dialects.kaos import encode
from dragoman.kaos import Task, TaskState
from dragoman.kaos.manager import task_of
from dragoman.model import task as canonical
from dragoman.model.message import Artifact, Part, Role
from dragoman.model.task import Record
from tests.kit import values

NOW = "2026-11-20T07:00:00.123Z"


def record(state: canonical.TaskState, said: str | None = None, **more: Any) -> Record:
    head = values.head(context_id="s", owner="me", dialect="kaos", created_at=NOW)
    message = None if said is None else values.say(said, Role.AGENT)
    user = values.say("Analyze this data", message_id="u")
    return values.record(head, state, *more.pop("artifacts", ()), at=NOW, said=message, history=(user,), **more)


def test_a_completed_task_has_the_keys_of_the_text_in_its_order() -> None:
    answer = Artifact(artifact_id="result", parts=(Part(text="Analysis result..."),))
    shown = task_of(record(canonical.TaskState.COMPLETED, artifacts=(answer,))).to_dict()
    assert list(shown)[:4] == ["id", "sessionId", "status", "history"]
    assert list(shown["status"]) == ["state", "message", "timestamp"]
    assert (shown["id"], shown["sessionId"]) == ("t", "s")
    assert (shown["status"]["state"], shown["status"]["message"]) == ("completed", "Done")
    assert shown["status"]["timestamp"] == "2026-11-20T07:00:00.123000+00:00"
    assert shown["history"] == [
        {"role": "user", "parts": [{"type": "text", "text": "Analyze this data"}]},
        {"role": "agent", "parts": [{"type": "text", "text": "Analysis result..."}]},
    ]
    assert shown["output"] == "Analysis result..."
    assert shown["artifacts"] == [{"artifactId": "result", "parts": [{"type": "text", "text": "Analysis result..."}]}]


@pytest.mark.parametrize(
    ("state", "spelled", "said"),
    [
        (canonical.TaskState.SUBMITTED, "submitted", None),
        (canonical.TaskState.WORKING, "working", "Processing"),
        (canonical.TaskState.INPUT_REQUIRED, "input-required", None),
        (canonical.TaskState.AUTH_REQUIRED, "input-required", None),
        (canonical.TaskState.COMPLETED, "completed", "Done"),
        (canonical.TaskState.FAILED, "failed", "Failed"),
        (canonical.TaskState.REJECTED, "failed", "Rejected"),
        (canonical.TaskState.CANCELED, "canceled", "Canceled by request"),
    ],
)
def test_states_are_spelled_as_the_text_does(state: canonical.TaskState, spelled: str, said: str | None) -> None:
    task = task_of(record(state))
    assert (task.status.state, task.status.message) == (spelled, said)
    assert ("message" in task.to_dict()["status"]) is (said is not None)


@pytest.mark.parametrize(
    "state", [canonical.TaskState.WORKING, canonical.TaskState.COMPLETED, canonical.TaskState.FAILED]
)
def test_a_task_as_a_dict_is_what_the_server_answers(state: canonical.TaskState) -> None:
    answer = Artifact(artifact_id="result", parts=(Part(text="Analysis result..."),))
    of = record(state, artifacts=(answer,))
    assert {**encode.task(of, None), "metadata": {}} == task_of(of).to_dict()
    assert list(task_of(of).to_dict()) == [*encode.task(of, None), "metadata"]


def test_what_the_agent_said_of_its_state_comes_before_what_kaos_says() -> None:
    assert task_of(record(canonical.TaskState.WORKING, "Step 1 of 2")).status.message == "Step 1 of 2"


def test_terminal_states_are_those_that_nothing_follows() -> None:
    ended = {state for state in canonical.STATES if task_of(record(state)).terminal}
    assert ended == canonical.TERMINAL


def test_tasks_share_no_metadata() -> None:
    first, second = task_of(record(canonical.TaskState.WORKING)), task_of(record(canonical.TaskState.WORKING))
    first.metadata["a"] = 1
    assert second.metadata == {}
    assert isinstance(first, Task)
    assert TaskState("input-required") is TaskState.INPUT_REQUIRED
