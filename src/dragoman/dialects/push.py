"""Webhooks in several dialects: the check of a configuration, and the headers of its calls.

Invariant: a configuration that passes can be sent, so a caller can neither inject a header nor break a later call. A
token or secret is sent in a header of the call to its own webhook, and nowhere else.
"""

import base64
import hashlib
import hmac
import re
import unicodedata
from collections.abc import Mapping

from dragoman.dialects.api import Signing
from dragoman.dialects.json_fields import Violations, raw_bytes
from dragoman.model.operations import PushConfig
from dragoman.model.task import STATES

MAX_TOKEN = 8192
"""Longest token: servers accept no longer header, and each call repeats it."""

MAX_ID = 1024
"""Longest id that a caller may choose, as for all ids."""

SECRET_MIN = 16
SECRET_MAX = 256
"""Bounds of a secret's length in characters (BeeOS)."""

ENCODED = "whsec_"
"""Prefix of a secret that is given in base64 (Standard Webhooks 1.0, secrets)."""

SIGNATURE_AGE_S = 300
"""How old or early a signature may be (Standard Webhooks 1.0, verifying: the tolerance of its libraries)."""

_TIMESTAMP = re.compile(r"[0-9]{1,12}")
"""Seconds since 1970: more digits are no time, and thousands no number that Python reads."""

ARTIFACT = "artifact"

EVENTS = (*(state.removeprefix("TASK_STATE_").lower().replace("_", "-") for state in STATES), ARTIFACT)
"""Events that a webhook may choose: states, and complete artifacts."""

_EVENTS = frozenset(EVENTS)

_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
"""An auth-scheme (RFC 9110 §11.1)."""


def check(
    config: PushConfig,
    path: str,
    violations: Violations,
    *,
    authentication: str = "authentication",
    secret_min: int = SECRET_MIN,
) -> None:
    """Add the faults of a configuration, except those of its URL; `path` is empty or ends in a dot."""
    inside = f"{path}{authentication}."
    for field, text in ((f"{path}token", config.token), (f"{inside}credentials", config.credentials)):
        if text is not None and (fault := header_fault(text)):
            violations.append((field, fault))
    if config.scheme is not None and not _SCHEME.fullmatch(config.scheme):
        violations.append((f"{inside}scheme", "must be the name of a scheme, such as Bearer"))
    if config.secret is not None and (fault := _secret_fault(config.secret, secret_min)):
        violations.append((f"{path}secret", fault))
    if len(config.id) > MAX_ID or "\0" in config.id:
        violations.append((f"{path}id", f"must have at most {MAX_ID} characters and no null character"))


def header_fault(text: str) -> str | None:
    """Return why `text` cannot be the value of a header; None if it can (RFC 9110 §5.5)."""
    if len(text) > MAX_TOKEN:
        return f"must have at most {MAX_TOKEN} characters"
    if not all(ord(each) < 256 and unicodedata.category(each) != "Cc" for each in text):
        return "must be Latin-1 without control characters: it is sent in a header"
    return None


def events(named: tuple[str, ...], field: str, violations: Violations) -> tuple[str, ...]:
    """Return the events under our names; `task.completed`, `input_required` and `TASK_STATE_FAILED` are accepted."""
    known = tuple(dict.fromkeys(_event(each) for each in named))
    if not _EVENTS.issuperset(known):
        violations.append((field, f"must be some of {', '.join(EVENTS)}"))
        return ()
    return known


def _event(named: str) -> str:
    if named in _EVENTS:
        return named
    name = named.strip().lower().removeprefix("task_state_").removeprefix("task.").replace("_", "-")
    return "canceled" if name == "cancelled" else name


def _secret_fault(secret: str, least: int) -> str | None:
    if not least <= len(secret) <= SECRET_MAX:
        return f"must have {least} to {SECRET_MAX} characters"
    if secret.startswith(ENCODED) and not raw_bytes(secret.removeprefix(ENCODED)):
        return f"must be base64 after {ENCODED}"
    return None


# -- calls -----------------------------------------------------------------------------------------------------------

Headers = list[tuple[str, str]]

TOKEN = "X-A2A-Notification-Token"
"""The header in which official receivers expect a configuration's `token` (A2A 1.0 §4.3.3, a2a-sdk, @a2a-js/sdk)."""

_BEARER = "Bearer"


def official(config: PushConfig) -> Headers:
    """Put `authentication` into `Authorization`, `token` into a header of its own, alone also as Bearer."""
    headers: Headers = []
    bearer = config.scheme is None or config.scheme.lower() == _BEARER.lower()
    if config.credentials is not None:
        headers.append(("Authorization", f"{_BEARER if bearer else config.scheme} {config.credentials}"))
    elif config.token is not None and bearer:
        headers.append(("Authorization", f"{_BEARER} {config.token}"))
    if config.token is not None:
        headers.append((TOKEN, config.token))
    return headers


def top_level_wins(config: PushConfig) -> Headers:
    """Put the `token` into both headers; without one, the credentials as Bearer (protoAgent, BeeOS)."""
    if config.token is not None:
        return [("Authorization", f"{_BEARER} {config.token}"), (TOKEN, config.token)]
    return [] if config.credentials is None else [("Authorization", f"{_BEARER} {config.credentials}")]


def standard_signature(secret: str, signing: Signing) -> Headers:
    """Return `webhook-timestamp` and `webhook-signature`, over `id.timestamp.body` (Standard Webhooks 1.0)."""
    signed = f"{signing.delivery_id}.{signing.timestamp_s}.".encode() + signing.body
    digest = hmac.digest(_key(secret), signed, hashlib.sha256)
    return [
        ("webhook-timestamp", str(signing.timestamp_s)),
        ("webhook-signature", f"v1,{base64.b64encode(digest).decode()}"),
    ]


def has_standard_signature(secret: str, headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Whether a call has a signature of Standard Webhooks with this secret that is at most SIGNATURE_AGE_S old.

    `headers` are found by lower-case names.
    """
    delivery_id, timestamp = (headers.get(name) or "" for name in ("webhook-id", "webhook-timestamp"))
    if not _TIMESTAMP.fullmatch(timestamp) or abs(now_s - int(timestamp)) > SIGNATURE_AGE_S:
        return False
    signing = Signing(delivery_id=delivery_id, task_id="", timestamp_s=int(timestamp), body=body)
    expected = standard_signature(secret, signing)[1][1].encode()
    given = (headers.get("webhook-signature") or "").encode().split()
    return any(hmac.compare_digest(expected, one) for one in given)


def _key(secret: str) -> bytes:
    encoded = raw_bytes(secret.removeprefix(ENCODED)) if secret.startswith(ENCODED) else None
    return secret.encode() if encoded is None else encoded
