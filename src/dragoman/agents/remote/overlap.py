"""An artifact that an upstream tells again, since a connection or a server was lost: what of it is not known yet.

Invariant: pure. Whoever reads the chunks that come of this, one after the other, reads no text twice; whoever folds
them has the upstream's artifact in the end.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from dragoman.client.folding import following, joined
from dragoman.engine.links import same_parts
from dragoman.model.message import Artifact, Part


class Chunk(Struct, frozen=True):
    """What is to be passed on. `settled`: from here on the artifact goes on as the upstream tells it."""

    artifact: Artifact | None
    append: bool
    settled: bool


class Overlap(Struct):
    """One artifact of which `told` has been passed on. `now` is what the upstream has told of it since, None: nothing.

    `begun`: what the upstream has is `now`, and not what it adds to `told`. `last`: the last chunk that came.
    """

    told: tuple[Part, ...]
    now: tuple[Part, ...] | None = None
    begun: bool = False
    last: Artifact | None = None

    def chunk(self, artifact: Artifact, *, append: bool, whole: bool) -> Chunk:
        """A chunk came; with `whole` no other follows."""
        if append and self.now is None:
            return Chunk(artifact, append=True, settled=True)  # it goes on where it was
        if not append:
            self.now, self.begun = (), True
        self.last = artifact
        self.now = joined((*(self.now or ()), *artifact.parts))
        told = _as_given(self.told, self.now)
        more = following(told, self.now)
        if more is not None:
            return Chunk(replace(artifact, parts=more) if more else None, append=True, settled=True)
        if not whole and following(self.now, told) is not None:
            return Chunk(None, append=True, settled=False)  # it is catching up
        return Chunk(replace(artifact, parts=self.now), append=not self.begun, settled=True)

    def left(self) -> Artifact | None:
        """What replaces the artifact if nothing more comes: the upstream has less of it than was told."""
        if self.last is None or not self.begun or self.now is None:
            return None
        return replace(self.last, parts=self.now)


def _as_given(told: Sequence[Part], given: Sequence[Part]) -> tuple[Part, ...]:
    """What was told, as it was given: a link to bytes is those bytes."""
    pairs = zip(told, given, strict=False)
    return (*(new if same_parts((old,), (new,)) else old for old, new in pairs), *told[len(given) :])


def overlaps(told: Sequence[Artifact], *, anew: bool = False) -> dict[str, Overlap]:
    """What may be told again; `anew`: what is added to an artifact may be all of it, since deltas do not say which."""
    return {each.artifact_id: Overlap(joined(each.parts), now=() if anew else None) for each in told}
