"""Helpers for encoding requests in the official dialects: paths, queries, bodies, and the skill in the metadata.

Invariant: a value that cannot be written raises InvalidParams, which names the field where there is one.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from dragoman.dialects.operations import FieldKind, FieldRow, OperationRow, OperationTable, default_of
from dragoman.model import ids
from dragoman.model.errors import InvalidParams, UnsupportedOperation
from dragoman.model.operations import DeletePushConfig, GetPushConfig, ListTasks, Operation, SendMessage, task_id_of
from dragoman.model.task import TaskState

Json = dict[str, Any]

R = TypeVar("R")

_ID = re.compile(r"\{(\w+)\}")

_ENCODER = msgspec.json.Encoder()


def named(sent: SendMessage) -> Json | None:
    """Return a send's metadata with the skill that it asks for, or else the first of the skills that it allows."""
    skill = sent.skill or (sent.skills[0] if sent.skills else None)
    if skill is None:
        return sent.metadata
    if sent.metadata is not None and sent.metadata.get("skill") == skill:
        return sent.metadata
    if not (sent.metadata or {}).get("skill") and (sent.message.metadata or {}).get("skill") == skill:
        return sent.metadata
    return {**(sent.metadata or {}), "skill": skill}


def moment(ms: int) -> str:
    """Format milliseconds since the epoch as a time stamp."""
    try:
        return ids.timestamp(ms)
    except (ValueError, OverflowError, OSError):
        raise InvalidParams("statusTimestampAfter", "must be a time between the years 1 and 9999") from None


def segment(text: str, field: str) -> str:
    """Percent-encode one segment of a path. Text that a path would lose or change is refused."""
    if text in ("", ".", ".."):
        raise InvalidParams(field, "is required" if not text else "cannot be part of a path")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise _not_unicode() from None


def query(members: Json) -> str:
    """Build a query with its question mark; empty if there are no members."""
    if not members:
        return ""
    spelled = {name: "true" if value is True else value for name, value in members.items()}
    try:
        return "?" + urlencode(spelled, quote_via=quote)
    except UnicodeEncodeError:
        raise _not_unicode() from None


def present(members: Mapping[str, Any]) -> Json:
    """Drop absent members and empty strings."""
    return {name: value for name, value in members.items() if value is not None and value != ""}


def encoded(value: Any) -> bytes:
    """Encode the value as JSON."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        raise _not_unicode() from None


def row_of(operation: Operation, table: Mapping[type[Operation], R], system: str) -> R:
    """Return the operation's row. Raises UnsupportedOperation if the version lacks it, or a page by its offset."""
    row = table.get(type(operation))
    if row is None:
        raise UnsupportedOperation(f"{system} has no {type(operation).__name__}: it belongs to BeeOS")
    if isinstance(operation, ListTasks) and operation.offset and not operation.page_token:
        raise UnsupportedOperation(f"{system} has no offset: page with page_token")
    return row


def check_id(operation: Operation, reaches: str) -> None:
    """Raise UnsupportedOperation for an operation on a webhook that is not named, which only some dialects allow."""
    if isinstance(operation, (GetPushConfig, DeletePushConfig)) and not operation.id:
        raise UnsupportedOperation(f"{reaches} by its id only: list them to find it")


class JsonCall(Struct, frozen=True):
    """How an operation is written in JSON.

    `members` returns its plain fields by their names, without those that say nothing; `path` the path with its ids;
    `address` the path with a query of the other fields, except for the tenant, which is left to the dialect.
    """

    row: OperationRow
    members: Callable[[Operation], Json]
    path: Callable[[Operation], str]
    address: Callable[[Operation], str]


def json_calls(table: OperationTable, states: Mapping[TaskState, str]) -> Mapping[type[Operation], JsonCall]:
    """Return how the operations of a version are written; `states` spells states."""
    return {kind: _json_call(row, states) for kind, row in table.items()}


def _json_call(row: OperationRow, states: Mapping[TaskState, str]) -> JsonCall:
    rest = [field for field in row.fields if field.name != "tenant" and f"{{{field.name}}}" not in row.path]
    path, others = _path_of(row), compile_members(row.operation, rest, states)

    def address(operation: Operation) -> str:
        return path(operation) + query(others(operation))

    return JsonCall(row, compile_members(row.operation, row.fields, states), path, address)


def compile_members(
    kind: type[Operation], rows: Iterable[FieldRow], states: Mapping[TaskState, str]
) -> Callable[[Any], Json]:
    """Compile the function that returns the plain fields of an operation by their names in JSON.

    Fields that say nothing are left out, and so is the id of the last event seen, which goes into a header. The source
    is Python with lines for each field: a GetTask takes 1 µs then, and 3 µs in a loop over the rows.
    """
    lines = ["def write(given):", "    members = {}"]
    for field in rows:
        if field.kind in (FieldKind.SEQ, FieldKind.WEBHOOK):
            continue
        default = default_of(kind, field)
        empty_says_nothing = field.kind is FieldKind.TEXT or (default is not None and not default)
        value = _SPELLED.get(field.kind, "value")
        lines += [
            f"    value = given.{field.name}",
            f"    if {'value' if empty_says_nothing else 'value is not None'}:",
            f"        members[{field.json_name!r}] = {value}",
        ]
    scope: dict[str, Any] = {"states": states, "moment": moment}
    exec("\n".join([*lines, "    return members"]), scope)
    write: Callable[[Any], Json] = scope["write"]
    return write


_SPELLED = {FieldKind.STATE: "states[value]", FieldKind.TIME: "moment(value)"}
"""Values that JSON spells otherwise than the model."""


def _path_of(row: OperationRow) -> Callable[[Operation], str]:
    """Compile the function that writes the path of an operation over HTTP+JSON, with its ids."""
    source = _ID.sub(lambda place: _ID_SOURCES[place[1]], row.path)
    path: Callable[[Operation], str] = eval(
        f'lambda given: f"{source}"', {"segment": segment, "task_id_of": task_id_of}
    )
    return path


_ID_SOURCES = {"id": "{segment(given.id, 'id')}", "task_id": "{segment(task_id_of(given), 'taskId')}"}


def _not_unicode() -> InvalidParams:
    return InvalidParams("", "holds text that is not Unicode: half of a surrogate pair")


def no_earlier(sent: SendMessage, system: str) -> None:
    """Raise UnsupportedOperation for a send with earlier messages: the system knows conversations by context only."""
    if sent.earlier:
        raise UnsupportedOperation(f"{system} takes no earlier messages with a message: continue in their context_id")
