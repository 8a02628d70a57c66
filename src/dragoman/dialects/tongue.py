"""A dialect as a client speaks it: calls out, results, updates and errors in. The other direction of `dialects.api`.

Invariant: pure. What cannot be read raises InvalidAgentResponse, which names what was expected, and nothing else.
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
"""What a unary operation is answered with, as a client has it."""


class RpcCall(Struct, frozen=True):
    """A JSON-RPC call: its method, and its params as JSON."""

    method: str
    params: bytes


class RestCall(Struct, frozen=True):
    """An HTTP+JSON call: `path` is what comes after the interface's URL, with its query; `body` is empty if none."""

    verb: str
    path: str
    body: bytes = b""


class Tongue(Struct, frozen=True, kw_only=True):
    """One dialect, as a client speaks it.

    `rpc` and `rest` encode an operation for either binding; None: the dialect does not have that binding; they raise
    UnsupportedOperation for what it cannot say. `read_answer` reads the JSON of a result (of the whole body over
    HTTP+JSON), `read_update` that of a stream's frame; one frame may tell of several things, or of none. `read_event`
    is the quick way for a frame that is as it should be, in the envelope of that call, and tells one thing; it gives
    None for any other. With `enveloped` False the frames over JSON-RPC are bare, without an envelope. `read_error`
    reads the `error` member of a JSON-RPC answer, or the body of an HTTP answer of that status (0: it came in an
    envelope); what it does not know becomes the error that comes nearest. `headers` go with every call. `streams`,
    `subscribes`, `pushes` and `lists` say which operations the dialect has at all; where it cannot subscribe, a client
    polls.
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
