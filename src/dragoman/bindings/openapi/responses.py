"""OpenAI's Responses and conversations, as operations of the document.

Invariant: the shapes are those that `dialects/responses` reads and writes. A request may have more members than are
described: each of them is handed to the agent, ignored, or refused by its name.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from dragoman.bindings.openapi.a2a import OF_BODIES, REFUSALS, REPEATS
from dragoman.bindings.openapi.chat import FAILED, MADE, OF_COMPLETIONS, RETRIES, ChatAudio, describe_chat_refusals
from dragoman.bindings.openapi.document import JSON, AnswerForms, OperationForms
from dragoman.dialects.responses.decode import LABELS_MAX, PAGE_DEFAULT, PAGE_MAX
from dragoman.model import errors
from dragoman.model.errors import A2AError

RESPONSES_TAG = "Responses"

TAGS = {RESPONSES_TAG: "Turns of tasks as responses of OpenAI's clients, and their conversations."}

NULLS = frozenset({"ItemFile"})

Nothing = Annotated[tuple[Any, ...], Meta(max_length=0)]
Seconds = Annotated[int, Meta(description="In seconds since 1970.")]
ItemStatus = Literal["in_progress", "completed", "incomplete"]

# -- items -------------------------------------------------------------------------------------------------------------


class ItemOutputText(Struct, tag_field="type", tag="output_text"):
    """A text of the agent."""

    text: str
    annotations: Nothing
    logprobs: Nothing


class ItemText(Struct, tag_field="type", tag="input_text"):
    """A text of the caller."""

    text: str


class ItemImage(Struct, tag_field="type", tag="input_image"):
    """An image of the caller."""

    image_url: Annotated[str, Meta(min_length=1, description="An address, which is handed on, or a data URI.")]
    detail: Literal["low", "high", "auto", "original"] = "auto"


class ItemFile(Struct, tag_field="type", tag="input_file", kw_only=True):
    """A file of the caller: its bytes, or its address, which is handed on. Uploaded files are not known."""

    file_data: Annotated[str, Meta(description="Base64, or a data URI with base64.")] = ""
    file_url: str = ""
    filename: str | None = None


class InputMessage(Struct, tag_field="type", tag="message", kw_only=True):
    """A message. The last one of the user is the one to answer."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | tuple[ItemText | ItemImage | ItemFile | ChatAudio | ItemOutputText, ...]


class OutputMessage(Struct, tag_field="type", tag="message", kw_only=True):
    """A message of the agent: its output, or its question."""

    id: str
    status: ItemStatus
    role: Literal["assistant"]
    content: tuple[ItemOutputText, ...]


class ItemMessage(Struct, tag_field="type", tag="message", kw_only=True):
    """A message of the caller or of the agent."""

    id: str
    status: ItemStatus
    role: Literal["user", "assistant", "system", "developer"]
    content: tuple[ItemText | ItemImage | ItemFile | ItemOutputText, ...]


class OutputImage(Struct, tag_field="type", tag="image_generation_call", kw_only=True):
    """An image of the agent."""

    id: str
    status: ItemStatus
    result: Annotated[str | None, Meta(description="The bytes in base64; null while they are still to come.")]


class ItemList(Struct, kw_only=True):
    """A page of items."""

    object: Literal["list"]
    data: tuple[ItemMessage | OutputImage, ...]
    first_id: Annotated[str, Meta(description="Empty, if the page is.")]
    last_id: str
    has_more: bool


# -- requests ----------------------------------------------------------------------------------------------------------


class NamedConversation(Struct):
    """A conversation by its id."""

    id: Annotated[str, Meta(pattern="^conv_")]


class ResponsesRequest(Struct, kw_only=True):
    """A request for a response. Further members, such as `temperature`, are handed to the agent."""

    input: Annotated[str, Meta(min_length=1)] | tuple[InputMessage | OutputImage, ...]
    model: Annotated[str, Meta(description="The id of an agent. Absent: that of the previous response.")] = ""
    instructions: Annotated[str, Meta(description="A message of the system before all others.")] = ""
    previous_response_id: Annotated[str, Meta(description="What the input goes on with, or answers.")] = ""
    conversation: Annotated[str, Meta(pattern="^conv_")] | NamedConversation | None = None
    stream: bool = False
    background: Annotated[bool, Meta(description="Answer at once: the response is read later.")] = False
    store: Annotated[bool, Meta(description="Whether the response can be read later.")] = True
    metadata: Annotated[dict[str, str], Meta(max_length=LABELS_MAX, description="`skill` names the skill to run.")] = {}
    user: str = ""
    safety_identifier: str = ""


class ConversationRequest(Struct):
    """A request for a conversation, which keeps nothing but its tasks."""

    metadata: Annotated[dict[str, str], Meta(max_length=0)] = {}


class LookQuery(Struct, kw_only=True):
    """How a response is read."""

    stream: Annotated[bool, Meta(description="All events of the response, as they come.")] = False
    starting_after: Annotated[int, Meta(ge=0, description="The last event that was seen, in a stream.")] | None = None


class ItemQuery(Struct, kw_only=True):
    """The page of a list of items."""

    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT
    after: Annotated[str, Meta(description="The id of the item behind which the page begins.")] = ""
    order: Literal["asc", "desc"] = "desc"


# -- answers -----------------------------------------------------------------------------------------------------------


class ResponseFailure(Struct):
    """Why there is no output. `invalid_prompt`: the agent has rejected the task."""

    code: Literal["server_error", "invalid_prompt"]
    message: str


class ResponseGap(Struct):
    """Why the output is not whole."""

    reason: Literal["max_output_tokens"]


class ResponseReasoning(Struct):
    """Always empty: an agent decides by itself."""

    effort: None
    summary: None


class ResponseFormat(Struct, tag_field="type", tag="text"):
    """Always text."""


class ResponseText(Struct):
    """The form of the output."""

    format: ResponseFormat


class ResponseInputTokens(Struct):
    """Details of the tokens that were read; zeros if the agent does not say."""

    cache_write_tokens: int
    cached_tokens: int


class ResponseOutputTokens(Struct):
    """Zeros."""

    reasoning_tokens: int


class ResponseUsage(Struct):
    """The tokens that the turn has used; zeros if the agent does not say."""

    input_tokens: int
    input_tokens_details: ResponseInputTokens
    output_tokens: int
    output_tokens_details: ResponseOutputTokens
    total_tokens: int


class ResponseObject(Struct, kw_only=True):
    """A turn of a task. One that asks has `dragoman_task_state` in its metadata: `previous_response_id` answers it."""

    id: str
    object: Literal["response"]
    created_at: Seconds
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    background: bool
    completed_at: int | None
    conversation: NamedConversation | None
    error: ResponseFailure | None
    incomplete_details: ResponseGap | None
    instructions: str | None
    max_output_tokens: None
    max_tool_calls: None
    metadata: dict[str, str]
    model: Annotated[str, Meta(description="The id of the agent.")]
    output: tuple[OutputMessage | OutputImage, ...]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: None
    reasoning: ResponseReasoning
    safety_identifier: str | None
    service_tier: Literal["default"]
    temperature: None
    text: ResponseText
    tool_choice: Literal["auto"]
    tools: Nothing
    top_logprobs: Literal[0]
    top_p: None
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: str | None


class ResponseDeleted(Struct):
    """A response that was deleted, with its task."""

    id: str
    object: Literal["response"]
    deleted: bool


class ConversationObject(Struct):
    """A conversation."""

    id: str
    object: Literal["conversation"]
    created_at: Seconds
    metadata: Annotated[dict[str, str], Meta(max_length=0)]


class ConversationDeleted(Struct):
    """A conversation whose tasks were deleted."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: bool


# -- events ------------------------------------------------------------------------------------------------------------


class ResponseEvent(Struct, kw_only=True):
    """The response as it stands. Its end is the last event."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: ResponseObject
    sequence_number: int


class ItemEvent(Struct, kw_only=True):
    """An item that begins, or that is whole."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputMessage | OutputImage
    sequence_number: int


class PartEvent(Struct, kw_only=True):
    """The content of a message that begins, or that is whole."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    item_id: str
    output_index: int
    content_index: Literal[0]
    part: ItemOutputText
    sequence_number: int


class TextEvent(Struct, kw_only=True):
    """The next piece of a text."""

    type: Literal["response.output_text.delta"]
    item_id: str
    output_index: int
    content_index: Literal[0]
    logprobs: Nothing
    delta: str
    sequence_number: int


class WholeTextEvent(Struct, kw_only=True):
    """A text that is whole."""

    type: Literal["response.output_text.done"]
    item_id: str
    output_index: int
    content_index: Literal[0]
    text: str
    logprobs: Nothing
    sequence_number: int


EVENTS: dict[str, type[Struct]] = {
    "response.created": ResponseEvent,
    "response.in_progress": ResponseEvent,
    "response.output_item.added": ItemEvent,
    "response.content_part.added": PartEvent,
    "response.output_text.delta": TextEvent,
    "response.output_text.done": WholeTextEvent,
    "response.content_part.done": PartEvent,
    "response.output_item.done": ItemEvent,
    "response.completed": ResponseEvent,
    "response.incomplete": ResponseEvent,
    "response.failed": ResponseEvent,
}
"""The events of a stream by name, in the order in which they come."""

OF_ALL = tuple(kind for kind in REFUSALS if kind is not errors.VersionNotSupported)
"""The errors that any of the operations may be refused with."""

OF_READS = (*OF_ALL, errors.NotFound, errors.TaskNotFound)


def _refusals(*kinds: type[A2AError]) -> dict[str, AnswerForms]:
    return describe_chat_refusals(*kinds, headers={**RETRIES, **FAILED})


RESPONSES: tuple[OperationForms, ...] = (
    OperationForms(
        name="createResponse",
        method="POST",
        path="/v1/responses",
        summary="Send a message, and get the agent's answer as a response",
        description="A task that fails is answered with 200, and a response that has an `error`.",
        tag=RESPONSES_TAG,
        headers=REPEATS,
        body=ResponsesRequest,
        answers={
            "200": AnswerForms(description="The response.", bodies={JSON: ResponseObject}, events=EVENTS, headers=MADE),
            **_refusals(*OF_COMPLETIONS),
        },
    ),
    OperationForms(
        name="getResponse",
        method="GET",
        path="/v1/responses/{id}",
        summary="Read a response, or follow it",
        tag=RESPONSES_TAG,
        query=LookQuery,
        answers={
            "200": AnswerForms(description="The response.", bodies={JSON: ResponseObject}, events=EVENTS, headers=MADE),
            **_refusals(*OF_READS),
        },
    ),
    OperationForms(
        name="deleteResponse",
        method="DELETE",
        path="/v1/responses/{id}",
        summary="Delete a response that has ended, with its task",
        tag=RESPONSES_TAG,
        answers={
            "200": AnswerForms(description="It is deleted.", bodies={JSON: ResponseDeleted}),
            **_refusals(*OF_READS, errors.TaskNotEnded),
        },
    ),
    OperationForms(
        name="cancelResponse",
        method="POST",
        path="/v1/responses/{id}/cancel",
        summary="Cancel the task of a response; one that has ended stays as it is",
        tag=RESPONSES_TAG,
        answers={
            "200": AnswerForms(description="The response.", bodies={JSON: ResponseObject}, headers=MADE),
            **_refusals(*OF_READS),
        },
    ),
    OperationForms(
        name="listResponseInputItems",
        method="GET",
        path="/v1/responses/{id}/input_items",
        summary="List what a response answers",
        tag=RESPONSES_TAG,
        query=ItemQuery,
        answers={
            "200": AnswerForms(description="A page of items.", bodies={JSON: ItemList}),
            **_refusals(*OF_READS),
        },
    ),
    OperationForms(
        name="createConversation",
        method="POST",
        path="/v1/conversations",
        summary="Make the id of a conversation",
        tag=RESPONSES_TAG,
        body=ConversationRequest,
        body_required=False,
        answers={
            "200": AnswerForms(description="The conversation.", bodies={JSON: ConversationObject}),
            **_refusals(*OF_ALL, *OF_BODIES),
        },
    ),
    OperationForms(
        name="getConversation",
        method="GET",
        path="/v1/conversations/{id}",
        summary="Read a conversation",
        tag=RESPONSES_TAG,
        answers={
            "200": AnswerForms(description="The conversation.", bodies={JSON: ConversationObject}),
            **_refusals(*OF_READS),
        },
    ),
    OperationForms(
        name="deleteConversation",
        method="DELETE",
        path="/v1/conversations/{id}",
        summary="Delete the tasks of a conversation, which have ended",
        tag=RESPONSES_TAG,
        answers={
            "200": AnswerForms(description="They are deleted.", bodies={JSON: ConversationDeleted}),
            **_refusals(*OF_READS, errors.TaskNotEnded),
        },
    ),
    OperationForms(
        name="listConversationItems",
        method="GET",
        path="/v1/conversations/{id}/items",
        summary="List what was said in a conversation",
        tag=RESPONSES_TAG,
        query=ItemQuery,
        answers={
            "200": AnswerForms(description="A page of items.", bodies={JSON: ItemList}),
            **_refusals(*OF_READS),
        },
    ),
)
"""The paths of OpenAI's Responses and conversations."""
