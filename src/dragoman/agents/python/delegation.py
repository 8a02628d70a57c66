"""Delegating: turns an agent's wishes into an order for another agent, and streams the result chunk by chunk.

Invariant: a fault in an order is raised where the agent gives the order.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from msgspec.structs import replace

from dragoman.engine.api import Delegation, Run
from dragoman.engine.runs.places import start_within_branch
from dragoman.model.events import ArtifactChunk
from dragoman.model.message import Part

CHUNKS_MAX = 64
"""How many parts wait for an agent that reads more slowly than the other one writes."""


def build_order(run: Run, agent: str, parts: tuple[Part, ...], **wishes: Any) -> Delegation:
    """Build the order. Raises ValueError or TypeError if a value is invalid."""
    if not isinstance(agent, str) or not agent:
        raise TypeError(f"delegate to {agent!r:.100}: name an agent of this server by its id")
    return Delegation(agent=agent, parts=parts, **wishes).check(run.bounds, run.message.parts)


class HeardArtifact:
    """The content heard of one artifact. If its agent is run again, the artifact begins again and repeats itself."""

    __slots__ = ("_again", "_at", "_files", "_texts")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._files: list[Part] = []
        self._at = 0  # how many of the files have been repeated this time
        self._again: str | None = None

    def new(self, chunk: ArtifactChunk) -> list[Part]:
        """The parts of a chunk, without what has been heard before. From the first difference on, everything is new."""
        if not chunk.append:
            self._again = "" if self._texts else None
            self._at = 0
        return [new for part in chunk.artifact.parts if (new := self._new(part)) is not None]

    def _new(self, part: Part) -> Part | None:
        text = part.text
        if text is None:
            at, self._at = self._at, self._at + 1
            if self._files[at : at + 1] == [part]:
                return None
            self._files[at:] = [part]
            return part
        if self._again is None:
            self._texts.append(text)
            return part
        said = "".join(self._texts)
        again = self._again + text
        if said.startswith(again):
            self._texts, self._again = [said], again
            return None
        self._texts, self._again = [again], None
        return replace(part, text=again[len(said) :] if again.startswith(said) else again)


async def stream_result(run: Run, order: Delegation) -> AsyncGenerator[str | Part, None]:
    """Yield the result of an order as it comes; the result of an order that was carried out before, all at once."""
    chunks: asyncio.Queue[Part] = asyncio.Queue(CHUNKS_MAX)
    told = False

    heard: dict[str, HeardArtifact] = {}

    async def hear(chunk: ArtifactChunk) -> None:
        for part in heard.setdefault(chunk.artifact.artifact_id, HeardArtifact()).new(chunk):
            await chunks.put(part)

    delegating = start_within_branch(run.delegate(order, hear))
    coming = asyncio.ensure_future(chunks.get())
    try:
        while True:
            await asyncio.wait((delegating, coming), return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                told = True
                yield _plain(coming.result())
                coming = asyncio.ensure_future(chunks.get())
            elif chunks.empty():
                break
        for part in (await delegating).parts if not told else ():
            yield _plain(part)
        await delegating
    finally:
        coming.cancel()
        delegating.cancel()
        await asyncio.wait((delegating,))
        if not delegating.cancelled():
            delegating.exception()  # it was raised, or nobody listens any more


def _plain(part: Part) -> str | Part:
    """A part that is only text as a str, any other as it is."""
    return part.text if part.text is not None and part == Part(text=part.text) else part
