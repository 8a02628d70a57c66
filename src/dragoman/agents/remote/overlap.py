"""Finds the new content when an upstream repeats an artifact, because a connection or a server was lost.

Invariant: pure. A reader of the resulting chunks, one after the other, reads no text twice; folding them yields the
upstream's artifact.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from dragoman.client.folding import following, joined
from dragoman.engine.files import same_parts
from dragoman.model.message import Artifact, Part


class Chunk(Struct, frozen=True):
    """A chunk to pass on. `settled`: from here on, the artifact continues as the upstream sends it."""

    artifact: Artifact | None
    append: bool
    settled: bool


class Overlap(Struct):
    """One artifact of which `told` has been passed on. `now` is what the upstream has sent of it since, None: nothing.

    `begun`: `now` is the upstream's whole artifact, not an addition to `told`. `last`: the last chunk that arrived.
    """

    told: tuple[Part, ...]
    now: tuple[Part, ...] | None = None
    begun: bool = False
    last: Artifact | None = None

    def chunk(self, artifact: Artifact, *, append: bool, whole: bool) -> Chunk:
        """Take a chunk, and return what to pass on. `whole`: no other chunk follows."""
        if append and self.now is None:
            return Chunk(artifact, append=True, settled=True)  # it continues where it was
        if not append:
            self.now, self.begun = (), True
        self.last = artifact
        self.now = joined((*(self.now or ()), *artifact.parts))
        told = _as_given(self.told, self.now)
        more = following(told, self.now)
        if more is not None:
            return Chunk(replace(artifact, parts=more) if more else None, append=True, settled=True)
        if not whole and following(self.now, told) is not None:
            return Chunk(None, append=True, settled=False)  # it is still repeating known text
        return Chunk(replace(artifact, parts=self.now), append=not self.begun, settled=True)

    def left(self) -> Artifact | None:
        """The artifact's replacement if nothing more comes, because the upstream has less than was passed on."""
        if self.last is None or not self.begun or self.now is None:
            return None
        return replace(self.last, parts=self.now)


def _as_given(told: Sequence[Part], given: Sequence[Part]) -> tuple[Part, ...]:
    """The parts of `told`, with bytes in place of links to them wherever `given` has the bytes."""
    pairs = zip(told, given, strict=False)
    return (*(new if same_parts((old,), (new,)) else old for old, new in pairs), *told[len(given) :])


def overlaps(told: Sequence[Artifact], *, anew: bool = False) -> dict[str, Overlap]:
    """An Overlap for each known artifact. `anew`: an append may be the whole artifact, since deltas do not say."""
    return {each.artifact_id: Overlap(joined(each.parts), now=() if anew else None) for each in told}
