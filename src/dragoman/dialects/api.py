"""What a dialect is: a handful of functions over one model.

Invariant: a decoder raises A2AError and nothing else, whatever the bytes (invariant 11); an encoder writes exactly what
its dialect specifies (invariant 10).
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from dragoman.dialects import jsonrpc, sse
from dragoman.model.errors import A2AError
from dragoman.model.events import Event, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message
from dragoman.model.operations import Manners, Operation, PushConfig, Result
from dragoman.model.task import Record, TaskHead

STREAM_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", sse.CONTENT_TYPE.encode()),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
)
"""What goes with a stream, unless a dialect's text says otherwise."""


class RestRequest(Struct, frozen=True):
    """An HTTP+JSON request after routing: the route's name (`SendMessage`, `GetTask` …), path variables, query, body.

    Path variables are percent-decoded; `body` is empty when there was none.
    """

    route: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


Around = Callable[[bytes], tuple[bytes, bytes]]
"""From the raw JSON of a request's id to what stands before and after the bytes that a dialect encoded."""


Told = Submitted | StatusChanged | Artifact | None
"""What a webhook is told of: a state the task has reached, an artifact that is whole, or (None) how it stands."""


Stands = Callable[[], Record]
"""The task as it stands then. It is folded when asked for, which costs as much as the task is large."""


class Signing(Struct, frozen=True, kw_only=True):
    """What a signature of a webhook call is over. `timestamp_s` is seconds since the epoch."""

    delivery_id: str
    task_id: str
    timestamp_s: int
    body: bytes


def everything(told: Told, stands: Stands) -> bool:
    """What most dialects tell a webhook that did not choose: all there is."""
    return True


class PushForm(Struct, frozen=True, kw_only=True):
    """How a dialect tells webhooks.

    `encode` gives the body for what is told, with the task as it stands then; None: of this the dialect tells nothing.
    `told` says of what a configuration without `events` is told; one with `events` is told of those, whatever `told`
    says: `artifact` of an Artifact, else the state of the event or, where nothing happened, of the task.
    `whole`: a body is all of the task, whatever is told; else it is no larger than what it tells of.
    Headers, as (name, value): `authorization` is what goes with every call to a configuration, its tokens above all;
    `headers` say what the body is, and `signature` is made of it with the secret. The Content-Type and `webhook-id`,
    which is sent in any case, are not in them.
    """

    content_type: str
    encode: Callable[[TaskHead, Told, Stands], bytes | None]
    authorization: Callable[[PushConfig], list[tuple[str, str]]]
    signature: Callable[[str, Signing], list[tuple[str, str]]]
    told: Callable[[Told, Stands], bool] = everything
    whole: bool = False
    headers: tuple[tuple[str, str], ...] = ()


class Dialect(Struct, frozen=True, kw_only=True):
    """One way of speaking, over one binding.

    `name` is what is stored with the tasks it makes (`1.0`, `0.3`, `beeos` …); `key` names the wire form and so the
    cache of encoded events (`1.0`, `0.3`, `0.3-rest`). `decode(method, params)` and `decode_rest(request)` give the
    operation. `encode_result` gives the JSON of a result, `encode_event` that of each frame of an event (none, one, or
    several); its record is the task folded up to the event for the event types in `folds` (of
    StatusChanged those that end or interrupt the task), else None. `encode_snapshot`
    and `encode_message` are the other two things a stream may hold; `encode_subscription` replaces `encode_snapshot`
    for a caller who follows a task that was there before. `encode_error` gives the JSON of the error: the `error`
    member of a JSON-RPC answer, or a whole HTTP body; `error_status` is the HTTP status of it. `content_type` is that
    of plain answers.

    `around_answer`, `around_frame` and `around_error` are the JSON-RPC envelopes of results, stream frames and errors;
    over HTTP+JSON they are not asked. `http_error` gives the whole body of an error that the system answers outside
    JSON-RPC, None for one that it does not. With `coalesce_s` the chunks of artifacts are not sent one by one: what the
    task amounts to goes out at most that often. `push` is how webhooks registered in this dialect are told; None: it
    has no webhooks. `extensions_header` is the header that names extensions, in lower case.
    """

    name: str
    key: str
    content_type: str
    decode: Callable[[str, bytes], Operation]
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
    around_answer: Around = jsonrpc.around
    around_frame: Around = jsonrpc.around
    around_error: Around = jsonrpc.around_error
    http_error: Callable[[A2AError], bytes | None] | None = None
    stream_headers: tuple[tuple[bytes, bytes], ...] = STREAM_HEADERS
    coalesce_s: float = 0.0
    push: PushForm | None = None
    extensions_header: bytes = b"x-a2a-extensions"
