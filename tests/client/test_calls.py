"""Cards, JSON-RPC calls and chat completions, with a peer that says what the test wants."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman.client.card import fetch_card
from dragoman.client.chat import complete
from dragoman.client.errors import HttpRefusal, RpcError
from dragoman.client.jsonrpc import call
from dragoman.model.errors import InvalidAgentResponse
from dragoman.net.egress import Egress
from tests.net.peer import DEADLINE_S, Peer, listening, result, says, status


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with asyncio.timeout(DEADLINE_S), listening() as peer:
        yield peer


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    egress = Egress()
    yield egress
    await egress.close()


async def test_a_card_is_read_at_the_well_known_path(peer: Peer, egress: Egress) -> None:
    card = {"name": "a", "protocolVersion": "0.3.0", "supportedProtocols": ["jsonrpc", 1], "url": None}
    peer.scripts["GET /below/.well-known/agent.json"] = says(card)
    read = await fetch_card(egress, peer.url + "/below/", timeout_s=5)
    assert (read.name, read.protocol_version, read.supported_protocols, read.url) == ("a", "0.3.0", ("jsonrpc",), "")
    assert read.whole == card


async def test_a_card_without_protocols_has_none(peer: Peer, egress: Egress) -> None:
    peer.scripts["GET /.well-known/agent.json"] = says({"supportedProtocols": "jsonrpc"})
    assert (await fetch_card(egress, peer.url, timeout_s=5)).supported_protocols == ()


async def test_a_call_is_json_rpc_and_its_result_is_returned(peer: Peer, egress: Egress) -> None:
    peer.scripts["POST /"] = result({"ok": True})
    assert await call(egress, peer.url + "/", "GetTask", {"id": "t"}, timeout_s=5) == {"ok": True}
    (asked,) = peer.asked
    assert asked.json == {"jsonrpc": "2.0", "method": "GetTask", "id": 1, "params": {"id": "t"}}
    assert asked.headers["content-type"] == "application/json"


async def test_a_null_result_is_a_result(peer: Peer, egress: Egress) -> None:
    peer.scripts["POST /"] = result(None)
    assert await call(egress, peer.url + "/", "X", {}, timeout_s=5) is None


async def test_an_rpc_error_is_raised_with_code_and_text(peer: Peer, egress: Egress) -> None:
    peer.scripts["POST /"] = says({"id": 1, "error": {"code": -32001, "message": "Task not found", "data": None}})
    with pytest.raises(RpcError, match="-32001: Task not found") as caught:
        await call(egress, peer.url + "/", "GetTask", {"id": "t"}, timeout_s=5)
    assert caught.value.code == -32001


@pytest.mark.parametrize("code", [302, 400, 404, 500, 503])
async def test_a_status_that_is_not_2xx_is_a_refusal(peer: Peer, egress: Egress, code: int) -> None:
    peer.scripts["POST /"] = status(code)
    with pytest.raises(HttpRefusal, match=f"status {code}, expected 200"):
        await call(egress, peer.url + "/", "X", {}, timeout_s=5)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"\xff\xfe", b"[" * 100_000, b"[]", b"1", b"{}", b'{"error": "no"}', b'{"error": []}']
)
async def test_an_answer_that_is_not_json_rpc_names_what_was_expected(peer: Peer, egress: Egress, body: bytes) -> None:
    peer.scripts["POST /"] = says(body)
    with pytest.raises(InvalidAgentResponse, match="expected"):
        await call(egress, peer.url + "/", "X", {}, timeout_s=5)


async def test_a_chat_completion_is_asked_for_and_its_text_returned(peer: Peer, egress: Egress) -> None:
    answer = {"choices": [{"message": {"role": "assistant", "content": "Hi"}}, {}]}
    peer.scripts["POST /v1/chat/completions"] = says(answer)
    messages = [{"role": "user", "content": "Hello"}]
    assert await complete(egress, peer.url, "m", messages, timeout_s=5) == "Hi"
    assert peer.asked[0].json == {"model": "m", "messages": messages, "stream": False}


@pytest.mark.parametrize(
    "answer", [{}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": {"content": None}}]}]
)
async def test_a_chat_completion_without_text_names_what_was_expected(peer: Peer, egress: Egress, answer: Any) -> None:
    peer.scripts["POST /v1/chat/completions"] = says(answer)
    with pytest.raises(InvalidAgentResponse, match=r"choices\[0\]\.message\.content"):
        await complete(egress, peer.url, "m", [], timeout_s=5)
