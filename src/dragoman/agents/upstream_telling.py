"""What an upstream tells of its task, as what our agent gives out in ours.

Invariant: chunks stay chunks, of the artifacts that the upstream names; tokens are counted once.
"""

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from dragoman.client.folding import joined
from dragoman.dialects.hearing import beyond
from dragoman.dialects.protoagent.extensions import COST_TYPE, media_type
from dragoman.engine.api import Run
from dragoman.engine.links import same_parts
from dragoman.model.message import Artifact, Part
from dragoman.model.task import INTERRUPTED, TERMINAL, Progress, Task, TaskState, TaskStatus, Usage
from dragoman.model.updates import ArtifactUpdate, StatusUpdate

ANSWER = "answer"
"""The id of the artifact that is made of what an upstream says with a message, not with an artifact."""


class Telling:
    """Passes on to `run`. `gave`: whether anything was given out; `used`: what the upstream says its task has cost."""

    __slots__ = ("_run", "gave", "used")

    def __init__(self, run: Run) -> None:
        self.gave = False
        self.used = Usage()
        self._run = run

    @property
    def noted(self) -> str:
        """What has been counted, as it is noted for a later run."""
        return ",".join(map(str, _numbers(self.used)))

    def counted(self, noted: str) -> None:
        """An earlier run has counted this."""
        self.used = Usage(*map(int, noted.split(",")))

    async def chunk(self, update: ArtifactUpdate) -> None:
        """Pass on an artifact, or a chunk of one."""
        artifact = without_cost(update.artifact)
        if not artifact.parts:
            if not update.last_chunk:
                return
            artifact = replace(artifact, parts=(Part(text=""),))
        self.gave = True
        if update.usage is not None:
            self._count(update.usage)
        await self._run.artifact(artifact, append=update.append, last_chunk=update.last_chunk)

    async def report(self, update: StatusUpdate) -> None:
        """Pass on what the upstream reports from within its work."""
        if update.usage is not None:
            self._count(update.usage)
        status = update.status
        if status.state in TERMINAL or status.state in INTERRUPTED:
            return  # that is passed on when the stream is over
        await self._tell(status, update.progress, update.metadata)

    async def _tell(self, status: TaskStatus, progress: Progress | None, metadata: dict[str, object] | None) -> None:
        parts = status.message.parts if status.message is not None else ()
        if not parts and progress is not None and progress.message:
            parts = (Part(text=progress.message),)
        metadata = metadata or (status.message.metadata if status.message is not None else None)
        if parts or progress is not None or metadata:
            steps = None if progress is None else (progress.current, progress.total)
            await self._run.status(parts, progress=steps, metadata=metadata)

    async def snapshot(self, task: Task, seen: Sequence[Artifact] = ()) -> None:
        """Pass on a task as it stands, but for what of it is `seen`."""
        ended = task.status.state in TERMINAL
        known = {artifact.artifact_id: joined(artifact.parts) for artifact in seen}
        for artifact in map(without_cost, task.artifacts):
            if not artifact.parts:
                continue
            self.gave = True
            told = known.get(artifact.artifact_id)
            if told is None or not same_parts(told, joined(artifact.parts)):
                await self._run.artifact(artifact, append=False, last_chunk=ended)
        _, progress, usage = beyond(task.metadata)
        if usage is not None:
            self._count(usage)
        if task.status.state is TaskState.WORKING:
            await self._tell(task.status, progress, None)

    async def give(self, parts: Sequence[Part]) -> None:
        """Give out what came with a message, not with an artifact."""
        if parts:
            self.gave = True
            await self._run.artifact(Artifact(artifact_id=ANSWER, parts=tuple(parts)), append=False, last_chunk=True)

    def _count(self, total: Usage) -> None:
        """The upstream says what all of its task has cost so far."""
        used, self.used = self.used, total
        if total != used:
            more = (now - before for now, before in zip(_numbers(total), _numbers(used), strict=True))
            self._run.usage(Usage(*(max(0, number) for number in more)))


def without_cost(artifact: Artifact) -> Artifact:
    """The artifact without what protoAgent says in it of the cost: that is usage here."""
    for part in artifact.parts:
        if part.data is not UNSET and media_type(part) == COST_TYPE:
            break
    else:
        return artifact
    return replace(artifact, parts=tuple(part for part in artifact.parts if media_type(part) != COST_TYPE))


def _numbers(usage: Usage) -> tuple[int, int, int]:
    return usage.input_tokens, usage.output_tokens, usage.total_tokens
