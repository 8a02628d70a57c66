"""Helpers for encoding requests in the official dialects: paths, queries, bodies, and the skill in the metadata.

Invariant: a value that cannot be written raises InvalidParams, which names the field where there is one.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from dragoman.model import ids
from dragoman.model.errors import InvalidParams, UnsupportedOperation
from dragoman.model.operations import SendMessage

Json = dict[str, Any]

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


def _not_unicode() -> InvalidParams:
    return InvalidParams("", "holds text that is not Unicode: half of a surrogate pair")


def no_earlier(sent: SendMessage, system: str) -> None:
    """Raise UnsupportedOperation for a send with earlier messages: the system knows conversations by context only."""
    if sent.earlier:
        raise UnsupportedOperation(f"{system} takes no earlier messages with a message: continue in their context_id")
