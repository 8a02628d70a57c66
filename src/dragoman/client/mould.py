"""Fast path for stream frames that differ from the one before in a single text, as most chunks of a model's answer do.

Invariant: the result is the same as if the dialect had decoded the frame. A mould is tested before use: it is decoded
with a different text in the same place, and only that text may change. So the place is a JSON string, and any string
can stand there.
"""

from collections.abc import Callable

import msgspec
from msgspec.json import Decoder

from dragoman.dialects.sse import ServerSentEvent
from dragoman.model.message import Artifact, Part
from dragoman.model.updates import ArtifactUpdate, Update

LEARNED_MAX = 16
"""Most moulds that one stream may learn: learning one costs as much as decoding two frames."""

_TRIED = '"\N{BLACK CHESS QUEEN}"'
"""The text that a mould is tested with. Without its quotes it would not be JSON."""

_TEXT = Decoder(str)


class Mould:
    """Decodes the frames of one stream. `read` decodes an ordinary frame, and returns None for any other."""

    __slots__ = ("_after", "_before", "_cast", "_end", "_left", "_read", "_start")

    def __init__(self, read: Callable[[str], Update | None]) -> None:
        self._read = read
        self._cast: ArtifactUpdate | None = None
        self._before = self._after = ""
        self._start = self._end = 0
        self._left = LEARNED_MAX

    def read(self, event: ServerSentEvent) -> Update | None:
        """Decode an event; return None if anything about it is unusual."""
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
        """Take this frame as the mould of the next ones, if it passes the test."""
        self._left -= 1
        text = update.artifact.parts[0].text if update.artifact.parts else None
        if text is None or _with(update, text) != update:
            return
        before, found, after = data.partition(msgspec.json.encode(text).decode())
        if found and self._read(before + _TRIED + after) == _with(update, _TRIED[1:-1]):
            self._cast, self._before, self._after = update, before, after
            self._start, self._end = len(before), -len(after)


def _with(update: ArtifactUpdate, text: str) -> ArtifactUpdate:
    """Return the same chunk with another text as its only part."""
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
