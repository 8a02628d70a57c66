"""The dialect of protoAgent: 0.3 at `/a2a`, with `data` beside a task's artifacts and the extensions of protoLabs.

Invariant: a superset of 0.3: every object has the `kind` and the ids that the official 0.3 clients require.
"""

from msgspec.structs import replace

from dragoman.dialects.api import Dialect
from dragoman.dialects.protoagent import encode, errors
from dragoman.dialects.protoagent.decode import METHODS, decode, decode_rest
from dragoman.dialects.protoagent.extensions import EXTENSIONS
from dragoman.dialects.protoagent.push import FORM
from dragoman.dialects.v03.errors import encode_error, error_status
from dragoman.model.events import StatusChanged
from dragoman.model.operations import Manners

JSONRPC = Dialect(
    name="protoagent",
    key="protoagent",
    content_type="application/json",
    decode=decode,
    decode_rest=None,
    encode_result=encode.encode_result,
    encode_snapshot=encode.encode_snapshot,
    encode_message=encode.encode_message,
    encode_event=encode.encode_event,
    encode_error=encode_error,
    error_status=error_status,
    encode_subscription=encode.encode_subscription,
    folds=frozenset({StatusChanged}),
    manners=Manners(
        answers_with_message=False,
        subscribed_until_terminal=False,
        subscribes_to_ended=True,
        cancels_ended=True,
        absent_webhook_is_none=True,
        webhook="configuration.pushNotificationConfig",
    ),
    http_error=errors.http_error,
    push=FORM,
)

REST = replace(
    JSONRPC,
    decode_rest=decode_rest,
    encode_result=encode.encode_rest_result,
    encode_error=errors.encode_rest_error,
    error_status=errors.rest_error_status,
    http_error=None,
)
"""The aliases below `/a2a/tasks`: the same objects without an envelope, and errors as `{"detail": …}`."""

__all__ = ["EXTENSIONS", "JSONRPC", "METHODS", "REST"]
