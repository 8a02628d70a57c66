"""Updates: the items of a stream (A2A 1.0 §4.2) and a page of tasks as a client gets them, whatever the dialect.

Invariant: values only. Data of a dialect beyond 1.0 has its own fields, and is never put into `metadata`.
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

    `usage` is the total of the task, where an artifact carries it (protoAgent). The last status may repeat it.
    """

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None
    usage: Usage | None = None


Update = Task | Message | StatusUpdate | ArtifactUpdate
"""An item of a stream: the task as it stands, a direct agent's message, or a change."""


class TaskList(Struct, frozen=True, kw_only=True, gc=False):
    """A page of tasks (A2A 1.0 §3.1.4). `total_size` is None where the dialect does not have it."""

    tasks: tuple[Task, ...]
    next_page_token: str = ""
    total_size: int | None = None
