"""Facts for spans by OpenTelemetry's conventions for generative AI: of agents, calls of models, calls of tools.

Invariant: nothing here needs OpenTelemetry. Where nobody makes such spans, `present_chats` is None and costs a look.
"""

from contextvars import ContextVar
from typing import Any, Protocol

from msgspec import Struct

OPT_IN = "gen_ai_latest_experimental"
"""The word in `OTEL_SEMCONV_STABILITY_OPT_IN` that asks for these spans."""


class InvokedHead(Protocol):
    """The facts of a task that is run."""

    @property
    def id(self) -> str: ...

    @property
    def agent(self) -> str: ...

    @property
    def context_id(self) -> str: ...

    @property
    def traceparent(self) -> str | None: ...


class InvokedProfile(Protocol):
    """The description of an agent that is run."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def version(self) -> str: ...


class InvokedTraits(Protocol):
    """Where the agent's code is, and who provides its model; empty if it has none of its own."""

    @property
    def kind(self) -> str: ...

    @property
    def provider(self) -> str: ...


class InvokedRunner(Protocol):
    """The agent that is run."""

    @property
    def profile(self) -> InvokedProfile: ...

    @property
    def traits(self) -> InvokedTraits: ...


class ModelCall(Struct, frozen=True, kw_only=True):
    """The request for an answer of a model, without its messages. A field that is None is not sent."""

    model: str
    provider: str
    address: str
    port: int
    json_wanted: bool = False
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning: str | None = None
    stop: tuple[str, ...] = ()


class ChatReply(Struct, frozen=True, kw_only=True):
    """The answer of a model. `calls` are the ids, names and arguments of tools that it calls.

    `by` is the request that was answered, of those that several endpoints were sent. Tokens are None if they were not
    told; `cached_tokens` are part of the `input_tokens`.
    """

    by: ModelCall
    text: str
    finish: str
    calls: tuple[tuple[str, str, str], ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


class ObservedChat(Protocol):
    """One answer of a model under observation, with all attempts at it: either of these is called once."""

    @property
    def traceparent(self) -> str | None:
        """The trace context of the request."""
        ...

    def answered(self, reply: ChatReply) -> None:
        """The answer is whole."""
        ...

    def failed(self, error: str) -> None:
        """There is no answer. `error` names the kind of fault."""
        ...


class Chats(Protocol):
    """Observes the answers of models that a run asks for."""

    def begin_chat(self, request: ModelCall, body: bytes, conversation: str) -> ObservedChat:
        """A model is asked now, by the calling coroutine; the body is what an API of chat completions is sent."""
        ...


ToolCall = Any
"""A report on a call of a tool, as callers see it (tool-call-v1 of protoLabs): `toolCallId`, `name`, `phase` …

Agents of other servers make such reports, too, so that it may be anything.
"""

_chats: ContextVar[Chats | None] = ContextVar("dragoman_genai_chats", default=None)


def present_chats() -> Chats | None:
    """The observer of the answers of models in the present run; None if there is none."""
    return _chats.get()


def observe_chats(chats: Chats) -> None:
    """Let these observe the answers of models in the present context from now on."""
    _chats.set(chats)
