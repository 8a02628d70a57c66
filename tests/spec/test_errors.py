"""Errors: the table, and bodies that are no requests (A2A 1.0 §5.4, §9.5, §11.6; JSON-RPC 2.0 §4, §5)."""

import asyncio
import contextlib
import io
import json
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from dragoman.model import errors
from dragoman.model.errors import A2AError
from tests.bindings.conftest import site
from tests.spec.caller import DEADLINE_S, Caller, Told, params
from tests.spec.conftest import CONFIG, House
from tests.spec.failures import INNARDS, failure
from tests.spec.lanes import REST_03, RPC_03, RPC_1, Lane, encoded, over_grpc_1
from tests.spec.schema import decoded

RAISED: dict[str, Callable[[], A2AError]] = {
    "TaskNotFound": lambda: errors.TaskNotFound("t"),
    "TaskNotCancelable": lambda: errors.TaskNotCancelable("t", "TASK_STATE_COMPLETED"),
    "PushNotificationNotSupported": errors.PushNotificationNotSupported,
    "UnsupportedOperation": lambda: errors.UnsupportedOperation("not so"),
    "ContentTypeNotSupported": lambda: errors.ContentTypeNotSupported("not such"),
    "InvalidAgentResponse": lambda: errors.InvalidAgentResponse("not that"),
    "ExtendedAgentCardNotConfigured": lambda: errors.ExtendedAgentCardNotConfigured("not there"),
    "ExtensionSupportRequired": lambda: errors.ExtensionSupportRequired("urn:x"),
    "VersionNotSupported": lambda: errors.VersionNotSupported("9"),
    "InvalidParams": lambda: errors.InvalidParams("a.b", "must not"),
    "InternalError": lambda: errors.InternalError("reference-1"),
}

RAW = {"Content-Type": "application/json"}


async def posted(served: House, lane: Lane, body: Any, **headers: str) -> Told:
    """The answer to a send whose body is these bytes."""
    path = "/agents/script" if lane.rpc else f"{lane.path('script')}/message:send"
    version = {"A2A-Version": "1.0"} if lane.version == "1.0" else {}
    data = io.BytesIO(body) if isinstance(body, bytes) else body
    async with served.http.post(served.url + path, data=data, headers={**RAW, **version, **headers}) as answer:
        told = decoded(await answer.read())
        if lane.rpc:
            assert told.keys() == {"jsonrpc", "id", "error"}, told
            assert told["jsonrpc"] == "2.0"
        failed = failure(lane, answer.status, told["error"] if lane.rpc else told)
        return Told(lane, answer.status, answer.headers, told, failed)


async def test_each_error_is_told_as_the_table_says(lane: Lane) -> None:
    """§5.4: code, HTTP status, and `google.rpc.ErrorInfo`; in JSON-RPC in `data`, over HTTP in a google.rpc.Status."""
    name = ""

    def refuse(_: Any) -> Any:
        raise RAISED[name]()

    async with site() as served, aiohttp.ClientSession() as http:
        served.handler.answer = refuse
        served.handler.streams = refuse
        caller = Caller(http, served.url, lane, "echo")
        for name in RAISED:
            assert (await caller.send()).refused(name).message
            async with caller.stream() as stream:
                stream.told.refused(name)


async def test_an_exception_is_an_internal_error_with_a_reference_and_none_of_its_text(
    lane: Lane, caplog: pytest.LogCaptureFixture
) -> None:
    """§3.3.2: the reference leads to the log; HTTP 500 is only for what nobody foresaw."""

    def fail(_: Any) -> Any:
        raise KeyError("secret-exception-text")

    async with site() as served, aiohttp.ClientSession() as http:
        served.handler.answer = fail
        failed = (await Caller(http, served.url, lane, "echo").send()).refused("InternalError")
    assert "secret-exception-text" not in failed.message
    reference = failed.message.split("reference ")[1].rstrip(")")
    assert reference in caplog.text
    assert "secret-exception-text" in caplog.text


BRACKETS = 10 * 1024 * 1024

NOT_JSON = {
    "nothing": b"",
    "text": b"hello",
    "cut off": b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":',
    "two": b'{"jsonrpc":"2.0","id":1,"method":"x"}{}',
    "latin-1": b'{"jsonrpc":"2.0","id":1,"method":"m\xfcll","message":"m\xfcll"}',
    "half a surrogate in UTF-8": b'{"jsonrpc":"2.0","id":1,"message":"\xed\xa0\x80"}',
    "UTF-16": '{"jsonrpc":"2.0"}'.encode("utf-16"),
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":NaN,"message":NaN}',
    "Infinity": b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"a":-Infinity},"message":-Infinity}',
    "comment": b'{"jsonrpc":"2.0","id":1 /* one */}',
    "single quotes": b"{'jsonrpc':'2.0'}",
    "control character": b'{"jsonrpc":"2.0","id":1,"method":"a\x00b","message":"a\nb"}',
    "leading zero": b'{"jsonrpc":"2.0","id":01}',
    "closing brackets": b"]" * 1000,
    "half a surrogate as an escape": b'{"jsonrpc":"2.0","id":1,"method":"\\ud800","message":"\\udfff"}',
    "a byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"GetTask","message":{}}',
}


@pytest.mark.parametrize("body", NOT_JSON)
async def test_what_is_not_json_is_a_parse_error(served: House, lane: Lane, body: str) -> None:
    """JSON-RPC 2.0 §5.1, §11.6: -32700 with a null id; 400."""
    told = await posted(served, lane, NOT_JSON[body])
    # 0.3's protobuf JSON leaves out what is empty: no body is an empty one, and what it lacks is named.
    told.refused("InvalidParams" if lane is REST_03 and body == "nothing" else "ParseError")
    if lane.rpc:
        assert told.result["id"] is None


NO_REQUESTS: dict[str, tuple[bytes, Any]] = {
    "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]', None),
    "an empty batch": (b"[]", None),
    "a string": (b'"GetTask"', None),
    "null": (b"null", None),
    "no id": (b'{"jsonrpc":"2.0","method":"GetTask","params":{"id":"x"}}', None),
    "an id that is an object": (b'{"jsonrpc":"2.0","id":{},"method":"GetTask"}', None),
    "an id that is true": (b'{"jsonrpc":"2.0","id":true,"method":"GetTask"}', None),
    "no version": (b'{"id":5,"method":"GetTask"}', 5),
    "another version": (b'{"jsonrpc":"1.0","id":5,"method":"GetTask"}', 5),
    "a version that is a number": (b'{"jsonrpc":2.0,"id":5,"method":"GetTask"}', 5),
    "no method": (b'{"jsonrpc":"2.0","id":"five"}', "five"),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":5,"method":5}', 5),
}


@pytest.mark.parametrize("body", NO_REQUESTS)
@pytest.mark.parametrize("lane", [RPC_1, RPC_03], ids=lambda lane: lane.name)
async def test_json_that_is_no_request_is_an_invalid_request(served: House, lane: Lane, body: str) -> None:
    """JSON-RPC 2.0 §5.1: -32600; A2A has no batches and no notifications. The id comes back if it could be read."""
    raw, request_id = NO_REQUESTS[body]
    told = await posted(served, lane, raw)
    told.refused("InvalidRequest")
    assert told.result["id"] == request_id


@pytest.mark.parametrize(
    "raw", [b"1", b'"a"', b"null", b"-7", b"1.50", b"123456789012345678901234567890", b'"\\u00e9/"']
)
async def test_an_id_comes_back_as_it_was_sent(served: House, raw: bytes) -> None:
    """JSON-RPC 2.0 §5: the same value; byte for byte, so that no client's comparison fails; also on every frame."""
    for method in (b"SendMessage", b"SendStreamingMessage"):
        body = b'{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}' % (raw, method, encoded(params("say hi")))
        headers = {**RAW, "A2A-Version": "1.0"}
        async with served.http.post(f"{served.url}/agents/script", data=body, headers=headers) as answer:
            text = await answer.read()
        answers = [line for line in text.split(b"\n") if b'"jsonrpc"' in line]
        assert answers
        assert all(b'"id":' + raw + b"," in line for line in answers)


@pytest.mark.parametrize("given", [b"[]", b'"x"', b"5", b"true"])
async def test_params_that_are_no_object_are_invalid_params(served: House, given: bytes) -> None:
    """JSON-RPC 2.0 §4.2: A2A has only params by name."""
    told = await posted(served, RPC_1, b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":%s}' % given)
    told.refused("InvalidParams")


@pytest.mark.parametrize("given", [b"", b',"params":null', b',"params":{}'])
async def test_params_that_are_missing_are_empty(served: House, given: bytes) -> None:
    """JSON-RPC 2.0 §4: `params` may be left out; what it lacks is named."""
    told = await posted(served, RPC_1, b'{"jsonrpc":"2.0","id":1,"method":"GetTask"%s}' % given)
    assert told.refused("InvalidParams").violations.keys() == {"id"}


@pytest.mark.parametrize("body", [b"[" * BRACKETS, b'{"a":' * (BRACKETS // 5), b"[{}," * (BRACKETS // 4)])
async def test_megabytes_of_brackets_are_refused_at_once(served: House, lane: Lane, body: bytes) -> None:
    """Nothing is built from them."""
    begun = time.monotonic()
    told = await posted(served, lane, body)
    assert time.monotonic() - begun < DEADLINE_S / 2
    told.refused("InvalidRequest")


async def test_json_that_is_too_deep_is_an_invalid_request(served: House, lane: Lane) -> None:
    """One level more than allowed is refused; what is allowed goes through and back."""
    caller = served.caller(lane)
    deep: Any = {}
    for _ in range(CONFIG.max_depth):
        deep = {"d": deep}
    body = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": {"a": deep}, "message": {"a": deep}}
    (await posted(served, lane, encoded(body))).refused("InvalidRequest")
    for _ in range(10):
        deep = deep["d"]
    assert (await caller.send(parts=[{"data": deep}])).task.state == "completed"


async def test_of_keys_that_come_twice_the_last_counts(served: House, lane: Lane) -> None:
    """ProtoJSON: as the official parsers have it, on every level."""
    twice = json.dumps(params("say second")["message"] | {"kind": "message", "role": "user"})
    if lane.version == "1.0":
        twice = twice.replace('"user"', '"ROLE_USER"')
    given = '{"message":{"messageId":"lost","role":"nobody"},"message":' + twice + "}"
    body = given
    if lane.rpc:
        method = "SendMessage" if lane.version == "1.0" else "message/send"
        body = (
            '{"jsonrpc":"2.0","id":7,"method":"lost","id":8,"params":{},"params":' + given + f',"method":"{method}"}}'
        )
    path = "/agents/script" if lane.rpc else f"{lane.path('script')}/message:send"
    headers = {**RAW, **({"A2A-Version": "1.0"} if lane.version == "1.0" else {})}
    async with served.http.post(served.url + path, data=body.encode(), headers=headers) as answer:
        told = await answer.json(content_type=None)
    assert "say second" in json.dumps(told)
    assert told.get("id", 8) == 8


NOT_JSON_TYPES = [
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain",
    "text/plain;application/json",
    "application/json; charset=utf-16",
    "application/jsonx",
    "",
    "a/b",
]


@pytest.mark.parametrize("content_type", NOT_JSON_TYPES)
async def test_a_content_type_that_is_not_json_is_refused(served: House, lane: Lane, content_type: str) -> None:
    """§9.1, §11.1: 415 with the error in the body, so that no form on a web page can post."""
    told = await posted(served, lane, encoded(params()), **{"Content-Type": content_type})
    told.refused("UnsupportedMediaType")


@pytest.mark.parametrize(
    "content_type", ["application/a2a+json", "Application/JSON; charset=UTF-8", "application/vnd.x+json"]
)
async def test_every_kind_of_json_is_taken(caller: Caller, content_type: str) -> None:
    """§11.1: `application/a2a+json`, and what means the same."""
    assert (await caller.send(headers={"Content-Type": content_type})).task.state == "completed"


async def test_a_body_that_is_too_large_is_refused(served: House, lane: Lane) -> None:
    """413, said in advance or found out while it comes; the caller can read the answer."""
    body = b'{"padding":"' + b"x" * CONFIG.max_body_bytes + b'"}'
    (await posted(served, lane, body)).refused("PayloadTooLarge")

    async def pieces() -> Any:
        for start in range(0, len(body), 1 << 20):
            yield body[start : start + (1 << 20)]

    with contextlib.suppress(aiohttp.ClientOSError):  # the connection is closed: more than the answer need not be read
        (await posted(served, lane, pieces())).refused("PayloadTooLarge")
    assert (await served.caller(lane).send()).task.state == "completed"


IDS = [
    "a/b",
    "a%2Fb",
    "..",
    "a\0b",
    "\0",
    "?#&=",
    "é\u2028",
    "%00",
    " ",
    "'; DROP TABLE tasks; --",
    "x" * 3000,
    "a:b",
]


@pytest.mark.parametrize("task_id", IDS)
@over_grpc_1
async def test_an_id_of_any_characters_is_just_not_found(caller: Caller, task_id: str) -> None:
    """§3.1.3: an id is opaque; slashes, null bytes and percent signs in a path are only characters of it."""
    for told in (await caller.get(task_id), await caller.cancel(task_id), await caller.send(taskId=task_id)):
        assert told.refused("TaskNotFound").metadata["taskId"] == task_id[:200]
    async with caller.subscribe(task_id) as stream:
        stream.told.refused("TaskNotFound")


async def raw(served: House, request: bytes) -> bytes:
    """Bytes in, and what comes back until the server closes or is silent after an answer's head."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(request)
            return await reader.readuntil(b"\r\n\r\n")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@pytest.mark.parametrize("path", ["/", "/agents/script", "/tasks", "/nothing"])
async def test_a_websocket_upgrade_is_answered_as_what_it_asks_for(served: House, path: str) -> None:
    """RFC 9110 §7.8: a server ignores an upgrade that it does not speak; never a 500."""
    request = (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    status = int((await raw(served, request.encode())).split(b" ")[1])
    assert 400 <= status < 500 or (path == "/tasks" and status == 200), status


@pytest.mark.parametrize(
    "path", ["/nothing/here", "/tasks/a/b/c", "/agents/script/x", "/.well-known/other", "/script/x", "//"]
)
async def test_an_unknown_path_is_not_found(served: House, path: str) -> None:
    """§11.6: 404 as a google.rpc.Status, with the way out in words."""
    async with served.http.get(served.url + path, headers={"A2A-Version": "1.0"}) as answer:
        body = decoded(await answer.read())
        assert (answer.status, body["error"]["status"]) == (404, "NOT_FOUND")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("verb", "path"),
    [("GET", "/"), ("PUT", "/agents/script"), ("GET", "/message:send"), ("DELETE", "/tasks"), ("POST", "/health"),
     ("PATCH", "/tasks/x"), ("GET", "/tasks/x:cancel"), ("POST", "/.well-known/agent-card.json")],
)  # fmt: skip
async def test_a_method_that_a_path_does_not_have_is_405_and_says_which_it_has(
    served: House, verb: str, path: str
) -> None:
    """RFC 9110 §15.5.6: with `Allow`."""
    async with served.http.request(verb, served.url + path, headers={"A2A-Version": "1.0"}) as answer:
        body = await answer.text()
        assert answer.status == 405
        assert answer.headers["Allow"]
        assert not INNARDS.search(body)
