"""Passes an upstream's updates of its task on to our task.

Invariant: chunks stay chunks, of the artifacts that the upstream names. Tokens are counted once. Content that is
repeated after a lost connection or server is not passed on again: a reader of the chunks reads no text twice, and
folding them yields the upstream's artifact. No secret that the upstream was sent is passed on. Content that cannot be
read is left out, and said to be.
"""

import logging
from collections.abc import Awaitable, Collection, Coroutine, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from dragoman.agents.masking import Masking
from dragoman.agents.remote.credentials import CallCredentials
from dragoman.client.task_fold import join_text, parts_beyond, plain_text, with_joined_text
from dragoman.dialects.client.objects import beyond
from dragoman.dialects.extensions import UNREADABLE_PART
from dragoman.dialects.protoagent.extensions import COST_TYPE, media_type
from dragoman.engine.api import Run
from dragoman.engine.bounds import NAME_MAX
from dragoman.engine.files import same_parts
from dragoman.model.lifecycle import SETTLED
from dragoman.model.message import Artifact, Part
from dragoman.model.task import TERMINAL, ModelUsage, Progress, Task, TaskState, TaskStatus, Usage
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.upstreams")

ANSWER = "answer"
"""The id of the artifact that holds the content of an upstream's message, which is not in an artifact there."""

FAULTS_MAX = 3
"""Most faults in an upstream's content that its task tells of. There is one kind as a rule."""

NO_TEXT = "a text part without a text"
"""The fault of a part that was read and marked (UNREADABLE_PART)."""

UNKEPT_ID = f"the id of an artifact, which is longer than {NAME_MAX} characters or has a NUL"
"""The fault of an id that another one takes the place of: its artifact is passed on."""

TAIL = 2048
"""Characters of an artifact's end that are remembered, because a secret may span several chunks."""


class Relay:
    """Passes updates on to `run`.

    `emitted`: whether anything was emitted. `used`: the cost of the upstream's task so far. `deltas`: the upstream's
    chunks do not say whether they continue an artifact or begin it again (BeeOS). `faults` say what was left out of the
    content of the upstream, whose `name` the log has: parts without content, and what an agent may not say (`Bounds`).
    """

    __slots__ = (
        "_credentials",
        "_emitted_ids",
        "_mended",
        "_name",
        "_overlaps",
        "_refused",
        "_run",
        "_tails",
        "_upstream",
        "deltas",
        "emitted",
        "faults",
        "used",
    )

    def __init__(self, run: Run, credentials: CallCredentials, name: str, upstream: str = "") -> None:
        self.deltas = False
        self.emitted = False
        self.faults: list[str] = []
        self._name = name
        self._upstream = upstream
        self.used = Usage()
        self._refused: Usage | None = None
        self._run = run
        self._credentials = credentials
        self._emitted_ids: set[str] = set()
        self._tails: dict[str, str] = {}
        self._mended = False
        self._overlaps: dict[str, Overlap] = {}

    def expect_deltas(self, deltas: bool) -> None:
        """Take the chunks from now on as those of a connection that has `deltas`, or has not."""
        self.deltas = deltas

    @property
    def usage_note(self) -> str:
        """The usage counted so far, as a note for a later run."""
        return ",".join(map(str, _all_numbers(self.used)[: 4 if self.used.cached_tokens else 3]))

    def load_usage(self, noted: str) -> None:
        """Load the usage that an earlier run counted."""
        given, made, total, cached, *_ = *map(int, noted.split(",")), 0  # earlier versions noted three
        self.used = Usage(given, made, total, cached_tokens=cached)

    def count_taken(self) -> None:
        """Count the task as that of the member of a pool, whose price it has, also if it reports no tokens."""
        if self._upstream:
            only = ModelUsage("", upstream=self._upstream)
            self._run.sink.mark(Usage(models=(only,)))  # nothing in it could be out of bounds

    def expect_repetition(self) -> None:
        """Resume after a stream was lost: what was passed on already may come again."""
        self._mended = True
        self._overlaps = overlaps(self._run.record.artifacts) | self._overlaps

    def expect_whole(self) -> None:
        """Begin a stream of deltas: its first ones may be the whole artifact."""
        if self.deltas:
            began = {key for key, overlap in self._overlaps.items() if overlap.begun}
            self._overlaps = overlaps(self._run.record.artifacts, anew=True, begun=began)

    async def pass_chunks(self, updates: Sequence[ArtifactUpdate]) -> None:
        """Pass on chunks that continue one artifact, each with a plain text and nothing else."""
        if updates[0].artifact.artifact_id not in self._emitted_ids or self._looks_closely:
            for update in updates:
                if (waits := self.pass_on(update)) is not None:
                    await waits
            return
        emit = self._run.emit
        self.emitted = True  # of what came before, all may have been left out
        for update in updates:
            try:
                waits = emit(update.artifact, append=True, last_chunk=update.last_chunk)
            except ValueError:
                waits = self._give(update.artifact, append=True, last_chunk=update.last_chunk)
            if waits is not None:
                await waits

    def pass_on(self, update: Update) -> Awaitable[None] | None:
        """Pass on an update of the upstream's task. Returns what has to be awaited at once, if anything."""
        if type(update) is StatusUpdate:
            return self.pass_status(update)
        if type(update) is ArtifactUpdate:
            given = update.artifact
            if (
                (update.append or given.artifact_id not in self._emitted_ids)
                and update.usage is None
                and len(given.parts) == 1
                and plain_text(given.parts[0]) is not None
                and not (self._overlaps or self._credentials.masking.active)
            ):  # most updates: there is nothing in them to leave out
                try:
                    waits = self._run.emit(given, append=update.append, last_chunk=update.last_chunk)
                except ValueError:
                    pass  # but for what no agent may say
                else:
                    self.emitted = True
                    self._emitted_ids.add(given.artifact_id)
                    return waits
            return self.pass_chunk(update)
        if type(update) is Task and (update.artifacts or update.metadata or update.status.message is not None):
            return self.pass_snapshot(update)  # after an answer, it has the artifacts from before the question
        return None

    async def pass_chunk(self, update: ArtifactUpdate) -> None:
        """Pass on an artifact, or a chunk of one, after a look at all that is in it."""
        artifact = self._content(update.artifact)
        if not artifact.parts:
            unknown = self.faults and artifact.artifact_id not in self._emitted_ids
            if not update.last_chunk or unknown:
                return
            artifact = replace(artifact, parts=(Part(text=""),))
        self.emitted = True
        if update.usage is not None:
            self._count(update.usage)
        await self._emit_new(artifact, append=update.append, last_chunk=update.last_chunk)

    @property
    def _looks_closely(self) -> bool:
        """Whether each chunk is compared with what came before, or searched for secrets."""
        return bool(self._overlaps) or self._credentials.masking.active

    async def _emit_new(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Emit the part of an artifact that is new."""
        key = artifact.artifact_id
        if (masking := self._credentials.masking).active:
            artifact = masking.artifact(self._mask_continued(masking, artifact, append=append))
        overlap = self._overlaps.get(key) if self._overlaps else None
        if overlap is None and not append and last_chunk and key in self._emitted_ids:
            overlap = overlaps(self._run.record.artifacts).get(key)  # some repeat the whole artifact at the end
        self._emitted_ids.add(key)
        if overlap is None:
            await self._give(artifact, append=append, last_chunk=last_chunk)
            return
        chunk = overlap.chunk(artifact, append=append, whole=last_chunk and not (self.deltas and self._mended))
        if not chunk.settled:
            self._overlaps[key] = overlap
        elif key in self._overlaps:
            del self._overlaps[key]
        if chunk.artifact is not None:
            await self._give(chunk.artifact, append=chunk.append, last_chunk=last_chunk)
        elif last_chunk and plain_text(artifact.parts[-1]) is not None and self._open(artifact.artifact_id):
            await self._give(replace(artifact, parts=(Part(text=""),)), append=True, last_chunk=True)

    def _mask_continued(self, masking: Masking, artifact: Artifact, *, append: bool) -> Artifact:
        """The artifact without the rest of a secret that began in earlier chunks."""
        before = self._tails.get(artifact.artifact_id, "") if append else ""
        text, *rest = artifact.parts
        said = plain_text(text)
        last = plain_text(artifact.parts[-1]) or ""
        self._tails[artifact.artifact_id] = (last if rest else before + last)[-TAIL:]
        if before and said and (left := masking.after(before, said)) != said:
            return replace(artifact, parts=(Part(text=left), *rest))
        return artifact

    def has_emitted(self, parts: Sequence[Part]) -> bool:
        """Whether an artifact holds exactly these parts: some repeat their answer in the last status (Evo AI)."""
        said = join_text(parts)
        return any(same_parts(join_text(each.parts), said) for each in self._run.record.artifacts)

    def _open(self, artifact_id: str) -> bool:
        return artifact_id in self._run.record.open_artifacts

    async def settle(self) -> None:
        """Finish for now: the upstream sends nothing more. An artifact that it cut short replaces what was emitted."""
        pending, self._overlaps = self._overlaps, {}
        for overlap in pending.values():
            if (left := overlap.left()) is not None:
                await self._give(left, append=False, last_chunk=True)

    def pass_status(self, update: StatusUpdate) -> Coroutine[Any, Any, None] | None:
        """Pass on a status that the upstream reports while it works. Returns what has to be awaited, if anything."""
        if update.usage is not None:
            self._count(update.usage)
        status = update.status
        if status.state in SETTLED:
            return None  # it is passed on when the stream is over
        if self._mended and status.message is None and update.progress is None:
            self.expect_whole()  # a bare `working` marks a task that runs again
        if status.message is None and update.progress is None and not update.metadata:
            return None
        return self._pass_status(status, update.progress, update.metadata)

    async def _pass_status(
        self, status: TaskStatus, progress: Progress | None, metadata: dict[str, object] | None
    ) -> None:
        parts = self._unmarked(status.message.parts) if status.message is not None else ()
        if not parts and progress is not None and progress.message:
            parts = (Part(text=progress.message),)
        metadata = metadata or (status.message.metadata if status.message is not None else None)
        if parts or progress is not None or metadata:
            steps = None if progress is None else (progress.current, progress.total)
            masking = self._credentials.masking
            said = masking.parts(parts)
            try:
                await self._run.status(said, progress=steps, metadata=masking.metadata(metadata))
            except ValueError as fault:
                left = self.readable(said)
                if len(left) == len(said):  # the fault is in the metadata, or in the numbers
                    self.leave_out(str(fault))
                if left:
                    await self._run.status(left)

    async def pass_snapshot(self, task: Task) -> None:
        """Pass on the upstream's whole task, except what is known of it."""
        ended = task.status.state in TERMINAL
        if task.artifacts:
            self._overlaps = overlaps(self._run.record.artifacts)
        for artifact in map(self._content, task.artifacts):
            if self.faults:  # what was left out of the chunks is left out here, so that the rest is recognised
                artifact = replace(artifact, parts=self.readable(artifact.parts))
            if artifact.parts:
                self.emitted = True
                await self._emit_new(with_joined_text(artifact), append=False, last_chunk=ended)
        _, progress, usage = beyond(task.metadata)
        if usage is not None:
            self._count(usage)
        if task.status.state is TaskState.WORKING:
            await self._pass_status(task.status, progress, None)

    async def emit(self, parts: Sequence[Part]) -> None:
        """Emit content that came with a message, not with an artifact."""
        if parts := self.readable(parts):
            self.emitted = True
            answer = Artifact(artifact_id=ANSWER, parts=tuple(parts))
            self._overlaps |= overlaps([each for each in self._run.record.artifacts if each.artifact_id == ANSWER])
            await self._emit_new(answer, append=False, last_chunk=True)

    # -- content that cannot be read -----------------------------------------------------------------------------------

    def readable(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The parts that can be passed on; the others are noted."""
        whole: list[Part] = []
        for part in self._unmarked(parts):
            try:
                whole.append(self._run.bounds.part("part", part))
            except ValueError as fault:
                self.leave_out(str(fault))
        return tuple(whole)

    def _unmarked(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The parts without those that were read without content."""
        for part in parts:
            if part.metadata is not None and UNREADABLE_PART in part.metadata:
                self.leave_out(NO_TEXT)
                return tuple([each for each in parts if not (each.metadata and UNREADABLE_PART in each.metadata)])
        return tuple(parts)

    def _content(self, artifact: Artifact) -> Artifact:
        """The artifact without costs, and without parts that have no content. Its id is one that can be kept."""
        artifact = _without_cost(artifact)
        artifact_id = artifact.artifact_id
        if len(artifact_id) > NAME_MAX or "\0" in artifact_id:
            artifact = replace(artifact, artifact_id=blake2b(artifact_id.encode(), digest_size=16).hexdigest())
            self.leave_out(UNKEPT_ID)
        parts = self._unmarked(artifact.parts)
        return artifact if parts is artifact.parts else replace(artifact, parts=parts)

    async def _give(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Emit an artifact or a chunk of one, without what an agent may not say."""
        try:
            await self._run.artifact(artifact, append=append, last_chunk=last_chunk)
        except ValueError:
            if (whole := self._readable_artifact(artifact)) is not None:
                await self._run.artifact(whole, append=append, last_chunk=last_chunk)
            else:
                self.emitted = bool(self._run.record.artifacts)

    def _readable_artifact(self, artifact: Artifact) -> Artifact | None:
        """The artifact without what an agent may not say; None if nothing is left."""
        parts = self.readable(artifact.parts)
        if not parts:
            return None
        for whole in (replace(artifact, parts=parts), Artifact(artifact_id=artifact.artifact_id, parts=parts)):
            try:
                return self._run.bounds.artifact(whole)
            except ValueError as fault:
                self.leave_out(str(fault))
        return None

    def leave_out(self, fault: str) -> None:
        """Note, once, why something is left out, and log it."""
        if fault in self.faults or len(self.faults) >= FAULTS_MAX:
            return
        self.faults.append(fault)
        log.warning(
            "upstream %s: task %s: content that cannot be read is left out: %s",
            self._name,
            self._run.head.id,
            fault,
            extra=about(self._name),
        )

    def _count(self, total: Usage) -> None:
        """Count the usage. `total` is the upstream's sum for the whole task so far; one out of bounds is left out."""
        if total == self.used or total == self._refused:
            return
        more = [new - old for new, old in zip(_all_numbers(total), _all_numbers(self.used), strict=True)]
        if min(_all_numbers(total)) >= 0:
            more = [max(0, number) for number in more]
        given, made, both, cached = more
        if self._run.usage(Usage.of(given, made, both, cached_tokens=cached, upstream=self._upstream)):
            self.used = total
        else:
            self._refused = total


def _without_cost(artifact: Artifact) -> Artifact:
    """The artifact without protoAgent's cost part, which becomes usage here."""
    for part in artifact.parts:
        if part.data is not UNSET and media_type(part) == COST_TYPE:
            break
    else:
        return artifact
    return replace(artifact, parts=tuple(part for part in artifact.parts if media_type(part) != COST_TYPE))


class FreshChunk(Struct, frozen=True):
    """A chunk to pass on. `settled`: from here on, the artifact continues as the upstream sends it."""

    artifact: Artifact | None
    append: bool
    settled: bool


class Overlap(Struct):
    """One artifact of which `told` has been passed on: what comes of it may repeat that, or go on behind it.

        EXPECTED ── an addition: it goes on where it was ──────────────────────────────► settled
          │     `now` None
          │ the artifact anew, or (with deltas) an addition that may be its beginning
          ▼
        COMPARING ── `now` goes beyond `told`: only the rest is passed on ─────────────► settled
          │ ▲ │      `now` differs, or is all: it replaces what was passed on ─────────► settled
          │ └─┘      `now` is the beginning of `told`: nothing is passed on
          └── nothing more comes ──► `left`: the upstream has less, which replaces what was passed on

    `now` is what the upstream has sent since. `begun`: that is its whole artifact, not an addition to `told`. `last`:
    the last chunk that arrived. Once it is settled, the artifact continues as the upstream sends it.
    """

    told: tuple[Part, ...]
    now: tuple[Part, ...] | None = None
    begun: bool = False
    last: Artifact | None = None

    def chunk(self, artifact: Artifact, *, append: bool, whole: bool) -> FreshChunk:
        """Take a chunk, and return what to pass on. `whole`: no other chunk follows."""
        if append and self.now is None:
            return FreshChunk(artifact, append=True, settled=True)  # it continues where it was
        if not append:
            self.now, self.begun = (), True
        self.last = artifact
        self.now = join_text((*(self.now or ()), *artifact.parts))
        told = _as_given(self.told, self.now)
        more = parts_beyond(told, self.now)
        if more is not None:
            return FreshChunk(replace(artifact, parts=more) if more else None, append=True, settled=True)
        if not whole and parts_beyond(self.now, told) is not None:
            return FreshChunk(None, append=True, settled=False)  # it is still repeating known text
        return FreshChunk(replace(artifact, parts=self.now), append=not self.begun, settled=True)

    def left(self) -> Artifact | None:
        """The artifact's replacement if nothing more comes, because the upstream has less than was passed on."""
        if self.last is None or not self.begun or self.now is None:
            return None
        return replace(self.last, parts=self.now)


def overlaps(told: Sequence[Artifact], *, anew: bool = False, begun: Collection[str] = ()) -> dict[str, Overlap]:
    """An Overlap for each known artifact. `anew`: an append may be the whole artifact, since deltas do not say.

    `begun` are those of which it is known.
    """
    now: tuple[Part, ...] | None = () if anew else None
    return {each.artifact_id: Overlap(join_text(each.parts), now=now, begun=each.artifact_id in begun) for each in told}


def _all_numbers(usage: Usage) -> tuple[int, ...]:
    return usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.cached_tokens


def _as_given(told: Sequence[Part], given: Sequence[Part]) -> tuple[Part, ...]:
    """The parts of `told`, with bytes in place of links to them wherever `given` has the bytes."""
    pairs = zip(told, given, strict=False)
    return (*(new if same_parts((old,), (new,)) else old for old, new in pairs), *told[len(given) :])
