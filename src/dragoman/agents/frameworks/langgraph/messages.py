"""Messages of LangChain: those that a graph is given, and the text, files and tokens of those that it gives.

Invariant: a file in a message of a model or a node becomes a file part, or a text that describes it, never nothing.
"""

import base64
import importlib
from collections.abc import Iterator
from typing import Any

from dragoman.agents.frameworks.conversation import PlainFile, PlainMessage
from dragoman.agents.frameworks.files import file_at, file_of
from dragoman.agents.python.context import Context
from dragoman.model.message import Part


def message_of(words: PlainMessage) -> Any:
    """A message of LangChain. Images and files go into its content if their bytes are known."""
    messages = importlib.import_module("langchain_core.messages")
    if words.agent:
        return messages.AIMessage(words.text)
    if not words.files:
        return messages.HumanMessage(words.text)
    return messages.HumanMessage([_block(piece) for piece in words.pieces])


def _block(piece: str | PlainFile) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    if piece.raw is None:
        return {"type": "text", "text": piece.described}
    content = base64.b64encode(piece.raw).decode()
    if piece.image:
        return {"type": "image_url", "image_url": {"url": f"data:{piece.media_type};base64,{content}"}}
    block = {"type": "file", "base64": content, "mime_type": piece.media_type}
    return block | ({"filename": piece.name} if piece.name else {})


FILES = frozenset({"image", "audio", "video", "file"})
"""The types of the content blocks that are files, by LangChain's own convention."""

SPEAKERS = ("AIMessageChunk", "ai")
"""The types of the messages that are the agent's answer."""


class MessageTexts:
    """The messages of models as they arrive, token by token or whole."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.goes_on = False
        """Whether there is text before the first message, from an earlier run."""
        self._last: str | None = None
        self._model: tuple[str | None, str] = (None, "")
        """The message that named its model last, and that name. The tokens come in a chunk of their own."""

    def text(self, said: Any) -> str:
        """The text that a message adds to the answer, with paragraphs between messages. Counts its usage."""
        if said.type not in SPEAKERS:
            return ""
        if name := said.response_metadata.get("model_name") or said.response_metadata.get("model"):
            self._model = said.id, name if isinstance(name, str) else ""
        if used := said.usage_metadata:
            message, model = self._model
            self._ctx.usage(
                input=used.get("input_tokens", 0),
                output=used.get("output_tokens", 0),
                model=model if message == said.id else "",
            )
        content = said.content
        text = content if type(content) is str else plain(content)
        if text and said.id != self._last:
            if self._last is not None or self.goes_on:
                text = f"\n\n{text}"
            self._last = said.id
        return text


def files_in(said: Any) -> Iterator[Part]:
    """The files of a message that is the agent's answer."""
    if isinstance(said.content, str) or said.type not in SPEAKERS:
        return
    for block in said.content_blocks:
        if (file := file_in(block)) is not None:
            yield file


def file_in(block: Any) -> Part | None:
    """The file that a content block is, as a part; None if it is none."""
    if isinstance(block, dict) and block.get("type") == "non_standard":
        block = block.get("value")
    if not isinstance(block, dict) or block.get("type") not in FILES | {"image_url", "media"}:
        return None
    extras = block.get("extras")
    name = block.get("filename") or (extras.get("filename") if isinstance(extras, dict) else None)
    content = block.get("base64") or block.get("data")
    if content:
        return file_of(content, block.get("mime_type"), name)
    linked = block.get("image_url")
    url = block.get("url") or (linked.get("url") if isinstance(linked, dict) else linked)
    return file_at(url, block.get("mime_type"), name or block.get("file_id"))


def plain(content: Any) -> str:
    """The text in the content of a message."""
    if isinstance(content, str):
        return content
    blocks = (block if isinstance(block, str) else block.get("text", "") for block in content)
    return "".join(block for block in blocks if isinstance(block, str))
