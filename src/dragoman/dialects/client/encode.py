"""Helpers for encoding requests in the official dialects: paths, queries, bodies, and the skill in the metadata.

Invariant: a value that cannot be written raises InvalidParams, which names the field where there is one.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from dragoman.dialects.operations import FieldKind, FieldRow, OperationRow, OperationTable, default_of
from dragoman.model import ids
from dragoman.model.errors import InvalidParams, UnsupportedOperation
from dragoman.model.operations import DeletePushConfig, GetPushConfig, ListTasks, Operation, SendMessage, task_id_of
from dragoman.model.task import TaskState

Json = dict[str, Any]

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


def query(**values: Any) -> str:
    """Build a query with its question mark from the values present; empty if there are none."""
    given = present(values)
    spelled = {name: "true" if value is True else value for name, value in given.items()}
    try:
        return "?" + urlencode(spelled, quote_via=quote) if spelled else ""
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


def row_of(operation: Operation, table: OperationTable, system: str) -> OperationRow:
    """Return the operation's row. Raises UnsupportedOperation if the version lacks it, or a page by its offset."""
    row = table.get(type(operation))
    if row is None:
        raise UnsupportedOperation(f"{system} has no {type(operation).__name__}: it belongs to BeeOS")
    if isinstance(operation, ListTasks) and operation.offset and not operation.page_token:
        raise UnsupportedOperation(f"{system} has no offset: page with page_token")
    return row


def check_id(operation: Operation, reaches: str) -> None:
    """Raise UnsupportedOperation for an operation on a webhook that is not named, which only some dialects allow."""
    if isinstance(operation, GetPushConfig | DeletePushConfig) and not operation.id:
        raise UnsupportedOperation(f"{reaches} by its id only: list them to find it")


def plain_fields(rows: Iterable[FieldRow], operation: Operation, states: Mapping[TaskState, str]) -> Json:
    """Return the plain fields of an operation by their names in JSON, without those that say nothing.

    `states` spells states. The id of the last event seen is not among them: it goes into a header.
    """
    members: Json = {}
    for field in rows:
        value = getattr(operation, field.name)
        if field.kind in (FieldKind.SEQ, FieldKind.WEBHOOK) or value in (None, ""):
            continue
        if not value and value == default_of(type(operation), field):
            continue
        if field.kind is FieldKind.STATE:
            value = states[value]
        elif field.kind is FieldKind.TIME:
            value = moment(value)
        members[field.json_name] = value
    return members


def path_of(row: OperationRow, operation: Operation) -> str:
    """Return the path of an operation over HTTP+JSON, with its ids."""

    def filled(place: re.Match[str]) -> str:
        value = task_id_of(operation) if place[1] == "task_id" else getattr(operation, place[1])
        return segment(value, "taskId" if place[1] == "task_id" else place[1])

    return _ID.sub(filled, row.path)


def path_and_query(row: OperationRow, operation: Operation, states: Mapping[TaskState, str]) -> str:
    """Return the path with the plain fields that are not in it; the tenant is left to the dialect."""
    in_path = {field.json_name for field in row.fields if f"{{{field.name}}}" in row.path}
    rest = plain_fields(row.fields, operation, states).items()
    return path_of(row, operation) + query(**{name: value for name, value in rest if name not in {*in_path, "tenant"}})


def _not_unicode() -> InvalidParams:
    return InvalidParams("", "holds text that is not Unicode: half of a surrogate pair")


def no_earlier(sent: SendMessage, system: str) -> None:
    """Raise UnsupportedOperation for a send with earlier messages: the system knows conversations by context only."""
    if sent.earlier:
        raise UnsupportedOperation(f"{system} takes no earlier messages with a message: continue in their context_id")
