"""A task's message and the earlier conversation, in plain pieces that every framework has a form for.

Invariant: content that a model cannot be given is described to it, never dropped in silence. Two callers never have the
same session of a framework, whatever context ids they choose.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from urllib.parse import quote

from msgspec import UNSET, Struct
from msgspec.structs import replace

from dragoman.agents.python.context import Context, run_of
from dragoman.engine.api import Unreadable
from dragoman.model.message import Message, Part, Role


class PlainFile(Struct, frozen=True):
    """A file of a message: its bytes, or the URL where they are."""

    media_type: str
    raw: bytes | None = None
    url: str | None = None
    name: str | None = None

    @property
    def image(self) -> bool:
        """Whether the file is a picture."""
        return self.media_type.startswith("image/")

    @property
    def described(self) -> str:
        """The description for a model that cannot see the file."""
        place = f" at {self.url}" if self.url else ""
        return f"[file {self.name or 'without a name'}, {self.media_type}{place}]"


class PlainMessage(Struct, frozen=True):
    """One message. `pieces` are texts and files in their order; data becomes JSON text."""

    agent: bool
    pieces: tuple[str | PlainFile, ...]

    @property
    def text(self) -> str:
        """The whole message as text; files are described."""
        return "\n".join(piece if isinstance(piece, str) else piece.described for piece in self.pieces)

    @property
    def files(self) -> tuple[PlainFile, ...]:
        """The files of the message."""
        return tuple(piece for piece in self.pieces if isinstance(piece, PlainFile))


async def message(ctx: Context) -> PlainMessage:
    """The task's message. The files that it links to are fetched, as far as the server's settings allow."""
    return plain_message([await _fetch(ctx, part) for part in ctx.parts])


async def history(ctx: Context) -> tuple[PlainMessage, ...]:
    """The conversation before this task, oldest first, without empty messages."""
    return _all_words(await ctx.history())


async def history_for_session(ctx: Context, others: Collection[str]) -> tuple[PlainMessage, ...]:
    """The conversation before this task, for a session that has nothing of it, as `history`.

    Messages of tasks that are still open are not in it, for those tasks will be in the session themselves; nor are
    those of the tasks `others`.
    """
    messages = await ctx.history()
    left = await run_of(ctx).open_tasks(list({earlier.task_id for earlier in messages if earlier.task_id}))
    return _all_words(earlier for earlier in messages if earlier.task_id not in left and earlier.task_id not in others)


def _all_words(messages: Iterable[Message]) -> tuple[PlainMessage, ...]:
    return tuple(words for earlier in messages if (words := _words(earlier)).pieces)


def session_of(ctx: Context) -> str:
    """The name of this conversation's session: its caller and its context."""
    return f"{quote(ctx.principal.id, safe='')}/{ctx.context_id}"


def plain_message(parts: Sequence[Part], *, agent: bool = False) -> PlainMessage:
    """Convert the parts of a message to pieces."""
    return PlainMessage(agent, tuple(piece for part in parts if (piece := _piece(part)) is not None))


async def _fetch(ctx: Context, part: Part) -> Part:
    if part.url is None:
        return part
    try:
        return replace(part, raw=await ctx.read(part), url=None)
    except Unreadable:
        return part


def _words(earlier: Message) -> PlainMessage:
    return plain_message(earlier.parts, agent=earlier.role is Role.AGENT)


def _piece(part: Part) -> str | PlainFile | None:
    if part.text is not None:
        return part.text or None
    if part.raw is not None or part.url is not None:
        kind = part.media_type or "application/octet-stream"
        if part.raw is not None and (kind.startswith("text/") or kind == "application/json"):
            return f"{part.filename}:\n{_text(part.raw)}" if part.filename else _text(part.raw)
        return PlainFile(kind, part.raw, part.url, part.filename)
    return None if part.data is UNSET else json.dumps(part.data, ensure_ascii=False)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
