"""The shape of a dialect: a handful of functions over one model, for the server's side and for the client's.

Invariant: pure. A server's decoder raises A2AError and nothing else, whatever the bytes (invariant 11); an encoder
writes exactly what its dialect specifies (invariant 10). A client's decoder raises InvalidAgentResponse for a value
that it cannot read, which names what was expected.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from dragoman.dialects import jsonrpc, sse
from dragoman.model.card import AgentCard
from dragoman.model.errors import A2AError, InvalidAgentResponse
from dragoman.model.events import Event, StatusChanged, Submitted, Unseen
from dragoman.model.lifecycle import SETTLED
from dragoman.model.message import Artifact, Message
from dragoman.model.operations import Manners, Operation, PushConfig, Result
from dragoman.model.task import Record, Task, TaskHead
from dragoman.model.updates import TaskList, Update

STREAM_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", sse.CONTENT_TYPE.encode()),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
)
"""Headers of a stream, unless a dialect's text says otherwise."""


class RestRequest(Struct, frozen=True):
    """An HTTP+JSON request after routing: the route's name (`SendMessage`, `GetTask` …), path variables, query, body.

    Path variables are percent-decoded; `body` is empty when there was none.
    """

    route: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


Around = Callable[[bytes], tuple[bytes, bytes]]
"""Maps the raw JSON of a request's id to the bytes before and after what a dialect encoded."""


Told = Submitted | StatusChanged | Artifact | None
"""The subject of a webhook call: a state that the task has reached, a complete artifact, or None for the current task.
"""


Stands = Callable[[], Record]
"""Returns the current task. It is folded on demand, which costs as much as the task is large."""


class Signing(Struct, frozen=True, kw_only=True):
    """The input of a webhook call's signature. `timestamp_s` is seconds since the epoch."""

    delivery_id: str
    task_id: str
    timestamp_s: int
    body: bytes


def everything(told: Told, stands: Stands) -> bool:
    """Report everything, as most dialects do to a webhook that did not choose."""
    return True


def no_frames(event: Unseen) -> tuple[()]:
    """Return the frames of an event that no stream shows, which are none."""
    return ()


class PushForm(Struct, frozen=True, kw_only=True):
    """How a dialect calls webhooks.

    `encode` gives the body for a subject, with the task at that time; None: the dialect does not report this subject.
    `told` decides which subjects a configuration without `events` gets. One with `events` gets those, whatever `told`
    says: `artifact` for an Artifact, else the state of the event, or of the task if there is no event. `whole`: every
    body is the whole task; otherwise a body is no larger than its subject. `https_only`: URLs must be https, unless the
    operator allows their host. Headers are (name, value) pairs.
    `authorization` gives those of every call to a configuration, above all its tokens; `headers` say what the body is;
    `signature` is computed from the body and the secret. They do not include the Content-Type and `webhook-id`, which
    is always sent.
    """

    content_type: str
    encode: Callable[[TaskHead, Told, Stands], bytes | None]
    authorization: Callable[[PushConfig], list[tuple[str, str]]]
    signature: Callable[[str, Signing], list[tuple[str, str]]]
    told: Callable[[Told, Stands], bool] = everything
    whole: bool = False
    https_only: bool = False
    headers: tuple[tuple[str, str], ...] = ()


class Dialect(Struct, frozen=True, kw_only=True):
    """One dialect over one binding.

    `name` is stored with the tasks that the dialect makes (`1.0`, `0.3`, `beeos` …). `key` names the wire form and with
    it the cache of encoded events (`1.0`, `0.3`, `0.3-rest`). `decode(method, params)` and `decode_rest(request)`
    return the operation. `encode_result` returns the JSON of a result. `encode_event` returns the JSON of each frame of
    an event (none, one, or several). Its record is the task folded up to the event for the event types in `folds` (only
    the StatusChanged that end or interrupt the task), else None. `encode_snapshot` and `encode_message` encode the
    other two things a stream may hold; an empty snapshot is not sent. `encode_subscription` replaces `encode_snapshot`
    for a caller who follows an existing task. `encode_error` returns the JSON of an error: the `error` member of a
    JSON-RPC answer, or a whole HTTP body. `error_status` is its HTTP status. `content_type` is that of plain answers.

    `around_answer`, `around_frame` and `around_error` are the JSON-RPC envelopes of results, stream frames and errors;
    HTTP+JSON does not use them. `http_error` returns the whole body of an error that the system answers outside
    JSON-RPC, None for any other. With `coalesce_s` the chunks of artifacts are not sent one by one: the current state
    of the task is sent at most that often. `push` is how webhooks registered in this dialect are called; None: it has
    no webhooks. `extensions_header` is the header that names extensions, in lower case.
    """

    name: str
    key: str
    content_type: str
    decode: Callable[[str, bytes | memoryview], Operation]
    decode_rest: Callable[[RestRequest], Operation] | None
    encode_result: Callable[[Operation, Result], bytes]
    encode_snapshot: Callable[[Record, int | None], bytes]
    encode_message: Callable[[Message], bytes]
    encode_event: Callable[[TaskHead, Event, Record | None], tuple[bytes, ...]]
    encode_error: Callable[[A2AError], bytes]
    error_status: Callable[[A2AError], int]
    encode_subscription: Callable[[Record], tuple[bytes, ...]] | None = None
    folds: frozenset[type] = frozenset()
    manners: Manners = Manners()
    around_answer: Around = jsonrpc.result_envelope
    around_frame: Around = jsonrpc.result_envelope
    around_error: Around = jsonrpc.error_envelope
    http_error: Callable[[A2AError], bytes | None] | None = None
    stream_headers: tuple[tuple[bytes, bytes], ...] = STREAM_HEADERS
    coalesce_s: float = 0.0
    push: PushForm | None = None
    extensions_header: bytes = b"x-a2a-extensions"

    def wants_record(self, event: Event) -> bool:
        """Whether to encode an event with the whole task. That costs as much as the task, so `working` does without."""
        if isinstance(event, StatusChanged) and event.state not in SETTLED:
            return False
        return type(event) in self.folds


# -- the client's side -------------------------------------------------------------------------------------------------

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


class GrpcCall(Struct, frozen=True):
    """A gRPC call: its method, `/lf.a2a.v1.A2AService/GetTask`, and its message in protobuf."""

    method: str
    message: bytes


class GrpcStatus(Struct, frozen=True):
    """The status of a gRPC call that failed: its code, from 1 to 16, its text, and its details.

    `details` are the bytes of a google.rpc.Status as they came, from `grpc-status-details-bin`; empty if there were
    none.
    """

    code: int
    message: str = ""
    details: bytes = b""


def no_error(body: bytes, status: int) -> A2AError:
    """Raise InvalidAgentResponse: over gRPC an error is a status."""
    raise InvalidAgentResponse("expected a gRPC status")


def no_status(status: GrpcStatus) -> A2AError:
    """Raise InvalidAgentResponse: the dialect is not spoken over gRPC."""
    raise InvalidAgentResponse("expected an answer over HTTP")


class Tongue(Struct, frozen=True, kw_only=True):
    """The client's side of one dialect.

    `rpc` and `rest` encode an operation for either binding; None: the dialect lacks that binding. They raise
    UnsupportedOperation for an operation that it cannot express. `read_answer` decodes the JSON of a result (the whole
    body over HTTP+JSON), `read_update` that of a stream frame; one frame may hold several updates, or none.
    `read_event` is the fast path for an ordinary frame with one update, in the envelope of that call; it returns None
    for any other. `read_chunks` is that for several, up to the first that is no chunk of a single plain text.
    With `enveloped` False, frames over JSON-RPC have no envelope. `read_error` decodes the `error` member of a JSON-RPC
    answer, or the body of an HTTP answer with that status (0: it came in an envelope); an unknown error becomes the
    nearest known one. `headers` go with every call. `streams`, `subscribes`, `pushes` and `lists` say which operations
    the dialect has at all; if it cannot subscribe, a client polls. `deltas`: its chunks do not say whether they
    continue an artifact or begin it again. `chats`: an agent that fails over A2A may answer chat completions. `slash`:
    the URL of its JSON-RPC endpoint ends with a slash.

    A dialect over gRPC is a value of its own, without `rpc` and `rest`. Its `grpc` encodes an operation, `read_answer`
    and `read_update` decode messages in protobuf, and `read_status` decodes a failure as `read_error` does.
    """

    name: str
    rpc: Callable[[Operation], RpcCall] | None = None
    rest: Callable[[Operation], RestCall] | None = None
    read_answer: Callable[[Operation, bytes], Answer]
    read_update: Callable[[bytes], tuple[Update, ...]]
    read_event: Callable[[str, int], Update | None] = lambda data, call_id: None
    read_chunks: Callable[[Iterable[str], int], list[Update]] = lambda data, call_id: []
    read_error: Callable[[bytes, int], A2AError] = no_error
    grpc: Callable[[Operation], GrpcCall] | None = None
    read_status: Callable[[GrpcStatus], A2AError] = no_status
    headers: Mapping[str, str] = {}
    enveloped: bool = True
    streams: bool = True
    subscribes: bool = True
    pushes: bool = True
    lists: bool = True
    deltas: bool = False
    chats: bool = False
    slash: bool = False
