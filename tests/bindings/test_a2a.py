"""JSON-RPC over HTTP."""

import json

import pytest
from msgspec.structs import replace

from dragoman.bindings.http import SLICE_BYTES
from dragoman.dialects import resolve
from dragoman.model.errors import TaskNotFound, Unavailable
from dragoman.model.operations import Call, Result
from tests.bindings.conftest import RECORD, V1, Site, message

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("request_id", ["1", "1.0", "-0", '"x"', "null", "123456789012345678901234567890", '"\\u0041"'])
async def test_the_id_goes_back_as_it_came(served: Site, request_id: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":{request_id},"method":"GetTask","params":{{"id":"t1"}}}}'
    async with served.http.post("/", data=body, headers={**V1, **JSON}) as answer:
        assert (await answer.text()).startswith(f'{{"jsonrpc":"2.0","id":{request_id},"result":{{')


async def test_an_error_keeps_the_id_and_leaves_with_200(served: Site) -> None:
    def missing(call: Call) -> Result:
        raise TaskNotFound("t1")

    served.handler.answer = missing
    async with served.http.post("/", json={"jsonrpc": "2.0", "id": 9, "method": "GetTask", "params": {"id": "t1"}},
                                headers=V1) as answer:  # fmt: skip
        assert answer.status == 200
        assert (await answer.json())["id"] == 9


async def test_both_versions_answer_on_the_same_path_in_their_own_words(served: Site) -> None:
    old = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": old}}
    for path in ("/", "/agents/echo", "/agents/echo/"):
        async with served.http.post(path, json=body) as answer:
            assert (await answer.json())["result"]["kind"] == "task"
        assert (await served.rpc("SendMessage", {"message": message()}, path))["result"]["task"]["id"] == "t1"
    assert {call.dialect for call in served.handler.calls} == {"0.3", "1.0"}


async def test_not_now_is_503_with_retry_after(served: Site) -> None:
    def stopping(call: Call) -> Result:
        raise Unavailable("the server is stopping", 7)

    served.handler.answer = stopping
    for path, body in (
        ("/", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message()}}),
        ("/message:send", {"message": message()}),
    ):
        async with served.http.post(path, json=body, headers=V1) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "7")


async def test_a_large_answer_arrives_whole(served: Site) -> None:
    text = "x" * (5 * SLICE_BYTES)
    status = replace(RECORD.status, message=None)
    head = replace(RECORD.head, context_id=text)
    served.handler.answer = lambda call: replace(RECORD, status=status, head=head)
    answer = await served.rpc("GetTask", {"id": "t1"})
    assert answer["result"]["contextId"] == text


async def test_an_answer_has_its_length(served: Site) -> None:
    async with served.http.get("/tasks/t1", headers=V1) as answer:
        body = await answer.read()
        assert int(answer.headers["Content-Length"]) == len(body)
        assert answer.content_type == "application/a2a+json"
        assert "Server" not in answer.headers
        json.loads(body)


async def test_a_body_beyond_the_bounds_is_decoded_by_nobody(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    monkeypatch.setattr(resolve, "of_bare", lambda body, mount: decoded.append(body))
    async with served.http.post(
        "/", data=b'{"a":' + b"[" * 1000, headers={**V1, "Content-Type": "application/json"}
    ) as response:
        assert (await response.json())["error"]["code"] in (-32600, -32700)
    assert decoded == []
    async with served.http.post("/", data=b'{"a": 1}', headers={**V1, "Content-Type": "application/json"}) as response:
        assert (await response.json())["error"]["code"] == -32600
    assert decoded == [b'{"a": 1}']
