"""BeeOS: A2A's methods and a few of its own, flat tasks, bare SSE frames.

Invariant: an answer has every key that BeeOS's text shows, in its order; our own keys follow. A stream's frames have no
JSON-RPC envelope.
"""

from dragoman.dialects.api import Dialect
from dragoman.dialects.beeos import decode, encode, errors, frames
from dragoman.dialects.beeos.push import FORM
from dragoman.model.events import StatusChanged
from dragoman.model.operations import Manners

METHODS = frozenset(decode.METHODS)
"""Every method name of BeeOS, including aliases."""

JSONRPC = Dialect(
    name="beeos",
    key="beeos",
    content_type="application/json",
    decode=decode.decode,
    decode_rest=None,
    encode_result=encode.encode_result,
    encode_snapshot=frames.encode_snapshot,
    encode_message=frames.encode_message,
    encode_event=frames.encode_event,
    encode_error=errors.encode_error,
    error_status=errors.error_status,
    encode_subscription=frames.encode_subscription,
    folds=frozenset({StatusChanged}),
    manners=Manners(
        answers_with_message=False,
        subscribed_until_terminal=False,
        subscribes_to_ended=True,
        cancels_ended=True,
        late_is_error=True,
        webhook="configuration.pushNotificationConfig",
    ),
    around_frame=lambda _: (b"", b""),
    http_error=errors.http_error,
    push=FORM,
    extensions_header=b"a2a-extensions",
)

__all__ = ["JSONRPC", "METHODS"]
