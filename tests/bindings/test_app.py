"""The door: whatever comes in, one proper answer goes out."""

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.bindings.app import App
from dragoman.model.operations import Call, Result, StreamMessage
from tests.bindings.conftest import (
    EXTENSION,
    REQUIRED,
    V1,
    ScriptedHandler,
    ScriptedStore,
    ScriptedStream,
    Site,
    make_app,
    message,
    site,
)


async def test_a_failure_that_nobody_foresaw_tells_only_its_reference(
    served: Site, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(call: Call) -> Result:
        raise ZeroDivisionError("the secret")

    served.handler.answer = fail
    answer = await served.rpc("GetTask", {"id": "t1"})
    assert answer["id"] == 1
    assert answer["error"]["code"] == -32603
    assert "secret" not in str(answer)
    reference = answer["error"]["message"].rpartition("reference ")[2].rstrip(")")
    record = next(each for each in caplog.records if each.levelno == logging.ERROR)
    assert reference in record.getMessage()
    assert record.exc_info is not None

    async with served.http.get("/tasks/t1", headers=V1) as rest:
        assert rest.status == 500
        assert (await rest.json())["error"]["status"] == "INTERNAL"


@pytest.mark.parametrize("path", ["/nope", "/tasks/a/b", "/message:send/x", "/%00", "/agents/echo/nope", "/%ff%fe/x"])
async def test_an_unknown_path_is_404_in_json(served: Site, path: str) -> None:
    answer = await served.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")
    assert b"application/a2a+json" in head
    assert b'"NOT_FOUND"' in body


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/", {"POST", "OPTIONS"}),
        ("GET", "/agents/echo", {"POST", "OPTIONS"}),
        ("DELETE", "/tasks/t1", {"GET", "HEAD", "OPTIONS"}),
        ("POST", "/health", {"GET", "HEAD", "OPTIONS"}),
        ("HEAD", "/tasks/t1:subscribe", {"GET", "POST", "OPTIONS"}),
        ("PUT", "/.well-known/agent-card.json", {"GET", "HEAD", "OPTIONS"}),
        ("FROB", "/message:send", None),
    ],
)
async def test_a_wrong_method_is_405_with_allow(served: Site, method: str, path: str, allow: set[str] | None) -> None:
    answer = await served.raw(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    if allow is None:
        assert answer.startswith(b"HTTP/1.1 400 ")  # no method that HTTP knows: refused by the parser
        return
    assert answer.startswith(b"HTTP/1.1 405 ")
    line = next(line for line in answer.split(b"\r\n") if line.startswith(b"allow:"))
    assert {each.strip().decode() for each in line.removeprefix(b"allow:").split(b",")} == allow


async def test_options_says_what_is_allowed(served: Site) -> None:
    async with served.http.options("/tasks/t1") as answer:
        assert (answer.status, answer.headers["Allow"]) == (204, "GET, HEAD, OPTIONS")


async def test_head_answers_like_get_without_a_body(served: Site) -> None:
    for path in ("/health", "/ready", "/agents", "/.well-known/agent-card.json", "/tasks/t1"):
        async with served.http.get(path, headers=V1) as got, served.http.head(path, headers=V1) as head:
            assert (head.status, head.headers["Content-Length"]) == (got.status, got.headers["Content-Length"])
            assert await head.read() == b""


async def test_an_agent_that_other_replicas_serve_is_503_with_a_hint_to_come_back() -> None:
    async with site(elsewhere=("far",)) as served:
        for agent, status in (("far", 503), ("none", 404)):
            async with served.http.get(f"/agents/{agent}/tasks/t1", headers=V1) as rest:
                assert (rest.status, "Retry-After" in rest.headers) == (status, status == 503)
            body = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": {"message": message("x")}}
            async with served.http.post(f"/agents/{agent}", json=body, headers=V1) as rpc:
                assert (await rpc.json())["id"] == 7
                assert ("Retry-After" in rpc.headers) == (status == 503)


async def test_an_unknown_agent_is_404_in_the_shape_of_its_binding(served: Site) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
    async with served.http.post("/agents/nobody", json=body, headers=V1) as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["data"][0]["reason"] == "AGENT_NOT_FOUND"
    async with served.http.get("/nobody/tasks/x", headers=V1) as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["details"][0]["reason"] == "AGENT_NOT_FOUND"
    async with served.http.get("/agents/nobody/.well-known/agent-card.json") as answer:
        assert answer.status == 404
    assert served.handler.calls == []


async def test_a_websocket_upgrade_is_answered_like_the_request_without_it(served: Site) -> None:
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    answer = await served.raw(upgrade, until_closed=False)
    assert answer.startswith(b"HTTP/1.1 405 ")


async def test_a_websocket_scope_is_closed_before_it_is_accepted(served: Site) -> None:
    sent: list[dict[str, Any]] = []
    app = object.__new__(App)  # the scope is refused before anything of the application is looked at

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    await app({"type": "websocket", "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close"}]


async def test_lifespan_starts_and_stops() -> None:
    events = iter(["lifespan.startup", "lifespan.shutdown"])
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": next(events)}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event["type"])

    await object.__new__(App)({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_tenant_names_the_agent_at_the_root(served: Site) -> None:
    await served.rpc("GetTask", {"id": "t1", "tenant": "other"})
    await served.rpc("GetTask", {"id": "t1"})
    async with served.http.get("/other/tasks/t1", headers=V1) as answer:
        assert answer.status == 200
    assert [(call.agent, call.mount) for call in served.handler.calls] == [
        ("other", "/"),
        ("echo", "/"),
        ("other", "/other"),
    ]


async def test_a_tenant_that_contradicts_the_mount_is_refused(served: Site) -> None:
    assert "result" in await served.rpc("GetTask", {"id": "t1", "tenant": "echo"}, "/agents/echo")
    wrong = await served.rpc("GetTask", {"id": "t1", "tenant": "other"}, "/agents/echo")
    assert wrong["error"]["code"] == -32602
    unknown = await served.rpc("GetTask", {"id": "t1", "tenant": "nobody"})
    assert unknown["error"]["data"][0]["reason"] == "AGENT_NOT_FOUND"
    assert len(served.handler.calls) == 1


async def test_extensions_that_the_agent_knows_are_echoed_under_the_name_of_the_version(served: Site) -> None:
    """A2A 1.0 §3.2.6."""
    asked = f"urn:unknown, {EXTENSION}"
    for name in ("A2A-Extensions", "X-A2A-Extensions"):
        async with served.http.get("/tasks/t1", headers={**V1, name: asked}) as answer:
            assert answer.headers["A2A-Extensions"] == EXTENSION
            assert "X-A2A-Extensions" not in answer.headers
    assert served.handler.calls[0].extensions == ("urn:unknown", EXTENSION)
    async with served.http.get("/tasks/t1", headers={**V1, "A2A-Extensions": "urn:unknown"}) as answer:
        assert "A2A-Extensions" not in answer.headers


async def test_extensions_may_come_in_several_headers(served: Site) -> None:
    head = b"GET /tasks/t1 HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\nConnection: close\r\n"
    answer = await served.raw(head + b"A2A-Extensions: urn:a\r\na2a-extensions: urn:b,urn:a,, \r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert served.handler.calls[0].extensions == ("urn:a", "urn:b")


async def test_a_required_extension_that_the_caller_does_not_declare_is_refused(served: Site) -> None:
    """A2A 1.0 §3.3.4."""
    refused = await served.rpc("SendMessage", {"message": message()}, "/agents/strict")
    assert refused["error"]["code"] == -32008
    refused = await served.rpc("SendStreamingMessage", {"message": message()}, "/agents/strict")
    assert refused["error"]["code"] == -32008
    assert served.handler.calls == []
    taken = await served.rpc("SendMessage", {"message": message()}, "/agents/strict", **{"A2A-Extensions": REQUIRED})
    assert "result" in taken
    assert "result" in await served.rpc("GetTask", {"id": "t1"}, "/agents/strict")


async def test_headers_become_fields_of_the_call(served: Site) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    said = {"Idempotency-Key": "k1", "traceparent": trace}
    await served.rpc("SendMessage", {"message": message()}, "/agents/echo/", **said)
    call = served.handler.calls[0]
    assert (call.idempotency_key, call.traceparent, call.mount, call.dialect) == (
        "k1",
        trace,
        "/agents/echo",
        "1.0",
    )


async def test_a_malformed_trace_is_none(served: Site) -> None:
    await served.rpc("GetTask", {"id": "t1"}, traceparent="x" * 5000)
    assert served.handler.calls[0].traceparent is None


async def test_the_version_may_stand_in_the_query(served: Site) -> None:
    """A2A 1.0 §3.6.1."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t1"}}
    async with served.http.post("/agents/echo?A2A-Version=1.0", json=body) as answer:
        assert "result" in await answer.json()
    async with served.http.post("/agents/echo?A2A-Version=7.0", json=body) as answer:
        assert (await answer.json())["error"]["code"] == -32009


async def test_the_body_of_a_message_is_not_held_while_its_stream_is_open(served: Site) -> None:
    import gc

    open_stream = ScriptedStream([])
    served.handler.streams = lambda call: open_stream
    text = "needle" * 3
    body = {"message": message(text)}
    async with served.http.post("/message:stream", json=body, headers=V1) as answer:
        assert await answer.content.readline() == b": keepalive\n"
        served.handler.calls.clear()
        gc.collect()
        sent = [each for each in gc.get_objects() if type(each) is StreamMessage]
        held = [each for each in sent if each.message.text == text]
        open_stream.put(None)
        assert held == []


PIECES = st.sampled_from(
    [b"/", b"//", b"tasks", b"t1", b":cancel", b":subscribe", b"message:send", b"v1", b"agents", b"echo", b"%2f",
     b"%00", b"%", b"\xff", b".well-known", b"agent.json", b"pushNotificationConfigs", b"..", b"health"]
)  # fmt: skip
HEADERS = st.lists(
    st.tuples(
        st.sampled_from([b"content-type", b"a2a-version", b"a2a-extensions", b"last-event-id", b"if-none-match",
                         b"host", b"traceparent", b"idempotency-key", b"origin", b"user-agent"]),
        st.one_of(st.binary(max_size=30), st.sampled_from([b"application/json", b"1.0", b"0.3", b"7", b"*"])),
    ),
    max_size=6,
)  # fmt: skip


@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT"]),
    path=st.lists(PIECES, max_size=8).map(b"".join),
    query=st.one_of(
        st.just(b""), st.binary(max_size=40), st.sampled_from([b"A2A-Version=1.0", b"since=7.2", b"a&" * 200])
    ),
    headers=HEADERS,
    body=st.one_of(
        st.binary(max_size=60),
        st.sampled_from(
            [b"{}", b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"}}', b'{"message":{}}']
        ),
    ),
)
def test_whatever_is_asked_there_is_one_whole_answer_and_no_failure(
    method: str, path: bytes, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    async def ask() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        asked = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            return next(asked, {"type": "http.disconnect"})

        async def send(event: dict[str, Any]) -> None:
            sent.append(event)

        scope = {
            "type": "http", "method": method, "scheme": "http", "path": path.decode("utf-8", "replace"),
            "raw_path": b"/" + path, "query_string": query, "headers": headers, "server": ("127.0.0.1", 1),
        }  # fmt: skip
        await make_app(ScriptedHandler(), ScriptedStore(), origins=["https://a.example"])(scope, receive, send)
        return sent

    start, *bodies = asyncio.run(ask())
    assert start["type"] == "http.response.start"
    assert start["status"] < 500
    assert [each.get("more_body", False) for each in bodies] == [True] * (len(bodies) - 1) + [False]
    whole = b"".join(each.get("body", b"") for each in bodies)
    length = dict(start["headers"]).get(b"content-length")
    assert length is None or int(length) == len(whole)
