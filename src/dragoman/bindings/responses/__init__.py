"""OpenAI's Responses over HTTP: `/v1/responses`, `/v1/conversations`, and the refusal of what else is below `/v1/`.

`endpoint` answers requests about responses, `conversations` those about conversations, `turns` reads turns from logs by
way of the handler and sends them as streams.
"""

from dragoman.bindings.responses.endpoint import Responses

__all__ = ["Responses"]
