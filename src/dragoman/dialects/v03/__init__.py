"""A2A 0.3, over JSON-RPC and over HTTP+JSON.

Invariant: answers hold what the official 0.3 clients need (a2a-sdk 0.3.26, @a2a-js/sdk 0.3.14), and nothing else over
HTTP+JSON, where the Python client is strict.

Resubscribing to a task that has ended is refused, as in a2a-sdk's server. The server of @a2a-js/sdk sends the task and
ends the stream, and A2A 0.3 §7.9 speaks only of ongoing tasks.
"""

from msgspec.structs import replace

from dragoman.dialects.api import Dialect
from dragoman.dialects.system import System
from dragoman.dialects.v03 import encode, errors, rest
from dragoman.dialects.v03.card import card
from dragoman.dialects.v03.client import TONGUE
from dragoman.dialects.v03.decode import METHODS, decode
from dragoman.model.operations import Manners

_MANNERS = Manners(
    subscribed_until_terminal=False,
    cancels_canceled=False,  # A2A 0.3 §8.2: -32002 for a task in a terminal state, including canceled
    webhook="configuration.pushNotificationConfig",
)

JSONRPC = Dialect(
    name="0.3",
    key="0.3",
    content_type="application/json",
    decode=decode,
    decode_rest=None,
    encode_result=encode.encode_result,
    encode_snapshot=encode.encode_snapshot,
    encode_message=encode.encode_message,
    encode_event=encode.encode_event,
    encode_error=errors.encode_error,
    error_status=errors.error_status,
    manners=_MANNERS,
    push=encode.FORM,
)

_ONCE = rest.ProtoJson(rest.once)
_TWICE = rest.ProtoJson(rest.twice)

REST = Dialect(
    name="0.3",
    key="0.3-rest",
    content_type="application/json",
    decode=decode,
    decode_rest=rest.decode_rest,
    encode_result=_ONCE.encode_result,
    encode_snapshot=_ONCE.encode_snapshot,
    encode_message=_ONCE.encode_message,
    encode_event=_ONCE.encode_event,
    encode_error=errors.encode_rest_error,
    error_status=errors.rest_error_status,
    manners=_MANNERS,
    push=encode.FORM,
)

REST_TWICE = replace(
    REST,
    key="0.3-rest-twice",
    decode_rest=rest.decode_rest_twice,
    encode_result=_TWICE.encode_result,
    encode_snapshot=_TWICE.encode_snapshot,
    encode_message=_TWICE.encode_message,
    encode_event=_TWICE.encode_event,
)
"""REST for the official Python clients, which encode the bytes of a file in base64 twice, in both directions."""

REST_TWICE_0_3 = replace(REST_TWICE, encode_result=rest.ProtoJson(rest.twice, card).encode_result)
"""REST_TWICE for the Python client of 0.3 itself (a2a-sdk 0.3.26): it alone reads `GET /v1/card` as plain JSON."""

SYSTEM = System(name="0.3", dialect=JSONRPC, methods=frozenset(METHODS), tongue=TONGUE)

__all__ = ["JSONRPC", "METHODS", "REST", "REST_TWICE", "REST_TWICE_0_3", "SYSTEM"]
