"""The artifacts of one run: their ids, and which chunk continues which artifact.

Invariant: the first chunk of an artifact is never an append. The same code run again uses the same ids, so a resumed
run replaces what the earlier one left.
"""

from msgspec.structs import replace

from dragoman.agents.content import parts_of, sound_artifact
from dragoman.engine.api import Run
from dragoman.model.message import Artifact


class Artifacts:
    """Emits what an agent yields, returns, and passes to `ctx.artifact`.

    Everything that is yielded goes into one artifact, chunk by chunk. The end of the task closes it: to set a flag on
    the last chunk, every chunk would have to be held back until the next one arrives.
    """

    __slots__ = ("_flow", "_flows", "_names", "_run")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._flow: str | None = None
        self._flows = 0
        self._names: dict[str, str | None] = {}

    async def add(self, content: object, *, last: bool = False) -> None:
        """Add to the artifact that the run is writing. An Artifact stands for itself; None and "" add nothing.

        `last` closes the artifact: the agent returned the content instead of yielding it.
        """
        if content is None or (isinstance(content, str) and not content):
            return
        if isinstance(content, Artifact):
            await self._give(sound_artifact(content), append=False, last=True)
            return
        parts = parts_of(content)
        if not parts:
            return
        append = self._flow is not None
        if self._flow is None:
            self._flows += 1
            self._flow = self._fresh("result", self._flows)
            self._names[self._flow] = None
        await self._run.artifact(Artifact(artifact_id=self._flow, parts=parts), append=append, last_chunk=last)

    def turn(self) -> None:
        """Start a new artifact for what is yielded after the caller's answer: the caller is about to be asked."""
        self._flow = None

    async def given(
        self,
        content: object,
        *,
        name: str | None,
        description: str | None,
        id: str | None,  # noqa: A002  the field's word
        append: bool,
        last: bool | None,
        media_type: str | None,
    ) -> str:
        """Emit one artifact, or a chunk of one. Returns its id.

        With `append` and no `id`, the chunk continues the newest artifact of that name (without a name: the newest).
        `last` None: a whole artifact is closed, a chunk leaves it open.
        """
        artifact = sound_artifact(content) if isinstance(content, Artifact) else None
        if artifact is None:
            parts = parts_of(content, media_type=media_type, filename=name)
            if id is None:
                id = (self._newest(name) if append else None) or self._fresh("artifact", len(self._names) + 1)  # noqa: A001
            artifact = Artifact(artifact_id=id, parts=parts, name=name, description=description)
        elif name is not None or description is not None or id is not None:
            artifact = replace(
                artifact,
                artifact_id=id or artifact.artifact_id,
                name=name or artifact.name,
                description=description or artifact.description,
            )
        await self._give(artifact, append=append, last=not append if last is None else last)
        return artifact.artifact_id

    async def _give(self, artifact: Artifact, *, append: bool, last: bool) -> None:
        append = append and artifact.artifact_id in self._names
        self._names[artifact.artifact_id] = artifact.name
        await self._run.artifact(artifact, append=append, last_chunk=last)

    def _newest(self, name: str | None) -> str | None:
        candidates = (id_ for id_, known in reversed(self._names.items()) if name is None or known == name)
        return next(candidates, None)

    def _fresh(self, stem: str, number: int) -> str:
        fresh = stem if number == 1 else f"{stem}-{number}"
        while fresh in self._names:
            number += 1
            fresh = f"{stem}-{number}"
        return fresh
