"""Messages, events and records as the engine has them, and the texts in them."""

from collections.abc import Iterable
from typing import Any

from dragoman.model.card import AgentSkill, Profile
from dragoman.model.events import ArtifactChunk
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import Record, Task, TaskHead, TaskState, TaskStatus

AT = "2026-11-20T07:00:00.000Z"
"""The time of everything here."""


def say(text: str, role: Role = Role.USER, message_id: str = "m", **fields: Any) -> Message:
    """A message of one text."""
    return Message(message_id=message_id, role=role, parts=(Part(text=text),), **fields)


def artifact(*texts: str, artifact_id: str = "a", **fields: Any) -> Artifact:
    """An artifact with a part for each text."""
    return Artifact(artifact_id=artifact_id, parts=tuple(Part(text=text) for text in texts), **fields)


def chunk(*texts: str, artifact_id: str = "a", append: bool = True, last: bool = False) -> ArtifactChunk:
    """A piece of an artifact."""
    return ArtifactChunk(artifact(*texts, artifact_id=artifact_id), append, last)


def head(task_id: str = "t", **fields: Any) -> TaskHead:
    """The head of a task of 1.0."""
    usual = {"context_id": "c", "agent": "agent", "owner": "o", "dialect": "1.0", "mount": "/", "created_at": AT}
    return TaskHead(**{"id": task_id, **usual, **fields})


def record(
    of: TaskHead,
    state: TaskState,
    *artifacts: Artifact,
    at: str = AT,
    said: Message | None = None,
    seq: int = 1,
    **fields: Any,
) -> Record:
    """A task as it stands, since `at`."""
    status = TaskStatus(state=state, message=said, timestamp=at)
    return Record(head=of, seq=seq, status=status, artifacts=artifacts, **fields)


def profile(agent_id: str, *skills: AgentSkill, **fields: Any) -> Profile:
    """An agent of that id and name."""
    usual: dict[str, Any] = {"name": agent_id, "description": "An agent of a test", "version": "1"}
    return Profile(**{"id": agent_id, "skills": skills, **usual, **fields})


def skill(skill_id: str, **fields: Any) -> AgentSkill:
    """A skill of that id and name."""
    return AgentSkill(**{"id": skill_id, "name": skill_id, "description": "A skill of a test", "tags": (), **fields})


def text_in(parts: Iterable[Part]) -> str:
    """All text of the parts."""
    return "".join(part.text or "" for part in parts)


def text_of(task: object) -> str:
    """All text of a task's artifacts. It must be a task."""
    assert isinstance(task, Task | Record), task
    return "".join(text_in(each.parts) for each in task.artifacts)


def told_by(task: object) -> str:
    """The text of a task's status, empty if it has none. It must be a task."""
    assert isinstance(task, Task | Record), task
    return "" if task.status.message is None else task.status.message.text
