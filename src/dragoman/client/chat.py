"""One call of an OpenAI-compatible chat completions endpoint, not streamed.

Invariant: the answer is the text of the first choice, or an error that says what was expected.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dragoman.client.errors import shown
from dragoman.client.wire import Requester, post_object
from dragoman.model.errors import InvalidAgentResponse
from dragoman.net.egress import checked

COMPLETIONS_PATH = "/v1/chat/completions"


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
