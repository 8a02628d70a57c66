"""The client's side of A2A 0.3, over JSON-RPC and over HTTP+JSON.

Invariant: the server's side of the dialect decodes a call to the very same operation, and the client's side a result
likewise.
"""

from msgspec.structs import replace

from dragoman.dialects.tongue import Tongue
from dragoman.dialects.v03 import ask, hear

TONGUE = Tongue(
    name="0.3",
    rpc=ask.rpc,
    rest=ask.rest,
    read_answer=hear.read_answer,
    read_update=hear.read_update,
    read_error=hear.read_error,
    headers={"A2A-Version": "0.3"},
)

TWICE = replace(TONGUE, rest=ask.rest_twice, read_answer=hear.read_answer_twice, read_update=hear.read_update_twice)
"""For HTTP+JSON with the official Python servers, which encode the bytes of a file in base64 twice (a2a-sdk 0.3.26)."""
