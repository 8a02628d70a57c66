"""Folds the updates of a task as its client sees it, and finds what a snapshot adds to them.

Artifacts are folded by `model.lifecycle.Fold`. Status and history cannot be: another agent sends them as they stand,
not as events.

Invariant: no input or output. The updates, followed by what `news` makes of any later snapshot, fold to that snapshot;
no text appears twice.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from dragoman.dialects.client.objects import beyond
from dragoman.model.events import ArtifactChunk
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import TERMINAL, Progress, Record, Task, TaskHead, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

UNTOLD = TaskStatus(state=TaskState.UNSPECIFIED, timestamp="")
"""The status of a task whose artifacts are seen before it: a stream that resumes begins with what follows."""


class TaskFold:
    """A task built from its updates. Adding an update costs only that update; `task()` costs the whole task.

    An artifact, and text that continues it, is gathered before it goes into the fold: 0.2 µs a chunk instead of 1.0. An
    event of a remote agent may cost 1.3 × that of a local one (`upstream` in bench/rows.py), which leaves 2 µs.
    """

    __slots__ = (
        "_base", "_fold", "_growing", "_history", "_latest", "_metadata", "_progress", "_texts",
        "context_id", "message", "status", "task_id",
    )  # fmt: skip

    def __init__(self, task_id: str = "") -> None:
        self.task_id = task_id
        self.context_id = ""
        self.status: TaskStatus | None = None
        self.message: Message | None = None
        self._base: Task | None = None
        """The task as it came last, with which the fold begins."""
        self._fold: Fold | None = None  # most streams are over before anybody asks for it
        self._growing: str | None = None
        """The latest artifact. `_latest` is its update, and `_texts` what it has grown by, unless they are in the fold.
        """
        self._latest: ArtifactUpdate | None = None
        self._texts: list[str] = []
        self._history: tuple[Message, ...] = ()
        self._metadata: dict[str, Any] | None = None
        self._progress: Progress | None = None

    @property
    def state(self) -> TaskState | None:
        """The state of the task, None until an update reveals it."""
        return None if self.status is None else self.status.state

    def add(self, update: Update) -> None:
        """Add the next update."""
        if type(update) is ArtifactUpdate:
            if not self.task_id or not self.context_id:
                self._set_ids(update.task_id, update.context_id)
            artifact = update.artifact
            if update.append and artifact.artifact_id == self._growing and len(artifact.parts) == 1:
                text = plain_text(artifact.parts[0])
                if text is not None:  # most updates are such chunks
                    self._texts.append(text)
                    return
            self._settle()
            self._latest, self._growing = update, artifact.artifact_id
        elif type(update) is StatusUpdate:
            self.status = update.status
            self._progress = update.progress or self._progress
            if not self.task_id or not self.context_id:
                self._set_ids(update.task_id, update.context_id)
        elif type(update) is Task:
            self._set_ids(update.id, update.context_id)
            self.status, self._history, self._metadata = update.status, update.history, update.metadata
            self._base, self._fold, self._latest, self._growing = update, None, None, None
            self._texts.clear()
        elif type(update) is Message:
            self.message = update
            self._set_ids(update.task_id or "", update.context_id or "")

    def add_usual(self, updates: Sequence[Update]) -> int:
        """Add updates up to one that is of another task, begins the task anew, or follows its end. Returns how many."""
        count, ended, task_id = 0, False, self.task_id
        for update in updates:
            if ended:
                break
            if type(update) is StatusUpdate:
                if update.task_id != task_id:
                    break
                self.status = status = update.status
                ended = status.state in TERMINAL
                if update.progress is not None:
                    self._progress = update.progress
                if not self.context_id:
                    self.context_id = update.context_id
            elif type(update) is ArtifactUpdate:
                if update.task_id != task_id:
                    break
                self.add(update)
            elif type(update) is Task and self.status is None and update.id and task_id in ("", update.id):
                self.add(update)
                task_id, ended = self.task_id, update.status.state in TERMINAL
            else:
                break
            count += 1
        return count

    def extend(self, chunks: Sequence[ArtifactUpdate]) -> bool:
        """Add chunks of a plain text each. Returns False, and adds none, unless all continue the latest artifact."""
        growing, task_id, texts = self._growing, self.task_id, list[str]()
        if not (task_id and self.context_id):
            return False
        for update in chunks:
            artifact = update.artifact
            if artifact.artifact_id != growing or not update.append or update.task_id != task_id:
                return False
            texts.append(artifact.parts[0].text)  # type: ignore[arg-type]  # it is a plain text
        self._texts += texts
        return True

    def task(self) -> Task | None:
        """Return the task so far, None until its status is known. Text that came in chunks is one part."""
        if self.status is None:
            return None
        self._settle()
        artifacts: tuple[Artifact, ...] = ()
        if self._fold is not None or self._base is not None:
            fold = self._begin()
            fold.status = self.status
            artifacts = fold.record().artifacts
        return Task(
            id=self.task_id,
            context_id=self.context_id,
            status=self.status,
            artifacts=artifacts,
            history=self._history,
            metadata=self._metadata,
        )

    def news(self, update: Update) -> tuple[Update, ...]:
        """Return what an update adds, if it may repeat earlier updates."""
        match update:
            case Task():
                known = self.task()
                return (update,) if known is None else missing(known, update)
            case StatusUpdate(status=status, progress=progress):
                said = self.status is not None and _says(self.status) == _says(status)
                return () if said and progress in (None, self._progress) else (update,)
            case ArtifactUpdate(artifact=artifact, append=False):
                known = self.task()
                held = None if known is None else _find_artifact(known.artifacts, artifact.artifact_id)
                more = None if held is None else parts_beyond(held.parts, artifact.parts)
                if more is None:
                    return (update,)
                return (replace(update, artifact=_chunk(artifact, more), append=True),) if more else ()
            case _:
                return (update,)

    def _begin(self) -> Fold:
        """Return the fold, which begins with the task as it came last."""
        if self._fold is None:
            if (base := self._base) is None:
                self._fold = _fold_of(self.task_id, self.context_id, UNTOLD)
            else:
                self._fold = _fold_of(base.id, base.context_id, base.status, base.artifacts)
        return self._fold

    def _settle(self) -> None:
        """Put what was gathered into the fold."""
        if (latest := self._latest) is not None:
            self._begin().add(0, ArtifactChunk(latest.artifact, latest.append, latest.last_chunk))
            self._latest = None
        if self._texts:
            assert self._growing is not None
            grown = Artifact(artifact_id=self._growing, parts=(Part(text="".join(self._texts)),))
            self._begin().add(0, ArtifactChunk(grown, True, False))
            self._texts.clear()

    def _set_ids(self, task_id: str, context_id: str) -> None:
        self.task_id = self.task_id or task_id
        self.context_id = self.context_id or context_id


def missing(seen: Task, now: Task) -> tuple[Update, ...]:
    """Return the updates that lead from a task as it was seen to its current state.

    An artifact that has grown gives a chunk to append. One that has changed comes whole, and replaces the old one; its
    adjacent texts are joined, because servers keep each chunk as a part. If the answer is in the history (KAOS), the
    update is the task itself.
    """
    if not (seen.artifacts or now.artifacts) and _last_answer(seen) != _last_answer(now):
        return (now,)
    ended = now.status.state in TERMINAL
    told: list[Update] = []
    for artifact in now.artifacts:
        held = _find_artifact(seen.artifacts, artifact.artifact_id)
        more = None if held is None else parts_beyond(held.parts, artifact.parts)
        if more == ():
            continue
        told.append(
            ArtifactUpdate(
                task_id=now.id,
                context_id=now.context_id,
                artifact=_chunk(artifact, more) if more is not None else with_joined_text(artifact),
                append=more is not None,
                last_chunk=ended,
            )
        )
    if _says(seen.status) != _says(now.status):
        _, progress, usage = beyond(now.metadata)
        told.append(
            StatusUpdate(task_id=now.id, context_id=now.context_id, status=now.status, progress=progress, usage=usage)
        )
    return tuple(told)


def parts_beyond(seen: Iterable[Part], now: Iterable[Part]) -> tuple[Part, ...] | None:
    """Return the parts that `now` has beyond those seen, None if it does not begin with them.

    How a text is cut into parts makes no difference: servers keep chunks as they came, or joined.
    """
    before, after = join_text(seen), join_text(now)
    count = len(before)
    if after[:count] == before:
        return after[count:]
    if len(after) < count or after[: count - 1] != before[:-1]:
        return None
    old, new = plain_text(before[-1]), plain_text(after[count - 1])
    if old is None or new is None or not new.startswith(old):
        return None
    return (Part(text=new[len(old) :]), *after[count:])


def join_text(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Join adjacent plain texts and leave out empty ones."""
    whole: list[Part] = []
    texts: list[str] = []
    for part in parts:
        text = plain_text(part)
        if text is not None:
            texts.append(text)
            continue
        if said := "".join(texts):
            whole.append(Part(text=said))
        texts.clear()
        whole.append(part)
    if said := "".join(texts):
        whole.append(Part(text=said))
    return tuple(whole)


def with_joined_text(artifact: Artifact) -> Artifact:
    """Return the artifact of a snapshot as its chunks would have built it: adjacent plain texts are joined."""
    return replace(artifact, parts=join_text(artifact.parts) or artifact.parts)


def plain_text(part: Part) -> str | None:
    """Return the text of a part that is nothing but text, else None."""
    return part.text if part.media_type is None and part.metadata is None and part.filename is None else None


def _says(status: TaskStatus) -> tuple[TaskState, tuple[Part, ...]]:
    """Return the part of a status that counts: servers may make ids and times anew whenever they are asked."""
    return status.state, () if status.message is None else status.message.parts


def _last_answer(task: Task) -> tuple[Part, ...]:
    """Return the parts of the agent's last message in the history."""
    return next((each.parts for each in reversed(task.history) if each.role is Role.AGENT), ())


def _find_artifact(artifacts: Iterable[Artifact], artifact_id: str) -> Artifact | None:
    return next((each for each in artifacts if each.artifact_id == artifact_id), None)


def _chunk(artifact: Artifact, parts: tuple[Part, ...]) -> Artifact:
    return replace(artifact, parts=parts)


def _fold_of(task_id: str, context_id: str, status: TaskStatus, artifacts: tuple[Artifact, ...] = ()) -> Fold:
    head = TaskHead(id=task_id, context_id=context_id, agent="", owner="", dialect="", mount="", created_at="")
    return Fold(head, Record(head=head, seq=0, status=status, artifacts=artifacts))
