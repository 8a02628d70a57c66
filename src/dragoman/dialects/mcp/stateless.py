"""The server's side of MCP 2026-07-28, what arrives: requests that say everything about themselves.

Invariant: no request depends on an earlier one. Any bytes give a value or an A2AError, with the path of the field where
there is one; what a header says and what the body says is the same.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.dialects.mcp import names
from dragoman.dialects.mcp.headers import decode_value
from dragoman.dialects.mcp.refusals import HeaderMismatch, UnsupportedVersion, needs_tasks
from dragoman.dialects.mcp.requests import LEVELS, check_id, shows_forms
from dragoman.dialects.v03.fields import MAX_ID, Fields
from dragoman.model.errors import InvalidParams

MARK = names.META_VERSION.encode()
"""A request without this text in its params is not of 2026-07-28."""

NAMED: Mapping[str, str] = {
    names.TOOLS_CALL: "name",
    names.TASKS_GET: "taskId",
    names.TASKS_UPDATE: "taskId",
    names.TASKS_CANCEL: "taskId",
}
"""The param that `Mcp-Name` repeats, by method (Streamable HTTP, Standard Request Headers; SEP-2663)."""

_NUMBER = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?", re.ASCII)

MAX_STATE = 4096
"""Longest `requestState` that is looked at: ours are shorter."""


class MirroredHeaders(Struct, frozen=True):
    """The headers that repeat fields of the body, as they came; None: not sent."""

    version: str | None
    method: str | None
    name: str | None


class ClientTerms(Struct, frozen=True):
    """The abilities of a client, as a request states them: whether it shows forms and knows tasks, and its wishes.

    `level` is the lowest level of log messages; None: none. `token` is the raw JSON for progress notifications.
    """

    elicits: bool
    tasks: bool
    level: str | None = None
    token: bytes | None = None
    traceparent: str | None = None


class StatelessCall(Struct, frozen=True):
    """A tool call. With `state` it goes on with an earlier one, and `responses` are the reactions to its forms."""

    name: str
    arguments: Fields
    responses: Mapping[str, Fields]
    state: str | None


class TaskUpdate(Struct, frozen=True):
    """The reactions to forms of a task, by the keys under which the task showed them."""

    task_id: str
    responses: Mapping[str, Fields]


def is_stateless(fields: Fields) -> bool:
    """Whether the params are of a request that says its version itself."""
    meta = fields.find("_meta")
    return isinstance(meta, dict) and names.META_VERSION in meta


def decode_terms(method: str, fields: Fields, headers: MirroredHeaders) -> ClientTerms:
    """Decode what a request says of itself, and compare it with its headers.

    Raises InvalidParams for what is missing, HeaderMismatch, or UnsupportedVersion.
    """
    meta = fields.object("_meta")
    if meta is None:
        raise InvalidParams("params._meta", f"is required, with {names.META_VERSION} and {names.META_CAPABILITIES}")
    version = meta.required_text(names.META_VERSION)
    capabilities = meta.object(names.META_CAPABILITIES)
    if capabilities is None:
        raise InvalidParams(meta.at(names.META_CAPABILITIES), "is required: {} if the client has none")
    _compare(names.VERSION_HEADER, headers.version, version, names.META_VERSION)
    _compare(names.METHOD_HEADER, headers.method, method, "the method")
    if (named := NAMED.get(method)) is not None and (value := fields.text(named)) is not None:
        _compare(names.NAME_HEADER, None if headers.name is None else decode_value(headers.name), value, named)
    if version != names.STATELESS:
        raise UnsupportedVersion(version)
    level = meta.text(names.META_LOG_LEVEL)
    if level is not None and level not in LEVELS:
        raise InvalidParams(meta.at(names.META_LOG_LEVEL), f"must be one of {', '.join(LEVELS)}")
    extensions = capabilities.mapping("extensions") or {}
    token, traceparent = meta.find("progressToken"), meta.find("traceparent")
    return ClientTerms(
        shows_forms(capabilities),
        isinstance(extensions.get(names.TASKS), dict),
        level,
        None if token is None else check_id(msgspec.json.encode(token), "_meta.progressToken"),
        traceparent if isinstance(traceparent, str) else None,
    )


def decode_call(fields: Fields) -> StatelessCall:
    """Decode `tools/call`. Raises InvalidParams."""
    state = fields.text("requestState")
    arguments = fields.object("arguments") or Fields({}, "arguments")
    return StatelessCall(fields.required_text("name"), arguments, _responses(fields), state)


def decode_task_id(fields: Fields) -> str:
    """Decode the task that a request is about. Raises InvalidParams."""
    task_id = fields.required_text("taskId")
    if len(task_id) > MAX_ID:
        raise InvalidParams("taskId", f"must have at most {MAX_ID} characters")
    return task_id


def decode_update(fields: Fields) -> TaskUpdate:
    """Decode `tasks/update`. Raises InvalidParams."""
    if not fields.has("inputResponses"):
        raise InvalidParams("inputResponses", "is required: the user's reaction to each form, by its key")
    return TaskUpdate(decode_task_id(fields), _responses(fields))


def decode_listen(fields: Fields, terms: ClientTerms) -> bool:
    """Decode `subscriptions/listen`: whether changes of the tools are wanted. Raises InvalidParams, MissingCapability.

    No other notifications are sent here, those of tasks neither: `tasks/get` says how a task stands.
    """
    wanted = fields.object("notifications")
    if wanted is None:
        raise InvalidParams("notifications", 'is required: {"toolsListChanged": true}')
    if wanted.has("taskIds") and not terms.tasks:
        raise needs_tasks("notifications.taskIds")
    return bool(wanted.flag("toolsListChanged"))


def _responses(fields: Fields) -> dict[str, Fields]:
    given = fields.object("inputResponses") or Fields({})
    found: dict[str, Fields] = {}
    for key, response in given.members.items():
        path = given.at(key[:100])
        if not isinstance(response, dict):
            raise InvalidParams(path, "must be an object: the result of the request with that key")
        found[key] = Fields(response, path)
    return found


def compare_param(header: str, sent: str | None, expected: str | None) -> None:
    """Compare a header with the argument that it repeats, as a client encodes it. Raises HeaderMismatch."""
    said, wanted = (None if value is None else decode_value(value) for value in (sent, expected))
    if said == wanted and (sent is None) == (expected is None):
        return
    if said is None or wanted is None or not (_NUMBER.fullmatch(said) and _NUMBER.fullmatch(wanted)):
        _compare(header, said, wanted or "left out", "the argument that it repeats")
    elif float(said) != float(wanted):  # 42.0 is 42 (Streamable HTTP, Server Validation)
        _compare(header, said, wanted, "the argument that it repeats")


def _compare(header: str, sent: str | None, value: Any, field: str) -> None:
    if sent != value:
        raise HeaderMismatch(header, f"must be sent, and must be the same as {field} in the body")
