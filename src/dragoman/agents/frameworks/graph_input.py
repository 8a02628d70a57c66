"""The input of a LangGraph graph, and a message converted to it.

Invariant: a caller whose message does not fit is told what would: the task is rejected, not failed.
"""

import base64
import importlib
from typing import Any, get_type_hints

from dragoman.agents.frameworks.conversation import File, Said
from dragoman.engine.api import Reject

MESSAGES = "messages"
"""The key of a state that holds a conversation, by LangGraph's own convention (MessagesState)."""

OBJECT = ""
"""The key in the result of `keys_of` for an input that is not an object."""


def keys_of(graph: Any) -> dict[str, Any]:
    """The keys of the graph's input, each with its type."""
    builder = getattr(graph, "builder", None)
    schema = getattr(builder, "input_schema", None)
    try:
        keys = get_type_hints(schema)
    except (TypeError, NameError):  # no class, or one with names that cannot be resolved here
        keys = {}
    channels = graph.input_channels
    return keys or ({OBJECT: object} if isinstance(channels, str) else dict.fromkeys(channels, object))


def input_of(keys: dict[str, Any], words: Said, data: Any) -> Any:
    """The input. A data part that is an object is used as it is; text goes to `messages`, or to the only text key.

    Raises Reject if neither fits.
    """
    if isinstance(data, dict) and OBJECT not in keys and any(key in keys for key in data):
        texts = [piece for piece in words.pieces if isinstance(piece, File)]
        bare = Said(words.agent, tuple(texts))
        return data | ({MESSAGES: [message_of(bare)]} if MESSAGES in keys and MESSAGES not in data and texts else {})
    if MESSAGES in keys:
        return {MESSAGES: [message_of(words)]}
    if OBJECT in keys:
        return words.text if data is None else data
    texts_only = [key for key, kind in keys.items() if kind is str]
    if len(texts_only) == 1 and data is None:
        return {texts_only[0]: words.text}
    raise Reject(f"Send a data part, an object with {', '.join(keys)}.")


def message_of(words: Said) -> Any:
    """A message of LangChain. Images and files go into its content if their bytes are known."""
    messages = importlib.import_module("langchain_core.messages")
    if words.agent:
        return messages.AIMessage(words.text)
    if not words.files:
        return messages.HumanMessage(words.text)
    return messages.HumanMessage([_block(piece) for piece in words.pieces])


def _block(piece: str | File) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    if piece.raw is None:
        return {"type": "text", "text": piece.described}
    content = base64.b64encode(piece.raw).decode()
    if piece.image:
        return {"type": "image_url", "image_url": {"url": f"data:{piece.media_type};base64,{content}"}}
    block = {"type": "file", "base64": content, "mime_type": piece.media_type}
    return block | ({"filename": piece.name} if piece.name else {})
