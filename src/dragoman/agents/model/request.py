"""The request to a model: the body of a chat completion, from the operator's settings and the caller's message.

Invariant: pure. Each call gets a new body; what all bodies share is prepared once.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.agents.model.messages import Said, asked, earlier, joined, window
from dragoman.agents.tools import ModelTool
from dragoman.model.message import Message

SCHEMA_NAME = "answer"
"""The name of the answer's schema in the request."""


class Asking(Struct, frozen=True, kw_only=True):
    """The settings of every call to a model. `settings` is the whole body except messages and tools.

    `takes` says which of `image`, `image_url`, `audio` and `file` the model reads.
    """

    settings: dict[str, Any]
    system: str | None = None
    schema: dict[str, Any] | None = None
    schema_strict: bool = True
    takes: tuple[str, ...] = ("image", "image_url", "audio", "file")
    history_messages: int = 20
    history_tokens: int | None = None

    def conversation(self, message: Message, history: Sequence[Message]) -> list[Said]:
        """The messages of a call: the system message, the window of the history, the caller's. Raises Unsendable."""
        last = asked(message, self.takes)
        told = (earlier(each, self.takes, believes=self.system is None) for each in history)
        said = window((each for each in told if each is not None), self.history_tokens)
        first: list[Said] = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*first, *joined([*said, last])]

    def body(self, messages: Sequence[Said], tools: Sequence[ModelTool]) -> bytes:
        """Encode the request body."""
        body: dict[str, Any] = {**self.settings, "messages": messages}
        if tools:
            body["tools"] = [_function(tool) for tool in tools]
        if self.schema is not None:
            said = {"name": SCHEMA_NAME, "schema": self.schema, "strict": self.schema_strict}
            body["response_format"] = {"type": "json_schema", "json_schema": said}
        return msgspec.json.encode(body)


def _function(tool: ModelTool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
