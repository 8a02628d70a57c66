"""A2A 1.0 as a client speaks it, over JSON-RPC and over HTTP+JSON.

Invariant: what it asks, the server's side of the dialect reads as the very same operation, and the other way round.
"""

from dragoman.dialects.tongue import Tongue
from dragoman.dialects.v1 import ask, hear

TONGUE = Tongue(
    name="1.0",
    rpc=ask.rpc,
    rest=ask.rest,
    read_answer=hear.read_answer,
    read_update=hear.read_update,
    read_event=hear.read_event,
    read_error=hear.read_error,
    headers={"A2A-Version": "1.0"},
)
