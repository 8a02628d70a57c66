"""What a client is told of a task as it goes on (A2A 1.0 §4.2), and a page of tasks, whatever the dialect they came in.

Invariant: values only; what a dialect has beyond 1.0 is in fields of its own, never in `metadata`.
"""

from typing import Any

from msgspec import Struct

from dragoman.model.message import Artifact, Message
from dragoman.model.task import Progress, Task, TaskStatus, Usage


class StatusUpdate(Struct, frozen=True, kw_only=True, gc=False):
    """The task has a new status (A2A 1.0 §4.2.1). Ids are empty where the dialect does not repeat them."""

    task_id: str
    context_id: str
    status: TaskStatus
    metadata: dict[str, Any] | None = None
    progress: Progress | None = None
    usage: Usage | None = None


class ArtifactUpdate(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """An artifact, or a chunk of one (A2A 1.0 §4.2.2). `append` adds to the artifact of the same id.

    `usage` is all that the task has cost, where an artifact tells it (protoAgent); a last status may say it again.
    """

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None
    usage: Usage | None = None


Update = Task | Message | StatusUpdate | ArtifactUpdate
"""What a stream holds: the task as it stands, a direct agent's message, or what has changed."""


class TaskList(Struct, frozen=True, kw_only=True, gc=False):
    """A page of tasks (A2A 1.0 §3.1.4). `total_size` is None where the dialect does not tell it."""

    tasks: tuple[Task, ...]
    next_page_token: str = ""
    total_size: int | None = None
