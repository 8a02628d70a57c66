"""HTTP as clients of other agents need it: anything that can send a request, JSON objects, and chat completions.

Invariant: any answer gives what was asked for, PeerError, InvalidAgentResponse or EgressError.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from dragoman.client.errors import HttpRefusal, shown
from dragoman.model.errors import InvalidAgentResponse
from dragoman.net.egress import ClaimedConnection, Flow, HttpReply, checked
from dragoman.net.target import Target

JSON = {"Content-Type": "application/json", "Accept": "application/json"}

COMPLETIONS_PATH = "/v1/chat/completions"


class Requester(Protocol):
    """Anything that can send a request: an Egress, or a wrapper that adds credentials."""

    async def request(
        self,
        method: str,
        url: str | Target,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpReply:
        """See `Egress.request`."""
        ...


class HttpClient(Requester, Protocol):
    """A Requester that can also open a stream."""

    def stream(
        self,
        method: str,
        url: str | Target,
        *,
        head_timeout_s: float,
        idle_timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> AbstractAsyncContextManager[Flow]:
        """See `Egress.stream`."""
        ...

    async def open(
        self,
        method: str,
        url: str | Target,
        *,
        head_timeout_s: float,
        idle_timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Flow:
        """See `Egress.open`."""
        ...

    def claim(self, url: str | Target) -> ClaimedConnection | None:
        """See `Egress.claim`. None, too, if a request needs credentials."""
        ...


async def get_object(egress: Requester, url: str, *, timeout_s: float, headers: Mapping[str, str]) -> dict[str, Any]:
    """Fetch the JSON object at `url`."""
    reply = await egress.request("GET", url, timeout_s=timeout_s, headers={"Accept": "application/json", **headers})
    return _object(reply, checked(url))


async def post_object(
    egress: Requester, url: str, content: object, *, timeout_s: float, headers: Mapping[str, str]
) -> dict[str, Any]:
    """POST `content` to `url`, and return the JSON object that it answers."""
    body = msgspec.json.encode(content)
    reply = await egress.request("POST", url, body=body, timeout_s=timeout_s, headers={**JSON, **headers})
    return _object(reply, checked(url))


def _object(reply: HttpReply, url: str) -> dict[str, Any]:
    if not reply.ok:
        refused = HttpRefusal(url, reply.status, reply.body)
        refused.untaken = reply.status == 429 or (reply.status == 503 and "retry-after" in reply.headers)
        raise refused
    try:
        value = msgspec.json.decode(reply.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise InvalidAgentResponse(f"{url}: expected JSON, got {shown(reply.body)}") from None
    if not isinstance(value, dict):
        raise InvalidAgentResponse(f"{url}: expected a JSON object, got {shown(reply.body)}")
    return value


async def complete(
    egress: Requester,
    base_url: str,
    model: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
) -> str:
    """Return the text that `model` answers to `messages`. Raises HttpRefusal, InvalidAgentResponse or EgressError."""
    url = base_url.rstrip("/") + COMPLETIONS_PATH
    content = {"model": model, "messages": messages, "stream": False}
    answer = await post_object(egress, url, content, timeout_s=timeout_s, headers=headers or {})
    match answer:
        case {"choices": [{"message": {"content": str() as text}}, *_]}:
            return text
        case _:
            came = shown(msgspec.json.encode(answer))
            raise InvalidAgentResponse(f"{checked(url)}: expected `choices[0].message.content` with a text, got {came}")
