"""Decodes Evo AI's parameters to operations, and its spelling of webhooks.

Parts and ids are as in 0.3, whose decoders do the work. Only this dialect has contexts beside the message, the older
method names of its agent-to-agent client, and webhooks with `url` or `webhookUrl`, tokens under many names, and null to
remove one.

Invariant: decoding is lenient. A token for a header that the receiver chose is stored as in Evo AI, as JSON in
`credentials`.
"""

import re
from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v03.decode import decode_call, message, send
from dragoman.dialects.v03.fields import Fields
from dragoman.dialects.v03.webhooks import INLINE, WRAPPERS, checked, without
from dragoman.dialects.vendors import fill_message
from dragoman.model.errors import InvalidParams
from dragoman.model.operations import (
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
    Subscribe,
)

# -- webhooks ----------------------------------------------------------------------------------------------------------

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


class _KeyHeader(Struct):
    """Credentials that name their own header."""

    name: str
    value: str


_KEY_HEADER = msgspec.json.Decoder(_KeyHeader)


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


def inline_webhook(*where: Fields | None) -> PushConfig | None:
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
        named = _KEY_HEADER.decode(credentials)
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


# -- calls -------------------------------------------------------------------------------------------------------------


def decode(method: str, params: bytes | memoryview) -> Operation:
    """Decode a call.

    Raises MethodNotFound if Evo AI has no such method, InvalidParams if a parameter is missing or wrong.
    """
    return decode_call(method, params, _METHODS, SENDS, fills=True)


def _send(fields: Fields, kind: type[SendMessage]) -> SendMessage:
    """Decode a send. A message needs no id; its context may be in `params`, a webhook there or in `configuration`."""
    members = without(fields, *INLINE).members
    said, configuration = fields.object("message"), fields.object("configuration")
    if said is not None:
        members["message"] = fill_message(said)
    if not fields.has("contextId", "context_id"):
        members["contextId"] = fields.text("sessionId", "session_id")
    if configuration is not None:
        members["configuration"] = without(configuration, *INLINE).members
    sent = send(Fields(members, fields.path), kind)
    earlier = tuple([message(Fields(fill_message(each), each.path)) for each in fields.objects("history")])
    return replace(sent, earlier=earlier, push_config=inline_webhook(fields, configuration))


def _subscribe(fields: Fields) -> Operation:
    """Decode `tasks/subscribe`. With a message it makes a task and follows it, else it follows the named task."""
    return _send(fields, StreamMessage) if fields.has("message") else Subscribe(id=_task_id(fields))


def _task_id(fields: Fields) -> str:
    return fields.required_text("taskId", "task_id", "id")


SENDS: dict[str, type[SendMessage]] = {
    "message/send": SendMessage,
    "message/stream": StreamMessage,
    "tasks/send": SendMessage,
    "tasks/sendSubscribe": StreamMessage,
    "tasks/subscribe": StreamMessage,
}

_METHODS: dict[str, Callable[[Fields], Operation]] = {
    "message/send": lambda fields: _send(fields, SendMessage),
    "message/stream": lambda fields: _send(fields, StreamMessage),
    "tasks/get": METHODS_03["tasks/get"],
    "tasks/cancel": METHODS_03["tasks/cancel"],
    "tasks/resubscribe": METHODS_03["tasks/resubscribe"],
    "tasks/pushNotificationConfig/set": set_config,
    "tasks/pushNotificationConfig/get": METHODS_03["tasks/pushNotificationConfig/get"],
    "agent/authenticatedExtendedCard": lambda fields: GetExtendedCard(),
    "agent/getAuthenticatedExtendedCard": lambda fields: GetExtendedCard(),
    "tasks/send": lambda fields: _send(fields, SendMessage),
    "tasks/sendSubscribe": lambda fields: _send(fields, StreamMessage),
    "tasks/subscribe": _subscribe,
    "tasks/pushNotification/set": set_config,
    "tasks/pushNotification/get": METHODS_03["tasks/pushNotificationConfig/get"],
}

METHODS = frozenset(_METHODS)
"""Evo AI's methods, the official name of its card method, and the A2A 0.1 names of its agent-to-agent client."""
