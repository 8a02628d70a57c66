"""Encodes an agent's output as a chat completion: in one piece, or as the chunks of a stream.

Invariant: the chunks' contents, joined, are the content of the whole answer, as long as an agent writes its artifacts
one after the other and replaces none. Every error has a row; one without its own has that of its nearest base class.
"""

from typing import Any

import msgspec
from msgspec import Struct

from dragoman.dialects.jsonrpc import clean
from dragoman.dialects.openai.marks import NOTHING_ASKED, QUESTION, end_quote, spell_mark
from dragoman.model import errors
from dragoman.model.errors import (
    A2AError,
    AgentFailed,
    AgentNotFound,
    InvalidParams,
    TaskTimeout,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.events import ArtifactChunk, Event, StatusChanged
from dragoman.model.ids import timestamp_ms
from dragoman.model.message import Message, Part
from dragoman.model.task import INTERRUPTED, Record, TaskHead, TaskState, Usage

DONE = b"[DONE]"
"""The last frame of a stream, and the only one that is not JSON."""

CUT_OFF = "model_length"
"""The reason, in the status message, of a task that was completed with its output cut off."""

BETWEEN = "\n\n"
"""The separator between the texts of two artifacts, and before a question."""


def completion_id(source: str) -> str:
    """Derive the id of a completion from that of its task or message."""
    return f"chatcmpl-{source}"


def created_s(head: TaskHead) -> int:
    """Return when the task was made, in whole seconds since the epoch."""
    return timestamp_ms(head.created_at) // 1000


def encode_record(record: Record, *, marks: bool = False) -> bytes:
    """Encode the whole answer of a task that ended or waits for its caller; with `marks` its question has a mark.

    Raises AgentFailed or UnsupportedOperation if the task ended but was not completed.
    """
    head = record.head
    if (error := refusal(head.id, record.state, record.status.message)) is not None:
        raise error
    texts = [text for artifact in record.artifacts if (text := text_of(artifact.parts))]
    question = record.status.message if record.state in INTERRUPTED else None
    if question is not None:
        texts.append(_question_text(head.id, question, marks=marks))
    if record.state is TaskState.COMPLETED and not texts:
        texts.append(_last_words(record.status.message))
    finish, content = _finish_reason(record.status.message), BETWEEN.join(texts)
    if question is None or not marks:
        content = end_quote(content)
    return _encode(head.id, created_s(head), head.agent, content, record.usage, finish)


def encode_message(message: Message, agent: str, now_s: int) -> bytes:
    """Encode the whole answer of an agent that answers without a task."""
    return _encode(message.message_id, now_s, agent, end_quote(text_of(message.parts)), None)


def _question_text(task_id: str, question: Message, *, marks: bool) -> str:
    """Return a question as content."""
    return text_of(question.parts) + (spell_mark(task_id, question) if marks else "")


def _finish_reason(message: Message | None) -> str:
    """Return why a completion ends, from the message of the task's last status."""
    cut_off = message is not None and message.metadata is not None and message.metadata.get("reason") == CUT_OFF
    return "length" if cut_off else "stop"


def _last_words(message: Message | None) -> str:
    """Return the message of an agent that completed its task with words alone; empty if it only explains a cut-off."""
    return "" if message is None or _finish_reason(message) != "stop" else text_of(message.parts)


def _encode(
    source: str, created: int, agent: str, content: str, usage: Usage | None, finish_reason: str = "stop"
) -> bytes:
    answer = {
        "id": completion_id(source),
        "object": "chat.completion",
        "created": created,
        "model": agent,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content, "refusal": None},
                "logprobs": None,
                "finish_reason": finish_reason,
            }
        ],
        "usage": _usage(usage),
    }
    return msgspec.json.encode(answer)


def refusal(task_id: str, state: TaskState, message: Message | None) -> A2AError | None:
    """Return the error for a task's end; None if the end is an answer, or the task has not ended."""
    text = text_of(message.parts) if message is not None else ""
    match state:
        case TaskState.FAILED:
            return AgentFailed(task_id, text)
        case TaskState.CANCELED:
            return AgentFailed(task_id, text or "The task was canceled")
        case TaskState.REJECTED:
            return UnsupportedOperation(text or "the agent rejected the message")
        case _:
            return None


class Chunks:
    """Encodes the chunks of one completion as events come; `over` once the last one was made.

    `marks` is as in `encode_record`; then `source` is the id of the task.
    """

    def __init__(self, source: str, created: int, agent: str, *, tells_usage: bool, marks: bool = False) -> None:
        self.over = False
        self._marks = marks
        self._source = source
        self._tells_usage = tells_usage
        self._usage: Usage | None = None
        self._begun = False
        self._writing: str | None = None
        self._wrote = False
        self._quotes = False
        self._written = ""
        """The end of the text so far, in which a mark may have begun."""
        self._around: dict[str, Any] = {
            "id": completion_id(source),
            "object": "chat.completion.chunk",
            "created": created,
            "model": agent,
        }

    def of(self, event: Event) -> list[bytes]:
        """Encode the frames of an event, in order; the very first frame names the role of the message."""
        frames: list[bytes] = []
        if not self._begun:
            self._begun = True
            frames.append(self._chunk({"role": "assistant", "content": "", "refusal": None}))
        match event:
            case ArtifactChunk(artifact=artifact, append=append):
                goes_on = append and artifact.artifact_id == self._writing
                self._writing = artifact.artifact_id
                frames += self._text(text_of(artifact.parts), goes_on)
            case StatusChanged(state=state, message=message, usage=usage):
                self._usage = usage or self._usage
                if (error := refusal(self._source, state, message)) is not None:
                    frames += self.failed(error)
                elif state in INTERRUPTED:
                    asked = "" if message is None else _question_text(self._source, message, marks=self._marks)
                    frames += self._text(asked, goes_on=False)
                    self._quotes = self._quotes and not (self._marks and message is not None)
                    frames += self._finish()
                elif state is TaskState.COMPLETED:
                    if not self._wrote:
                        frames += self._text(_last_words(message), goes_on=False)
                    frames += self._finish(_finish_reason(message))
            case _:
                pass
        return frames

    def failed(self, error: A2AError) -> list[bytes]:
        """Encode the frames that end the stream with an error."""
        self.over = True
        return [encode_error(error), DONE]

    def _text(self, text: str, goes_on: bool) -> list[bytes]:
        if not text:
            return []
        if self._wrote and not goes_on:
            text = BETWEEN + text
        self._wrote = True
        if not self._quotes:
            written = self._written + text
            self._quotes, self._written = QUESTION in written, written[-len(QUESTION) :]
        return [self._chunk({"content": text})]

    def _finish(self, reason: str = "stop") -> list[bytes]:
        self.over = True
        frames = [self._chunk({"content": NOTHING_ASKED})] if self._quotes else []
        frames.append(self._chunk({}, reason))
        if self._tells_usage:
            frames.append(msgspec.json.encode({**self._around, "choices": [], "usage": _usage(self._usage)}))
        return [*frames, DONE]

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._around, "choices": [choice]}
        if self._tells_usage:
            chunk["usage"] = None  # OpenAI, chat completion chunk: null in all but the last
        return msgspec.json.encode(chunk)


def _usage(usage: Usage | None) -> dict[str, Any]:
    known = usage or Usage()
    cached = {"prompt_tokens_details": {"cached_tokens": known.cached_tokens}} if known.cached_tokens else {}
    return {
        "prompt_tokens": known.input_tokens,
        "completion_tokens": known.output_tokens,
        "total_tokens": known.total_tokens,
        **cached,
    }


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the parts as text: texts unchanged, data as JSON, files by their URL if they have one."""
    pieces = []
    for part in parts:
        if part.text is not None:
            pieces.append(part.text)
        elif part.url is not None:
            pieces.append(part.url)
        elif part.raw is None:
            pieces.append(msgspec.json.encode(part.data).decode())
    return "".join(pieces)


# -- errors ------------------------------------------------------------------------------------------------------------


class ErrorEncoding(Struct, frozen=True):
    """The encoding of one error.

    `again`: whether a client may repeat the request by itself, as the official ones do at 408, 409, 429 and 5xx.
    """

    status: int
    type: str
    code: str | None
    again: bool = True


_WRONG = "invalid_request_error"
_OURS = "server_error"

TABLE: dict[type[A2AError], ErrorEncoding] = {
    A2AError: ErrorEncoding(500, _OURS, "internal_error"),
    errors.ParseError: ErrorEncoding(400, _WRONG, "invalid_json"),
    errors.InvalidRequest: ErrorEncoding(400, _WRONG, None),
    errors.InvalidParams: ErrorEncoding(400, _WRONG, None),
    errors.AgentNotFound: ErrorEncoding(404, _WRONG, "model_not_found"),
    errors.TaskNotFound: ErrorEncoding(404, _WRONG, "task_not_found"),
    errors.NotFound: ErrorEncoding(404, _WRONG, "not_found"),
    errors.MethodNotAllowed: ErrorEncoding(405, _WRONG, "method_not_allowed"),
    errors.UnsupportedMediaType: ErrorEncoding(415, _WRONG, "unsupported_media_type"),
    errors.PayloadTooLarge: ErrorEncoding(413, _WRONG, "payload_too_large"),
    errors.RequestTimeout: ErrorEncoding(408, _WRONG, "request_timeout"),
    errors.ContentTypeNotSupported: ErrorEncoding(400, _WRONG, "content_type_not_supported"),
    errors.UnsupportedOperation: ErrorEncoding(400, _WRONG, "unsupported_operation"),
    # A repeat would find the same: it is the caller who has to cancel or wait.
    errors.TaskNotEnded: ErrorEncoding(409, _WRONG, "response_not_ended", again=False),
    errors.ExtensionSupportRequired: ErrorEncoding(400, _WRONG, "extension_required"),
    errors.Unauthorized: ErrorEncoding(401, _WRONG, "invalid_api_key"),
    errors.Forbidden: ErrorEncoding(403, _WRONG, "permission_denied"),
    errors.TooManyRequests: ErrorEncoding(429, "requests", "rate_limit_exceeded"),
    # OpenAI's clients know by the code that there is no use in trying again.
    errors.BudgetExhausted: ErrorEncoding(429, "insufficient_quota", "insufficient_quota", again=False),
    errors.Unavailable: ErrorEncoding(503, _OURS, "unavailable"),
    errors.AgentOffline: ErrorEncoding(503, _OURS, "agent_offline"),
    # The agent has worked on it: a repeat would make another task.
    errors.AgentFailed: ErrorEncoding(500, _OURS, "agent_failed", again=False),
    errors.TaskTimeout: ErrorEncoding(504, _OURS, "timeout", again=False),
}


def row(error: A2AError) -> ErrorEncoding:
    """Return the row of the error's class, or of its nearest base class that has one."""
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def encode_error(error: A2AError) -> bytes:
    """Encode the body of an error answer, which is also the last chunk of a stream."""
    known = row(error)
    message, param = error.message, None
    match error:
        case AgentNotFound():
            message = f"The model `{error.agent[:100]}` does not exist: GET /v1/models lists those that do"
            param = "model"
        case InvalidParams():
            param = error.violations[0][0] or None
        case AgentFailed():
            message = error.details or message
        case _:
            pass
    told: dict[str, Any] = {"message": clean(message), "type": known.type, "param": param and clean(param)}
    return msgspec.json.encode({"error": {**told, "code": known.code}})


def error_status(error: A2AError) -> int:
    """Return the HTTP status of an error answer."""
    return row(error).status


def task_of(error: A2AError) -> str | None:
    """Return the task that the error is about, if there is one that the caller can look at."""
    named = error.task_id if isinstance(error, AgentFailed | TaskTimeout | Unavailable) else ""
    return named or None
