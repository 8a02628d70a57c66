"""What a model is asked: the body of a chat completion, from what the operator set and what the caller said.

Invariant: pure. A body is made anew for each call, and what is the same in all of them only once.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.agents.model.messages import Said, asked, earlier, joined, window
from dragoman.agents.tools import Tool
from dragoman.model.message import Message

SCHEMA_NAME = "answer"
"""What an answer with a schema is called to the model."""


class Asking(Struct, frozen=True, kw_only=True):
    """How a model is asked, in every call. `settings` is all of the body but messages and tools.

    `takes` says which of `image`, `image_url`, `audio` and `file` it reads.
    """

    settings: dict[str, Any]
    system: str | None = None
    schema: dict[str, Any] | None = None
    schema_strict: bool = True
    takes: tuple[str, ...] = ("image", "image_url", "audio", "file")
    history_messages: int = 20
    history_tokens: int | None = None

    def conversation(self, message: Message, history: Sequence[Message]) -> list[Said]:
        """The messages of a call: the system's, those of the window, the caller's. Raises Unsendable."""
        last = asked(message, self.takes)
        told = (earlier(each, self.takes, believes=self.system is None) for each in history)
        said = window((each for each in told if each is not None), self.history_tokens)
        first: list[Said] = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*first, *joined([*said, last])]

    def body(self, messages: Sequence[Said], tools: Sequence[Tool]) -> bytes:
        """The request."""
        body: dict[str, Any] = {**self.settings, "messages": messages}
        if tools:
            body["tools"] = [_function(tool) for tool in tools]
        if self.schema is not None:
            said = {"name": SCHEMA_NAME, "schema": self.schema, "strict": self.schema_strict}
            body["response_format"] = {"type": "json_schema", "json_schema": said}
        return msgspec.json.encode(body)


def _function(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
