"""Refusals in a document: each status with the reasons that it may have, and the headers that come with it.

Invariant: the headers are those that `bindings.http.error_response` sends.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from dragoman.bindings.openapi.document import AnswerForms, HeaderForms
from dragoman.model.errors import A2AError, TooManyRequests, Unauthorized, Unavailable

RETRY_AFTER: HeaderForms = {
    "Retry-After": {
        "description": "In how many seconds to try again. Absent: nobody knows.",
        "schema": {"type": "integer", "minimum": 0},
    }
}
CHALLENGE: HeaderForms = {
    "WWW-Authenticate": {"description": "How callers say who they are.", "schema": {"type": "string"}}
}

HEADERS: Mapping[type[A2AError], HeaderForms] = {
    TooManyRequests: RETRY_AFTER,
    Unavailable: RETRY_AFTER,
    Unauthorized: CHALLENGE,
}
"""The headers of errors that have some."""

Reason = Callable[[type[A2AError]], tuple[int, str]]
"""The HTTP status of an error in a dialect, and the word by which programs know it."""


def describe_refusals(
    kinds: Collection[type[A2AError]],
    reason: Reason,
    body: type[Struct],
    content_type: str,
    headers: HeaderForms | None = None,
) -> dict[str, AnswerForms]:
    """The refusals by status. `headers` come with each of them."""
    words: dict[int, list[str]] = {}
    sent: dict[int, dict[str, Mapping[str, Any]]] = {}
    for kind in kinds:
        status, word = reason(kind)
        known = words.setdefault(status, [])
        if word not in known:
            known.append(word)
        sent.setdefault(status, dict(headers or {})).update(HEADERS.get(kind, {}))
    return {
        str(status): AnswerForms(
            description=f"Refused: {', '.join(words[status])}.", bodies={content_type: body}, headers=sent[status]
        )
        for status in sorted(words)
    }
