"""Shared by the webhook calls of several dialects: tokens as headers, and the Standard Webhooks signature.

Invariant: a token or secret is sent in a header of the call to its own webhook, and nowhere else.
"""

import base64
import hashlib
import hmac

from dragoman.dialects.api import Signing
from dragoman.dialects.json_fields import raw_bytes
from dragoman.dialects.push_fields import ENCODED
from dragoman.model.operations import PushConfig

Headers = list[tuple[str, str]]

TOKEN = "X-A2A-Notification-Token"
"""The header in which official receivers expect a configuration's `token` (A2A 1.0 §4.3.3, a2a-sdk, @a2a-js/sdk)."""

_BEARER = "Bearer"


def official(config: PushConfig) -> Headers:
    """Put `authentication` into `Authorization`, `token` into a header of its own, alone also as Bearer (DESIGN §7)."""
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


def _key(secret: str) -> bytes:
    encoded = raw_bytes(secret.removeprefix(ENCODED)) if secret.startswith(ENCODED) else None
    return secret.encode() if encoded is None else encoded
