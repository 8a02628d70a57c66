"""Frames of a stream that differ in one text alone: nearly all that a model's answer is made of.

Invariant: what comes of a frame is what its dialect reads in it. A mould is tried before it is used: another text put
in its place was read as that text, and as nothing else. So its place is that of a JSON string, and any may stand there.
"""

from collections.abc import Callable

import msgspec
from msgspec.json import Decoder

from dragoman.dialects.sse import ServerSentEvent
from dragoman.model.message import Artifact, Part
from dragoman.model.updates import ArtifactUpdate, Update

LEARNED_MAX = 16
"""Moulds that one stream is taken for: learning one costs as much as reading two frames."""

_TRIED = '"\N{BLACK CHESS QUEEN}"'
"""Another text, which would not be JSON without its quotes."""

_TEXT = Decoder(str)


class Mould:
    """Reads the frames of one stream: `read` reads any that is as it should be, and gives None for others."""

    __slots__ = ("_after", "_before", "_cast", "_end", "_left", "_read", "_start")

    def __init__(self, read: Callable[[str], Update | None]) -> None:
        self._read = read
        self._cast: ArtifactUpdate | None = None
        self._before = self._after = ""
        self._start = self._end = 0
        self._left = LEARNED_MAX

    def read(self, event: ServerSentEvent) -> Update | None:
        """What the event tells, None if anything about it is unusual."""
        if event.event != "message":
            return None
        data, cast = event.data, self._cast
        if cast is not None and data.startswith(self._before) and data.endswith(self._after):
            try:
                text = _TEXT.decode(data[self._start : self._end])
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
            else:
                return _with(cast, text)
        update = self._read(data)
        if type(update) is ArtifactUpdate and update.append and not update.last_chunk and self._left:
            self._learn(data, update)
        return update

    def _learn(self, data: str, update: ArtifactUpdate) -> None:
        """Let the next frames be like this one."""
        self._left -= 1
        text = update.artifact.parts[0].text if update.artifact.parts else None
        if text is None or _with(update, text) != update:
            return
        before, found, after = data.partition(msgspec.json.encode(text).decode())
        if found and self._read(before + _TRIED + after) == _with(update, _TRIED[1:-1]):
            self._cast, self._before, self._after = update, before, after
            self._start, self._end = len(before), -len(after)


def _with(update: ArtifactUpdate, text: str) -> ArtifactUpdate:
    """The same chunk with another text, and nothing else in it."""
    artifact = update.artifact
    return ArtifactUpdate(
        task_id=update.task_id,
        context_id=update.context_id,
        artifact=Artifact(
            artifact_id=artifact.artifact_id,
            parts=(Part(text=text),),
            name=artifact.name,
            description=artifact.description,
        ),
        append=update.append,
        last_chunk=update.last_chunk,
    )
