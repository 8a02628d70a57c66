"""The client's side of A2A 1.0, over JSON-RPC and over HTTP+JSON.

Invariant: the server's side of the dialect decodes a call to the very same operation, and the client's side a result
likewise.
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
