"""Strategies for requests that are nearly right, and for some that are not even HTTP.

`DONE`, `WAITING` and `WORKING` in what is drawn stand for the ids of tasks in those states.
"""

import json
from typing import Any
from urllib.parse import quote_from_bytes

from hypothesis import strategies as st

from dragoman.dialects import beeos, evoai, kaos, protoagent
from tests.spec.lanes import METHODS, ROUTES

TASKS = ("DONE", "WAITING", "WORKING")

KEY_NAMES = (
    "jsonrpc id method params message messageId role parts kind type text raw url data file bytes uri fileWithBytes "
    "mediaType mimeType filename metadata contextId taskId referenceTaskIds extensions configuration content name "
    "acceptedOutputModes historyLength returnImmediately blocking taskPushNotificationConfig config request skill "
    "pushNotificationConfig pushNotificationConfigId authentication schemes scheme token tenant status pageSize "
    "pageToken statusTimestampAfter includeArtifacts skills artifacts artifactId lease progress current total state "
    "sessionId history limit offset mode webhookUrl webhookAuthenticationInfo skillHint"
)
KEYS = st.sampled_from(KEY_NAMES.split())
IDS = st.sampled_from([*TASKS, "", "t", "c", "a/b", "\0", "é", "x" * 2000]) | st.text(max_size=8)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.sampled_from([0, 1, 2**31, -1, 1e308])
WORDS = st.sampled_from(["2.0", "user", "ROLE_USER", "text", "data", "file", "message", "say", "working", "AAAA"])
METHOD_NAMES = st.sampled_from(
    [name for names in METHODS.values() for name in names]
    + sorted(beeos.METHODS | kaos.METHODS | evoai.METHODS | protoagent.METHODS)
)
LEAVES = st.none() | st.booleans() | NUMBERS | IDS | WORDS | METHOD_NAMES
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)

WHOLE: dict[str, Any] = {
    "tenant": "",
    "id": "DONE",
    "taskId": "DONE",
    "message": {
        "kind": "message",
        "messageId": "m",
        "role": "ROLE_USER",
        "parts": [{"text": "say hi", "kind": "text", "metadata": {}}, {"data": {"a": 1}, "kind": "data"}],
        "contextId": "c",
        "referenceTaskIds": ["DONE"],
        "extensions": ["urn:x"],
        "metadata": {"skill": "do"},
    },
    "configuration": {"acceptedOutputModes": ["text/plain"], "historyLength": 1, "returnImmediately": True},
    "metadata": {"a": 1},
    "pushNotificationConfig": {"url": "https://example.org", "authentication": {"schemes": ["Bearer"]}},
    "pageSize": 3,
    "status": "TASK_STATE_WORKING",
}
"""A request for everything, to break in one or two places."""


@st.composite
def broken(draw: st.DrawFn) -> Any:
    """A request with something replaced, left out or added."""
    whole = json.loads(json.dumps(WHOLE))
    for _ in range(draw(st.integers(0, 3))):
        place: Any = whole
        while True:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            if not isinstance(place[key], dict | list) or not place[key] or draw(st.booleans()):
                break
            place = place[key]
        match draw(st.sampled_from(["replace", "leave out", "add"])):
            case "replace":
                place[key] = draw(VALUES)
            case "leave out" if isinstance(place, dict) and len(place) > 1:
                del place[key]
            case _ if isinstance(place, dict):
                place[draw(KEYS)] = draw(VALUES)
            case _:
                place.append(draw(VALUES))
    return whole


def json_bytes(value: Any) -> bytes:
    """As a client in Python sends it."""
    return json.dumps(value).encode()


def _spoiled(given: tuple[bytes, int, bytes]) -> bytes:
    body, at, bad = given
    return body[:at] + bad + body[at + len(bad) :]


BODIES = (
    st.binary(max_size=60)
    | VALUES.map(json_bytes)
    | broken().map(json_bytes)
    | st.tuples(broken().map(json_bytes), st.integers(0, 400), st.binary(max_size=3)).map(_spoiled)
)
VERSIONS = st.sampled_from(["1.0", "1.0", "0.3", "", "9", "1.0.0"])
HEADER_NAMES = (
    "A2A-Extensions X-A2A-Extensions Idempotency-Key traceparent If-None-Match Origin User-Agent Accept Host "
    "Content-Type Transfer-Encoding Expect Content-Length Connection Upgrade Last-Event-ID"
)
HEADERS = st.dictionaries(
    st.sampled_from(HEADER_NAMES.split(" ")),
    st.binary(max_size=12).map(lambda value: value.translate(None, b"\r\n\0"))
    | st.sampled_from([b"*", b"chunked", b"1"]),
    max_size=3,
)
SEGMENT_WORDS = (
    "agents script v1 tasks message:send message:stream DONE WAITING:subscribe WORKING:cancel .. .well-known "
    "agent-card.json pushNotificationConfigs extendedAgentCard card health x a2a api stream pushNotificationConfig"
)
SEGMENTS = st.sampled_from([b"", *SEGMENT_WORDS.encode().split(b" ")]) | st.binary(max_size=5)


def _query(fields: dict[str, bytes]) -> bytes:
    return b"&".join(key.encode() + b"=" + quote_from_bytes(value).encode() for key, value in fields.items())


QUERIES = st.dictionaries(
    KEYS | st.sampled_from(["A2A-Version", "since", "includeArtifacts", "task_id"]),
    st.binary(max_size=6) | st.sampled_from([b"0", b"1", b"true", b"DONE", b"TASK_STATE_WORKING"]),
    max_size=3,
).map(_query)

CALLS = st.sampled_from(
    [
        (verb, (base + path.format(id=task, taskId=task)).encode())
        for verb, path in [*ROUTES.values(), ("POST", "/tasks/{id}:subscribe"), ("GET", "/card")]
        for base in ("", "/agents/script", "/script", "/v1", "/agents/direct/v1", "/agents/plain")
        for task in (*TASKS, "%00", "%FF", "a%2Fb")
    ]
    + [
        (verb, path.format(id=task).encode())
        for verb, path in (
            ("GET", "/a2a/tasks/{id}"),
            ("GET", "/a2a/tasks/{id}/pushNotificationConfig"),
            ("POST", "/a2a/tasks/{id}/pushNotificationConfig"),
            ("GET", "/script/stream"),
        )
        for task in (*TASKS, "%00", "%FF", "a%2Fb")
    ]
)
"""Every HTTP method and path of HTTP+JSON, and those that only one of the systems has."""


def request(verb: str, path: bytes, body: bytes, headers: dict[str, bytes]) -> bytes:
    """A request as bytes, with the headers that it needs unless they are given."""
    lines = {"Host": b"x", "Content-Type": b"application/json", "Content-Length": b"%d" % len(body), **headers}
    lines["Connection"] = b"close"
    head = b"".join(name.encode() + b": " + value + b"\r\n" for name, value in lines.items())
    return verb.encode() + b" " + path + b" HTTP/1.1\r\n" + head + b"\r\n" + body
