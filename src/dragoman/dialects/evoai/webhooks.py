"""Decodes Evo AI's spelling of webhooks: `url` or `webhookUrl`, tokens under many names, null to remove one.

Invariant: a token for a header that the receiver chose is stored as in Evo AI, as JSON in `credentials`.
"""

import re

import msgspec
from msgspec import Struct

from dragoman.dialects.v03.fields import Fields
from dragoman.dialects.v03.webhooks import INLINE, WRAPPERS, checked, without
from dragoman.model.errors import InvalidParams
from dragoman.model.operations import CreatePushConfig, DeletePushConfig, PushConfig

API_KEY = "ApiKey"
"""The scheme whose credentials go into their own header."""

API_KEY_HEADER = "X-API-Key"

_URL = ("url", "webhookUrl")

_NO_SCHEME = "none"
"""The `type` of `webhookAuthenticationInfo` that its browser client sends for a webhook without authentication."""

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_NOT_THEIRS = re.compile(
    r"(webhook|proxy|x-dragoman|sec)-.*|host|content-.*|transfer-encoding|connection|te|trailer|upgrade|expect"
    r"|keep-alive|traceparent|tracestate|user-agent",
    re.IGNORECASE,
)
"""Headers that HTTP or the call itself sets."""


class ApiKey(Struct):
    """Credentials that name their own header."""

    name: str
    value: str


_API_KEY = msgspec.json.Decoder(ApiKey)


def set_config(fields: Fields) -> CreatePushConfig | DeletePushConfig:
    """Decode `set`. A configuration that is null removes the webhook, which is how the browser client clears it."""
    task_id = fields.required_text("taskId", "task_id", "id")
    webhook = fields.object(*WRAPPERS, "config")
    if webhook is None and fields.has(*_URL):  # the configuration is bare, beside the task's id
        webhook = fields if fields.has("taskId", "task_id") else without(fields, "id")
    if webhook is not None:
        return CreatePushConfig(config=push_config(webhook, task_id))
    if any(name in fields.members for name in (*WRAPPERS, "config")):
        return DeletePushConfig(task_id=task_id)
    raise InvalidParams(fields.at(WRAPPERS[0]), "is required")


def inline(*where: Fields | None) -> PushConfig | None:
    """Return the webhook that comes with a message, bare or wrapped; None if it has no address."""
    for fields in where:
        given = None if fields is None else fields.object(*INLINE)
        if given is not None and not given.has(*_URL):
            given = given.object(*WRAPPERS, "config")
        if given is not None and given.text(*_URL):
            return push_config(given, "")
    return None


def push_config(fields: Fields, task_id: str) -> PushConfig:
    """Decode a webhook under any of its names: `schemes`, one `type`, or an `Authorization` among its `headers`."""
    inside = "webhookAuthenticationInfo" if not fields.has("authentication") else "authentication"
    given = fields.object(inside)
    scheme, credentials = _of_headers(fields) if given is None else _authentication(given)
    config = PushConfig(
        url=fields.required_text(*_URL),
        id=fields.text("id", "configId") or "",
        task_id=task_id,
        token=fields.text("token") or None,
        scheme=scheme,
        credentials=credentials,
        secret=fields.text("secret") or None,
    )
    return checked(config, fields, inside, secret_min=1)


def api_key(credentials: str) -> tuple[str, str]:
    """Return the header of a key, and the key. The credentials name the header; otherwise it is `X-API-Key`."""
    try:
        named = _API_KEY.decode(credentials)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return API_KEY_HEADER, credentials
    return named.name, named.value


def _authentication(fields: Fields) -> tuple[str | None, str | None]:
    schemes = fields.texts("schemes")
    scheme = (schemes[0] if schemes else fields.text("scheme", "type")) or None
    credentials = fields.text("credentials", "token", "apiKey", "key") or None
    if scheme is None or scheme.lower() == _NO_SCHEME:
        return None, credentials
    if scheme.lower().replace("-", "").replace("_", "") != API_KEY.lower():
        return scheme, credentials
    if credentials is None:
        return API_KEY, None
    name, key = api_key(credentials)
    return _key(fields.text("headerName") or name, key, fields.at("headerName"))


def _of_headers(fields: Fields) -> tuple[str | None, str | None]:
    """Return the authentication among a webhook's documented headers; the other headers are not sent."""
    headers = fields.object("headers")
    if headers is None:
        return None, None
    named = {name.lower(): name for name in headers.members}
    if (name := named.get("authorization")) is not None:
        scheme, _, credentials = headers.required_text(name).partition(" ")
        if not credentials.strip():
            raise InvalidParams(headers.at(name), "must be a scheme and credentials, such as Bearer …")
        return scheme, credentials.strip()
    if (name := named.get(API_KEY_HEADER.lower())) is not None:
        return API_KEY, headers.required_text(name)
    return None, None


def _key(name: str, key: str, field: str) -> tuple[str, str]:
    if not _NAME.fullmatch(name) or _NOT_THEIRS.fullmatch(name):
        raise InvalidParams(
            field, f"must be the name of a header that the call itself does not need, as {API_KEY_HEADER}"
        )
    if name.lower() == API_KEY_HEADER.lower():
        return API_KEY, key
    return API_KEY, msgspec.json.encode({"in": "header", "name": name, "value": key}).decode()
