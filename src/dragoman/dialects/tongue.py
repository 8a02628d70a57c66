"""The client's side of a dialect: it encodes calls, and decodes results, updates and errors. `dialects.api` is the
server's side.

Invariant: pure. An unreadable value raises InvalidAgentResponse, which names what was expected, and nothing else.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from dragoman.model.card import AgentCard
from dragoman.model.errors import A2AError
from dragoman.model.message import Message
from dragoman.model.operations import Operation, PushConfig
from dragoman.model.task import Task
from dragoman.model.updates import TaskList, Update

Answer = Task | Message | TaskList | PushConfig | tuple[PushConfig, ...] | AgentCard | None
"""The answer to a unary operation, as a client gets it."""


class RpcCall(Struct, frozen=True):
    """A JSON-RPC call: its method, and its params as JSON."""

    method: str
    params: bytes


class RestCall(Struct, frozen=True):
    """An HTTP+JSON call: `path` follows the interface's URL, with its query; `body` is empty if there is none."""

    verb: str
    path: str
    body: bytes = b""


class Tongue(Struct, frozen=True, kw_only=True):
    """The client's side of one dialect.

    `rpc` and `rest` encode an operation for either binding; None: the dialect lacks that binding. They raise
    UnsupportedOperation for an operation that it cannot express. `read_answer` decodes the JSON of a result (the whole
    body over HTTP+JSON), `read_update` that of a stream frame; one frame may hold several updates, or none.
    `read_event` is the fast path for an ordinary frame with one update, in the envelope of that call; it returns None
    for any other. With `enveloped` False, frames over JSON-RPC have no envelope. `read_error` decodes the `error`
    member of a JSON-RPC answer, or the body of an HTTP answer with that status (0: it came in an envelope); an unknown
    error becomes the nearest known one. `headers` go with every call. `streams`, `subscribes`, `pushes` and `lists` say
    which operations the dialect has at all; if it cannot subscribe, a client polls. `deltas`: its chunks
    do not say whether they continue an artifact or begin it again. `chats`: an agent that fails over A2A may answer
    chat completions. `slash`: the URL of its JSON-RPC endpoint ends with a slash.
    """

    name: str
    rpc: Callable[[Operation], RpcCall] | None
    rest: Callable[[Operation], RestCall] | None
    read_answer: Callable[[Operation, bytes], Answer]
    read_update: Callable[[bytes], tuple[Update, ...]]
    read_event: Callable[[str, int], Update | None] = lambda data, call_id: None
    read_error: Callable[[bytes, int], A2AError]
    headers: Mapping[str, str] = {}
    enveloped: bool = True
    streams: bool = True
    subscribes: bool = True
    pushes: bool = True
    lists: bool = True
    deltas: bool = False
    chats: bool = False
    slash: bool = False
