"""Cards and chat completions, with a peer that says what the test wants."""

from typing import Any

import msgspec
import pytest

from dragoman.client.card import read_card
from dragoman.client.errors import HttpRefusal
from dragoman.client.http import complete
from dragoman.model.errors import InvalidAgentResponse
from dragoman.net.egress import Egress
from tests.net.peer import Peer, says, status


def test_a_card_is_read_leniently() -> None:
    card = {"name": "a", "protocolVersion": "0.3.0", "supportedProtocols": ["jsonrpc", 1], "url": None}
    read = read_card(card)
    assert (read.name, read.protocol_version, read.supported_protocols, read.url) == ("a", "0.3.0", ("jsonrpc",), "")
    assert read.whole == card
    assert read_card({"supportedProtocols": "jsonrpc"}).supported_protocols == ()


@pytest.mark.parametrize("code", [302, 400, 404, 500, 503])
async def test_a_status_that_is_not_2xx_is_a_refusal(peer: Peer, egress: Egress, code: int) -> None:
    peer.scripts["POST /v1/chat/completions"] = status(code)
    with pytest.raises(HttpRefusal, match=f"status {code}, expected 200"):
        await complete(egress, peer.url, "m", [], timeout_s=60.0)


@pytest.mark.parametrize("code", [200, 500])
@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", b"[" * 100_000, b"[]", b"1"])
async def test_an_answer_that_is_no_object_names_what_was_expected_and_shows_what_came(
    peer: Peer, egress: Egress, body: bytes, code: int
) -> None:
    peer.scripts["POST /v1/chat/completions"] = says(body, code)
    with pytest.raises((InvalidAgentResponse, HttpRefusal), match="expected") as caught:
        await complete(egress, peer.url, "m", [], timeout_s=60.0)
    assert repr(body[:30])[2:-1] in str(caught.value)
    assert len(str(caught.value)) < 1000


async def test_a_chat_completion_is_asked_for_and_its_text_returned(peer: Peer, egress: Egress) -> None:
    answer = {"choices": [{"message": {"role": "assistant", "content": "Hi"}}, {}]}
    peer.scripts["POST /v1/chat/completions"] = says(answer)
    messages = [{"role": "user", "content": "Hello"}]
    assert await complete(egress, peer.url, "m", messages, timeout_s=60.0) == "Hi"
    assert peer.asked[0].json == {"model": "m", "messages": messages, "stream": False}


@pytest.mark.parametrize(
    "answer", [{}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": {"content": None}}]}]
)
async def test_a_chat_completion_without_text_names_what_was_expected(peer: Peer, egress: Egress, answer: Any) -> None:
    peer.scripts["POST /v1/chat/completions"] = says(answer)
    with pytest.raises(InvalidAgentResponse, match=r"choices\[0\]\.message\.content") as caught:
        await complete(egress, peer.url, "m", [], timeout_s=60.0)
    assert msgspec.json.encode(answer).decode() in str(caught.value)
