"""One JSON-RPC 2.0 call to another agent.

Invariant: an answer that is neither a result nor an error is InvalidAgentResponse, never a result.
"""

from collections.abc import Mapping
from typing import Any

from dragoman.client.errors import RpcError
from dragoman.client.wire import Requester, post_object
from dragoman.model.errors import InvalidAgentResponse
from dragoman.net.egress import checked

REQUEST_ID = 1
"""Every call has a connection's exchange for itself, so one id does for all."""


async def call(
    egress: Requester,
    url: str,
    method: str,
    params: Mapping[str, Any],
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """The `result` of the call.

    Raises RpcError or HttpRefusal if the peer refuses, InvalidAgentResponse if what it answers is not JSON-RPC,
    EgressError if it does not answer.
    """
    request = {"jsonrpc": "2.0", "method": method, "id": REQUEST_ID, "params": params}
    answer = await post_object(egress, url, request, timeout_s=timeout_s, headers=headers or {})
    error = answer.get("error")
    if isinstance(error, dict):
        code, text = error.get("code"), error.get("message")
        raise RpcError(checked(url), code if isinstance(code, int) else 0, text if isinstance(text, str) else "")
    if error is not None or "result" not in answer:
        raise InvalidAgentResponse(f"{checked(url)}: expected a JSON-RPC answer with `result` or `error`, got neither")
    return answer["result"]
