"""Encodes the messages of an MCP server: results and errors, and before them progress, log messages and questions.

Invariant: each is one JSON-RPC message; the reported progress of a call only ever grows.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from dragoman.dialects import jsonrpc, rpc_errors
from dragoman.dialects.mcp import names
from dragoman.dialects.mcp.serve import TOLD_AS, Greeting
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidParams
from dragoman.model.task import Progress

BEAT = 0.001
"""How much progress grows when only time has passed, or when the agent's own has decreased (2025-11-25, Progress)."""

CODES: Mapping[type[A2AError], int] = {
    errors.ParseError: names.PARSE_ERROR,
    errors.InvalidRequest: names.INVALID_REQUEST,
    errors.UnsupportedMediaType: names.INVALID_REQUEST,
    errors.PayloadTooLarge: names.INVALID_REQUEST,
    errors.RequestTimeout: names.INVALID_REQUEST,
    errors.MethodNotAllowed: names.INVALID_REQUEST,
    errors.NotFound: names.INVALID_REQUEST,
    errors.Unauthorized: names.INVALID_REQUEST,
    errors.Forbidden: names.INVALID_REQUEST,
    errors.MethodNotFound: names.METHOD_NOT_FOUND,
    errors.InvalidParams: names.INVALID_PARAMS,
    errors.TaskNotFound: names.INVALID_PARAMS,
    errors.TooManyRequests: -32000,
}
"""JSON-RPC codes by error; any other error is internal."""

QUESTION = "answer"
"""The only field of a form; an answer is a text."""

INSTRUCTIONS = (
    "Each tool is a skill of an agent. An agent is told in words what to do, and may take its time. Its result names a "
    "task and a conversation: send context_id to continue the conversation. If its state is input-required, the agent "
    "has asked something: call the same tool again with the answer and task_id."
)

_ENCODER = msgspec.json.Encoder()

TOOLS_CHANGED = _ENCODER.encode({"jsonrpc": "2.0", "method": names.TOOLS_CHANGED})
"""The notification that the result of `tools/list` has changed."""


def encode_greeting(greeting: Greeting, version: str) -> bytes:
    """Encode the result of `initialize`; `version` is that of this program."""
    return _ENCODER.encode(
        {
            "protocolVersion": greeting.version,
            "capabilities": {"tools": {"listChanged": True}, "logging": {}},
            "serverInfo": {"name": "dragoman", "title": "Dragoman", "version": version},
            "instructions": INSTRUCTIONS,
        }
    )


def result(request_id: bytes, encoded: bytes) -> bytes:
    """Encode the answer to a request; the id is the raw JSON that came."""
    before, after = jsonrpc.around(request_id)
    return before + encoded + after


def error(request_id: bytes, refused: A2AError) -> bytes:
    """Encode an error answer."""
    told: dict[str, Any] = {"code": code(refused), "message": rpc_errors.clean(refused.message)}
    if isinstance(refused, InvalidParams):
        told["data"] = [{"field": rpc_errors.clean(at), "description": fix} for at, fix in refused.violations]
    before, after = jsonrpc.around_error(request_id)
    return before + _ENCODER.encode(told) + after


def code(refused: A2AError) -> int:
    """Return the error's code."""
    return next((CODES[kind] for kind in type(refused).__mro__ if kind in CODES), names.INTERNAL_ERROR)


def status(refused: A2AError) -> int:
    """Return the HTTP status of an error answer; 404 means that the session no longer exists."""
    if isinstance(refused, errors.ParseError | errors.InvalidRequest):
        return 400
    return rpc_errors.status(refused)


class Growing:
    """The reported progress of one call: each number is larger than the last."""

    __slots__ = ("_last", "_token", "_total")

    def __init__(self, token: bytes) -> None:
        """`token` is the raw JSON that came."""
        self._token = Raw(token)
        self._last = -BEAT
        self._total = 0

    def told(self, progress: Progress | None, text: str = "") -> bytes:
        """Encode a notification with the agent's progress and message; None: it only says that the agent is at work."""
        params: dict[str, Any] = {"progressToken": self._token}
        if progress is not None:
            self._total = progress.total
        if progress is not None and progress.current > self._last:
            self._last = progress.current
        else:
            self._last = round(self._last + BEAT, 3)
        params["progress"] = self._last
        if self._total >= self._last > 0:
            params["total"] = self._total
        if text:
            params["message"] = rpc_errors.clean(text)
        return _notification(names.PROGRESS, params)


def log(agent: str, text: str) -> bytes:
    """Encode a log message with an agent's message about its work."""
    return _notification(names.LOGGED, {"level": TOLD_AS, "logger": agent, "data": rpc_errors.clean(text)})


def question_id(task_id: str, seq: int) -> str:
    """Build the id of the request that asks the question in the task's event `seq`; it says where the answer goes."""
    return f"{task_id}/{seq}"


def task_of(request_id: str) -> str:
    """Return the task whose question had that id; empty if there is none."""
    task_id, slash, seq = request_id.rpartition("/")
    return task_id if slash and seq.isdigit() and len(request_id) <= jsonrpc.MAX_ID_BYTES else ""


def question(request_id: str, text: str) -> bytes:
    """Encode `elicitation/create`: a form with one field."""
    return _ENCODER.encode(
        {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": names.ELICIT,
            "params": {
                "message": rpc_errors.clean(text) or "The agent asks for an answer",
                "requestedSchema": {
                    "type": "object",
                    "properties": {QUESTION: {"type": "string", "title": "Answer"}},
                    "required": [QUESTION],
                },
            },
        }
    )


def _notification(method: str, params: dict[str, Any]) -> bytes:
    return _ENCODER.encode({"jsonrpc": "2.0", "method": method, "params": params})
