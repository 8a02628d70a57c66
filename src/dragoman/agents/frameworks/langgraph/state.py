"""The state of a graph: how a caller's message becomes its input, and the classes of its values."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, get_args, get_type_hints

from dragoman.agents.frameworks.conversation import PlainFile, PlainMessage
from dragoman.agents.frameworks.langgraph.messages import message_of
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


def input_of(keys: dict[str, Any], words: PlainMessage, data: Any) -> Any:
    """The input. A data part that is an object is used as it is; text goes to `messages`, or to the only text key.

    Raises Reject if neither fits.
    """
    if isinstance(data, dict) and OBJECT not in keys and any(key in keys for key in data):
        texts = [piece for piece in words.pieces if isinstance(piece, PlainFile)]
        bare = PlainMessage(words.agent, tuple(texts))
        return data | ({MESSAGES: [message_of(bare)]} if MESSAGES in keys and MESSAGES not in data and texts else {})
    if MESSAGES in keys:
        return {MESSAGES: [message_of(words)]}
    if OBJECT in keys:
        return words.text if data is None else data
    if (key := text_key(keys)) and data is None:
        return {key: words.text}
    raise Reject(f"Send a data part, an object with {', '.join(keys)}.")


def text_key(keys: Mapping[str, Any]) -> str:
    """The key that takes the text of a message: the only one of type `str`; empty if there is none, or several."""
    texts = [key for key, kind in keys.items() if kind is str]
    return texts[0] if len(texts) == 1 else ""


def classes_of(graph: Any) -> set[tuple[str, str]]:
    """The classes that the schemas of a graph and its subgraphs name, by module and name.

    Checkpoints may have values of them: a reader makes objects of no other class.
    """
    found: set[Any] = set()
    waiting = [kind for each in (graph, *_subgraphs(graph)) for kind in _schemas(each)]
    while waiting:
        kind = waiting.pop()
        try:
            if kind in found:
                continue
            found.add(kind)
        except TypeError:  # not hashable, as the arguments of Annotated may be
            continue
        waiting.extend(get_args(kind))
        if isinstance(kind, type):
            with suppress(Exception):  # whatever an annotation of the user's raises
                waiting.extend(get_type_hints(kind, include_extras=True).values())
    return {
        (kind.__module__, kind.__qualname__)
        for kind in found
        if isinstance(kind, type) and kind.__module__ != "builtins" and "." not in kind.__qualname__
    }


def _subgraphs(graph: Any) -> Iterator[Any]:
    with suppress(Exception):  # a graph that is not LangGraph's own has none to tell
        for _, subgraph in graph.get_subgraphs(recurse=True):
            yield subgraph


def _schemas(graph: Any) -> Iterator[Any]:
    builder = getattr(graph, "builder", None)
    for name in ("state_schema", "input_schema", "output_schema", "context_schema"):
        yield getattr(builder, name, None)
    for node in getattr(builder, "nodes", {}).values():
        yield getattr(node, "input_schema", None)
    for channel in graph.channels.values():
        yield getattr(channel, "ValueType", None)
        yield getattr(channel, "UpdateType", None)
