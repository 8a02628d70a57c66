"""The facts that clients were told, over all the lives of a server, and whether they still hold.

Invariant: nothing is ever taken out; what contradicts an earlier telling is an assertion that fails.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.durability.caller import TERMINAL, Frame


@dataclass
class Known:
    """The facts told of one task: its last unary answer, its end, and its events by id."""

    agent: str
    text: str
    answer: dict[str, Any]
    ended: str = ""
    frames: dict[str, Any] = field(default_factory=dict)
    snapshots: dict[str, Any] = field(default_factory=dict)


@dataclass
class Call:
    """One message that was sent, and the task that was acknowledged for it."""

    agent: str
    said: dict[str, Any]
    task_id: str = ""


class Ledger:
    """All calls by message id, all tasks by id, and the tasks whose run was cut off and runs again."""

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self.tasks: dict[str, Known] = {}
        self.rerun: set[str] = set()

    def asked(self, agent: str, said: dict[str, Any]) -> dict[str, Any]:
        """A message is about to be sent."""
        self.calls[said["messageId"]] = Call(agent, said)
        return said

    def acknowledged(self, said: dict[str, Any], task: dict[str, Any]) -> None:
        """The message was answered with a task: the same one every time."""
        call = self.calls[said["messageId"]]
        assert call.task_id in ("", task["id"]), f"message {said['messageId']} made {call.task_id} and {task['id']}"
        call.task_id = task["id"]
        self.told(call.agent, task)

    def told(self, agent: str, task: dict[str, Any]) -> None:
        """A task as a unary call gave it: it never changes again once it has ended."""
        known = self._known(agent, task)
        state = task["status"]["state"]
        if state in TERMINAL:
            assert known.ended in ("", state), f"task {task['id']} was {known.ended}, now it is {state}"
            assert known.answer["status"]["state"] not in TERMINAL or known.answer == task
            known.ended, known.answer = state, task

    def holds(self, task: dict[str, Any]) -> Known:
        """The same, when nothing else is under way: a task that has ended has ended. Returns what is known."""
        known = self.tasks[task["id"]]
        assert known.ended in ("", task["status"]["state"]), f"{known.ended}, now {task}"
        self.told(known.agent, task)
        return known

    def saw(self, agent: str, frame: Frame) -> None:
        """An event reached a client: it is the same for all clients, for ever."""
        payload = frame.payload
        if "task" in payload:
            known = self._known(agent, payload["task"])
            assert known.snapshots.setdefault(frame.id, payload) == payload
            return
        known = self.tasks[frame.task_id]
        assert known.frames.setdefault(frame.id, payload) == payload, f"event {frame.id} of task {frame.task_id}"
        if (state := frame.state) in TERMINAL:
            assert known.ended in ("", state)
            known.ended = state

    def _known(self, agent: str, task: dict[str, Any]) -> Known:
        known = self.tasks.get(task["id"])
        if known is None:
            text = task["history"][0]["parts"][0]["text"]
            known = self.tasks[task["id"]] = Known(agent, text, task)
        return known


def expected(known: Known) -> str:
    """The answer that a completed task must have given."""
    if known.agent in ("count", "again"):
        return "".join(f"{number} " for number in range(int(known.text.split()[0])))
    if known.agent == "ask":
        return "one, two"
    return known.text


def text_of(task: dict[str, Any]) -> str:
    """All text of its artifacts."""
    return "".join(part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"])


def folded(frames: list[Frame]) -> str:
    """The same, put together from a stream as a client does."""
    artifacts: dict[str, str] = {}
    for frame in frames:
        if (update := frame.payload.get("artifactUpdate")) is not None:
            said = "".join(part["text"] for part in update["artifact"]["parts"])
            kept = artifacts.get(update["artifact"]["artifactId"], "") if update.get("append") else ""
            artifacts[update["artifact"]["artifactId"]] = kept + said
    return "".join(artifacts.values())
