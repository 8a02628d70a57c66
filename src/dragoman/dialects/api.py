"""What a dialect is: a handful of functions over one model.

Invariant: a decoder raises A2AError and nothing else, whatever the bytes (invariant 11); an encoder writes exactly what
its dialect specifies (invariant 10).
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from dragoman.model.errors import A2AError
from dragoman.model.events import Event
from dragoman.model.message import Message
from dragoman.model.operations import Operation, Result
from dragoman.model.task import Record, TaskHead


class RestRequest(Struct, frozen=True):
    """An HTTP+JSON request after routing: the route's name (`SendMessage`, `GetTask` …), path variables, query, body.

    Path variables are percent-decoded; `body` is empty when there was none.
    """

    route: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


class Dialect(Struct, frozen=True, kw_only=True):
    """One way of speaking, over one binding.

    `name` is what is stored with the tasks it makes (`1.0`, `0.3`); `key` names the wire form and so the cache of
    encoded events (`1.0`, `0.3`, `0.3-rest`). `decode(method, params)` and `decode_rest(request)` give the operation.
    `encode_result` gives the JSON of a result, `encode_event` that of each frame of an event (none, one, or several);
    its record is the task folded up to the event for the event types in `folds`, else None. `encode_snapshot` and
    `encode_message` are the other two things a stream may hold. `ends` says whether a send stream closes after the
    event. `encode_error` gives the JSON of the error: the `error` member of a JSON-RPC answer, or a whole HTTP body.
    `error_status` is the HTTP status of it. `content_type` is that of plain answers.
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
    folds: frozenset[type] = frozenset()
    subscription_ends_when_interrupted: bool = False
    resubscribe_terminal: bool = False
