"""The headers of one attempt.

Invariant: `webhook-id` is the same in every attempt, `webhook-timestamp` is the time of this attempt, and the signature
covers both, if the configuration has a secret (Standard Webhooks 1.0).
"""

import re
from collections.abc import Callable, Iterable

from dragoman.dialects.api import PushForm, Signing
from dragoman.model.operations import PushConfig
from dragoman.store.outbox import Due

Token = Callable[[str, str, str, bytes], str | None]
"""Makes the JWT of a delivery from its URL, its id, the task's id and the body. None: the call has no JWT."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
"""A header's name (RFC 9110 §5.1)."""

_OURS = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "expect", "host", "keep-alive", "te"}
    | {"trailer", "transfer-encoding", "upgrade", "accept-encoding", "user-agent", "traceparent", "tracestate"}
    | {"webhook-id", "webhook-timestamp", "webhook-signature", "x-dragoman-seq", "x-dragoman-jwt"}
)
"""Headers that the server sets itself. A caller that registers a webhook cannot choose them."""

_UNSENDABLE = re.compile(r"[^\t\x20-\x7e\x80-\U0010ffff]")
"""Characters that a header's value cannot contain (RFC 9110 §5.5); a line break would begin another header."""


def of_attempt(due: Due, form: PushForm, theirs: PushForm, now_ms: int, token: Token | None) -> dict[str, str]:
    """All headers of a call except those that HTTP itself needs. Their names are in lower case.

    `form` is the format of the body. `theirs` is the format of the configuration's dialect, which places the tokens.
    """
    delivery, config = due.delivery, due.config
    timestamp_s = now_ms // 1000
    headers = _lower(theirs.authorization(config))
    headers.update(_lower(form.headers))
    headers["content-type"] = form.content_type
    headers["webhook-id"] = delivery.id
    headers["webhook-timestamp"] = str(timestamp_s)
    headers["x-dragoman-seq"] = delivery.place
    if delivery.traceparent is not None:
        headers["traceparent"] = delivery.traceparent
    if config.secret is not None:
        signing = Signing(delivery_id=delivery.id, task_id=due.task_id, timestamp_s=timestamp_s, body=delivery.body)
        headers.update(_lower(form.signature(config.secret, signing)))
    if token is not None and (jwt := token(config.url, delivery.id, due.task_id, delivery.body)) is not None:
        if "authorization" in headers:
            headers["x-dragoman-jwt"] = jwt
        else:
            headers["authorization"] = f"Bearer {jwt}"
    return headers


def fault(form: PushForm, config: PushConfig) -> str | None:
    """Why the headers that a caller chose cannot be sent; None if they can."""
    for name, value in form.authorization(config):
        if _NAME.fullmatch(name) is None or name.lower() in _OURS:
            return "the header that authentication names cannot be set: use Authorization, or a name like X-API-Key"
        if _UNSENDABLE.search(value):
            return f"the value for the header {name} has a line break or another control character: remove it"
    return None


def _lower(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}
