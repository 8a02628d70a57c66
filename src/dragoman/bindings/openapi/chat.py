"""OpenAI's chat completions and models, as operations of the document.

Invariant: the shapes are those that `dialects/openai` reads and writes. A request may have more members than are
described: each of them is handed to the agent.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from dragoman.bindings.openapi.a2a import OF_BODIES, OF_SENDS, REFUSALS, REPEATS
from dragoman.bindings.openapi.document import JSON, AnswerForms, HeaderForms, OperationForms
from dragoman.bindings.openapi.refusals import describe_refusals
from dragoman.dialects.openai.encode import TABLE as ERRORS
from dragoman.dialects.openai.encode import ErrorEncoding
from dragoman.model import errors
from dragoman.model.errors import A2AError

COMPLETIONS = "OpenAI"

TAGS = {COMPLETIONS: "Every agent as a model of OpenAI's clients."}

NULLS = frozenset({"ChatErrorDetails", "ChatChunk"})

TEXT: Mapping[str, Any] = {"type": "string"}

CONTINUES: HeaderForms = {
    "X-Dragoman-Task-Id": {"description": "The task whose question this answers.", "schema": TEXT},
    "X-Dragoman-Context-Id": {"description": "The conversation to continue.", "schema": TEXT},
}
MADE: HeaderForms = {
    "X-Dragoman-Task-Id": {"description": "The task of the completion, if there is one.", "schema": TEXT},
    "X-Dragoman-Context-Id": {"description": "Its conversation.", "schema": TEXT},
}
FAILED: HeaderForms = {
    "X-Dragoman-Task-Id": {"description": "The task that failed or goes on, if there is one.", "schema": TEXT}
}
RETRIES: HeaderForms = {
    "X-Should-Retry": {
        "description": "`false`: OpenAI's clients must not send the request again by themselves.",
        "schema": {"type": "string", "enum": ["false"]},
    }
}


class ChatText(Struct, tag_field="type", tag="text"):
    """A text."""

    text: str


class ChatImageUrl(Struct, kw_only=True):
    """Where an image is."""

    url: Annotated[str, Meta(min_length=1, description="An address, which is handed on, or a data URI with base64.")]
    detail: str = ""


class ChatImage(Struct, tag_field="type", tag="image_url"):
    """An image."""

    image_url: ChatImageUrl


class ChatFileContent(Struct, kw_only=True):
    """A file with its bytes; files that were uploaded before are not known."""

    file_data: Annotated[str, Meta(min_length=1, description="Base64, or a data URI with base64.")]
    filename: str = ""


class ChatFile(Struct, tag_field="type", tag="file"):
    """A file."""

    file: ChatFileContent


class ChatAudioContent(Struct, kw_only=True):
    """A recording."""

    data: Annotated[str, Meta(min_length=1, description="Base64.")]
    format: Annotated[str, Meta(min_length=1, description="`wav` or `mp3`; any other names a media type.")]


class ChatAudio(Struct, tag_field="type", tag="input_audio"):
    """A recording."""

    input_audio: ChatAudioContent


class ChatMessage(Struct, kw_only=True):
    """A message of the conversation. The last one of the user is the one to answer."""

    role: Annotated[str, Meta(min_length=1, description="`user`, `assistant`, `system`, `developer` or `tool`.")]
    content: str | tuple[ChatText | ChatImage | ChatFile | ChatAudio, ...] | None = None
    name: str = ""
    refusal: str | None = None
    tool_calls: Annotated[Any, Meta(description="Handed to the agent as they are.")] = None
    tool_call_id: str = ""


class ChatStreamOptions(Struct, kw_only=True):
    """Options of a stream."""

    include_usage: Annotated[bool, Meta(description="The last chunk has the tokens used.")] = False


class ChatRequest(Struct, kw_only=True):
    """A request for a completion. Further members, such as `temperature`, are handed to the agent."""

    messages: Annotated[tuple[ChatMessage, ...], Meta(min_length=1)]
    model: Annotated[str, Meta(description="The id of an agent. Absent: the default agent.")] = ""
    stream: bool = False
    stream_options: ChatStreamOptions | None = None
    metadata: Annotated[dict[str, Any], Meta(description="`skill` names the skill to run.")] = {}
    user: Annotated[str, Meta(description="Handed to the agent.")] = ""
    n: Annotated[int, Meta(ge=1, le=1)] = 1


class ChatCachedTokens(Struct):
    """Those of the tokens that went in which a cache had."""

    cached_tokens: int


class ChatUsage(Struct, omit_defaults=True):
    """The tokens used; zeros if the agent does not say."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: ChatCachedTokens | UnsetType = UNSET


class ChatAnswer(Struct):
    """The agent's output, or its question."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Struct):
    """The only answer. `length`: the output was cut off."""

    index: Literal[0]
    message: ChatAnswer
    logprobs: None
    finish_reason: Literal["stop", "length"]


class ChatCompletion(Struct):
    """A completion."""

    id: str
    object: Literal["chat.completion"]
    created: Annotated[int, Meta(description="In seconds since 1970.")]
    model: Annotated[str, Meta(description="The id of the agent.")]
    choices: Annotated[tuple[ChatChoice, ...], Meta(min_length=1, max_length=1)]
    usage: ChatUsage


class ChatDelta(Struct, kw_only=True):
    """The next piece of a message; the first one has the role."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: None = None


class ChatChunkChoice(Struct):
    """A piece of the only answer; `finish_reason` is null in all but the last."""

    index: Literal[0]
    delta: ChatDelta
    logprobs: None
    finish_reason: Literal["stop", "length"] | None


class ChatChunk(Struct, kw_only=True):
    """A piece of a completion. With `stream_options.include_usage` the last one has the usage, and no choice."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: Annotated[tuple[ChatChunkChoice, ...], Meta(max_length=1)]
    usage: ChatUsage | None = None


class ChatErrorDetails(Struct, kw_only=True):
    """Why a request was refused, or a stream failed. `code` is for programs, `param` names the field."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ChatErrorAnswer(Struct):
    """The answer to a request that was refused, and the last event but one of a stream that failed."""

    error: ChatErrorDetails


class ChatModel(Struct):
    """An agent as a model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    name: str
    description: str


class ChatModelList(Struct):
    """The agents that the caller may use."""

    object: Literal["list"]
    data: tuple[ChatModel, ...]


def _reason(kind: type[A2AError]) -> tuple[int, str]:
    row: ErrorEncoding = next(ERRORS[each] for each in kind.__mro__ if each in ERRORS)
    return row.status, row.code or row.type


def describe_chat_refusals(*kinds: type[A2AError], headers: HeaderForms = RETRIES) -> dict[str, AnswerForms]:
    """The refusals of OpenAI's clients by status."""
    return describe_refusals(kinds, _reason, ChatErrorAnswer, JSON, headers)


OF_COMPLETIONS = (
    *(kind for kind in REFUSALS if kind is not errors.VersionNotSupported),
    *OF_BODIES,
    *OF_SENDS,
    errors.TaskTimeout,
)
"""The errors that a completion may be refused with."""

OF_LISTS = (errors.Unauthorized, errors.Forbidden, errors.InternalError, errors.Unavailable)
"""The errors that a list may be refused with."""

CHAT: tuple[OperationForms, ...] = (
    OperationForms(
        name="createChatCompletion",
        method="POST",
        path="/v1/chat/completions",
        summary="Send a message, and get the agent's answer as a completion",
        description="With `stream` the answer is a stream of chunks, which ends with the text `[DONE]`.",
        tag=COMPLETIONS,
        headers={**CONTINUES, **REPEATS},
        body=ChatRequest,
        answers={
            "200": AnswerForms(
                description="The completion.",
                bodies={JSON: ChatCompletion},
                events={"": (ChatChunk, ChatErrorAnswer)},
                headers=MADE,
            ),
            **describe_chat_refusals(*OF_COMPLETIONS, headers={**RETRIES, **FAILED}),
        },
    ),
    OperationForms(
        name="listModels",
        method="GET",
        path="/v1/models",
        summary="List the agents that the caller may use",
        tag=COMPLETIONS,
        answers={
            "200": AnswerForms(description="The agents.", bodies={JSON: ChatModelList}),
            **describe_chat_refusals(*OF_LISTS),
        },
    ),
    OperationForms(
        name="getModel",
        method="GET",
        path="/v1/models/{id}",
        summary="Read an agent as a model",
        tag=COMPLETIONS,
        answers={
            "200": AnswerForms(description="The agent.", bodies={JSON: ChatModel}),
            **describe_chat_refusals(errors.AgentNotFound, *OF_LISTS),
        },
    ),
)
"""The paths of OpenAI's clients."""
