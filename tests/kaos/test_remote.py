"""RemoteAgent: which way it goes, when it takes the other, and when it must not."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman.kaos import AgentTimedOut, AgentUnavailable, RemoteAgent, RemoteAgentError, TaskFailed
from dragoman.net.egress import Egress
from dragoman.net.errors import BadUrl
from tests.kit.waiting import no_hang
from tests.net.peer import DEADLINE_S, Peer, Script, hangs, listening, nobody, raw, result, says, status

CARD, RPC, CHAT = "GET /.well-known/agent.json", "POST /", "POST /v1/chat/completions"
KAOS_CARD = {
    "name": "my-agent",
    "protocolVersion": "0.3.0",
    "supportedProtocols": ["jsonrpc"],
    "capabilities": {"streaming": True, "pushNotifications": False, "stateTransitionHistory": True},
}
TASK = {
    "id": "task-uuid",
    "sessionId": "session-uuid",
    "status": {"state": "completed", "message": "Done", "timestamp": "2026-01-01T00:00:00Z"},
    "history": [
        {"role": "user", "parts": [{"type": "text", "text": "Analyze this data"}]},
        {"role": "agent", "parts": [{"type": "text", "text": "Over A2A"}]},
    ],
}
COMPLETION = {"choices": [{"message": {"role": "assistant", "content": "Over chat"}}]}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """An agent that works over both."""
    async with no_hang(), listening() as peer:
        peer.scripts = {CARD: says(KAOS_CARD), RPC: result(TASK), CHAT: says(COMPLETION)}
        yield peer


@pytest.fixture
async def agent(peer: Peer) -> AsyncIterator[RemoteAgent]:
    async with RemoteAgent("worker", peer.url, discovery_timeout_s=DEADLINE_S, request_timeout_s=DEADLINE_S) as agent:
        yield agent


async def test_a_message_goes_over_a2a_in_kaos_own_bytes(peer: Peer, agent: RemoteAgent) -> None:
    assert await agent.process_message("Analyze this data") == "Over A2A"
    assert peer.paths == [CARD, RPC]
    assert peer.asked[1].body == (
        b'{"jsonrpc":"2.0","method":"SendMessage","id":1,"params":'
        b'{"message":{"role":"user","parts":[{"type":"text","text":"Analyze this data"}]}}}'
    )


async def test_context_metadata_and_trace_go_along(peer: Peer, agent: RemoteAgent) -> None:
    await agent.process_message("x", context_id="c1", metadata={"a": 1}, traceparent=TRACE)
    params = peer.asked[1].json["params"]
    assert (params["contextId"], params["message"]["metadata"]) == ("c1", {"a": 1})
    assert [asked.headers.get("traceparent") for asked in peer.asked] == [TRACE, TRACE]


@pytest.mark.parametrize("traceparent", [None, "", "nonsense", TRACE.upper(), TRACE + "\r\nX: y"])
async def test_what_is_no_traceparent_is_not_passed_on(peer: Peer, agent: RemoteAgent, traceparent: str | None) -> None:
    await agent.process_message("x", traceparent=traceparent)
    assert all("traceparent" not in asked.headers for asked in peer.asked)


async def test_the_card_is_read_once(peer: Peer, agent: RemoteAgent) -> None:
    for _ in range(2):
        await agent.process_message("x")
    assert peer.paths == [CARD, RPC, RPC]
    assert agent.card is not None
    assert agent.card.name == "my-agent"


@pytest.mark.parametrize("protocols", [[], ["grpc"], None])
async def test_an_agent_without_json_rpc_is_asked_over_chat(peer: Peer, agent: RemoteAgent, protocols: Any) -> None:
    peer.scripts[CARD] = says({**KAOS_CARD, "supportedProtocols": protocols})
    assert await agent.process_message("Hello") == "Over chat"
    assert peer.paths == [CARD, CHAT]
    assert peer.asked[1].body == (b'{"model":"worker","messages":[{"role":"user","content":"Hello"}],"stream":false}')


@pytest.mark.parametrize(
    "script",
    [
        status(404),
        status(500),
        says(b"<html>"),
        says([]),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
        says(b"", 302, {"Location": "/x"}),
    ],
)
async def test_an_agent_whose_card_cannot_be_read_is_asked_over_chat(
    peer: Peer, agent: RemoteAgent, script: Script
) -> None:
    peer.scripts[CARD] = script
    assert await agent.process_message("Hello") == "Over chat"
    assert peer.paths == [CARD, CHAT]


@pytest.mark.parametrize(
    "script",
    [
        status(404),
        status(500),
        status(503),
        says({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found"}}),
        says({"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "Internal error", "data": None}}),
        says(b"", 307, {"Location": "/elsewhere"}),
    ],
    ids=["404", "500", "503", "no such method", "internal error", "redirect"],
)
async def test_a_refusal_over_a2a_is_asked_again_over_chat(peer: Peer, agent: RemoteAgent, script: Script) -> None:
    peer.scripts[RPC] = script
    assert await agent.process_message("Hello", traceparent=TRACE) == "Over chat"
    assert peer.paths == [CARD, RPC, CHAT]
    assert peer.asked[2].headers["traceparent"] == TRACE


async def test_after_a_refusal_the_card_is_read_again(peer: Peer, agent: RemoteAgent) -> None:
    peer.scripts[RPC] = status(500)
    await agent.process_message("x")
    peer.scripts[RPC] = result(TASK)
    assert await agent.process_message("x") == "Over A2A"
    assert peer.paths == [CARD, RPC, CHAT, CARD, RPC]


async def test_an_agent_whose_card_does_not_come_is_asked_over_chat(peer: Peer) -> None:
    peer.scripts[CARD] = hangs()
    async with RemoteAgent("worker", peer.url, discovery_timeout_s=0.3, request_timeout_s=DEADLINE_S) as agent:
        assert await agent.process_message("Hello") == "Over chat"
    assert peer.paths == [CARD, CHAT]


async def test_after_a_timeout_nothing_is_sent_a_second_way(peer: Peer) -> None:
    peer.scripts[RPC] = hangs()
    async with RemoteAgent("worker", peer.url, discovery_timeout_s=DEADLINE_S, request_timeout_s=0.5) as agent:
        with pytest.raises(AgentTimedOut, match=r"Agent worker: .*no answer within 0\.5 s"):
            await agent.process_message("Hello")
    assert peer.paths == [CARD, RPC]


@pytest.mark.parametrize(
    "script",
    [
        raw(b""),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
        says(b"<html>"),
        says({"jsonrpc": "2.0", "id": 1}),
        result("text"),
        result({"id": "t", "status": {"state": "completed"}}),
        result({"id": "t", "status": {"state": "completed", "message": "Done"}}),
        result({"id": "t", "status": {"state": "working", "message": "Processing"}}),
    ],
    ids=["hangs up", "breaks off", "not JSON", "no result", "no task", "no text", "only done", "not done"],
)
async def test_after_an_answer_that_is_none_nothing_is_sent_a_second_way(
    peer: Peer, agent: RemoteAgent, script: Script
) -> None:
    peer.scripts[RPC] = script
    with pytest.raises(RemoteAgentError):
        await agent.process_message("Hello")
    assert peer.paths == [CARD, RPC]


async def test_an_answer_that_is_too_large_is_refused(peer: Peer) -> None:
    egress = Egress(max_answer_bytes=2000)
    peer.scripts[RPC] = result({**TASK, "output": "x" * 3000})
    with pytest.raises(RemoteAgentError, match="larger than the 2000 bytes"):
        await RemoteAgent("worker", peer.url, egress=egress).process_message("Hello")
    assert peer.paths == [CARD, RPC]
    await egress.close()


PARTS = [{"type": "text", "text": "Hello"}, {"type": "text", "text": "there"}]
V1 = {
    "id": "t",
    "contextId": "c",
    "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00Z"},
    "artifacts": [
        {"artifactId": "a", "parts": [{"text": "12"}, {"text": "3"}]},
        {"artifactId": "b", "parts": [{"text": "4"}]},
    ],
}
SAID = {"kind": "message", "role": "agent", "messageId": "m", "parts": [{"kind": "text", "text": "All done"}]}
MESSAGE = {"messageId": "m", "role": "ROLE_AGENT", "contextId": "c", "parts": [{"text": "Hello"}, {"text": "there"}]}
ENDED = {"id": "t", "status": {"state": "completed"}}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param({"task": TASK}, "Over A2A", id="KAOS, wrapped"),
        pytest.param({"task": V1}, "123\n4", id="1.0"),
        pytest.param(V1, "123\n4", id="1.0, flat"),
        pytest.param(
            {"kind": "task", **ENDED, "status": {"state": "completed", "message": SAID}}, "All done", id="0.3"
        ),
        pytest.param({"message": MESSAGE}, "Hello\nthere", id="1.0 message"),
        pytest.param(MESSAGE, "Hello\nthere", id="flat message"),
        pytest.param({**TASK, "output": "From output"}, "From output", id="output before history"),
        pytest.param({**V1, "output": "o", "history": TASK["history"]}, "123\n4", id="artifacts first"),
        pytest.param(
            {**ENDED, "artifacts": [{"parts": [{"kind": "data", "data": {"a": 1}}]}]}, '{"a":1}', id="data without text"
        ),
        pytest.param(
            {"id": "t", "status": {"state": "input-required", "message": {"role": "agent", "parts": PARTS}}},
            "Hello\nthere",
            id="a question",
        ),
        pytest.param({**ENDED, "output": ""}, "", id="says nothing"),
    ],
)
async def test_the_text_of_an_answer_comes_from_where_kaos_looks(
    peer: Peer, agent: RemoteAgent, answer: Any, text: str
) -> None:
    peer.scripts[RPC] = result(answer)
    assert await agent.process_message("Hello") == text


@pytest.mark.parametrize("state", ["failed", "TASK_STATE_FAILED", "canceled", "rejected"])
async def test_a_task_that_failed_is_an_error_and_not_done_again(peer: Peer, agent: RemoteAgent, state: str) -> None:
    peer.scripts[RPC] = result({"task": {**TASK, "status": {"state": state, "message": "no such model"}}})
    with pytest.raises(TaskFailed, match=r"task-uuid is (failed|canceled|rejected): no such model") as caught:
        await agent.process_message("Hello")
    assert caught.value.answer.id == "task-uuid"
    assert peer.paths == [CARD, RPC]


async def test_an_agent_that_is_not_there_is_unavailable() -> None:
    async with RemoteAgent("worker", await nobody()) as agent:
        with pytest.raises(AgentUnavailable, match=r"no answer over A2A .* nor over chat completions") as caught:
            await agent.process_message("Hello")
        assert isinstance(caught.value, RuntimeError)


async def test_when_both_ways_are_refused_the_error_names_both(peer: Peer, agent: RemoteAgent) -> None:
    peer.scripts[RPC] = says({"id": 1, "error": {"code": -32601, "message": "Method not found"}})
    peer.scripts[CHAT] = status(500)
    with pytest.raises(AgentUnavailable, match=r"Method not found.*status 500, expected 200"):
        await agent.process_message("Hello")


async def test_a_timeout_over_chat_is_a_timeout(peer: Peer) -> None:
    """The RPC may be too late as well, on a busy machine: that is a timeout, too."""
    peer.scripts[RPC], peer.scripts[CHAT] = status(500), hangs()
    async with RemoteAgent("worker", peer.url, discovery_timeout_s=DEADLINE_S, request_timeout_s=0.5) as agent:
        with pytest.raises(AgentTimedOut):
            await agent.process_message("Hello")


async def test_a_chat_answer_without_text_names_what_was_expected(peer: Peer, agent: RemoteAgent) -> None:
    peer.scripts[RPC], peer.scripts[CHAT] = status(500), says({"choices": []})
    with pytest.raises(RemoteAgentError, match=r"expected `choices\[0\]\.message\.content`"):
        await agent.process_message("Hello")


MESSAGES = [
    {"role": "system", "content": "Be brief"},
    {"role": "task-delegation", "content": [{"type": "text", "text": "Count"}]},
    {"role": "assistant", "content": "One"},
]


async def test_of_several_messages_a2a_gets_the_last_that_asks_and_chat_gets_all(
    peer: Peer, agent: RemoteAgent
) -> None:
    peer.scripts[RPC] = status(500)
    await agent.process_message(MESSAGES)
    assert peer.asked[1].json["params"]["message"]["parts"] == [{"type": "text", "text": "Count"}]
    assert peer.asked[2].json["messages"] == MESSAGES


@pytest.mark.parametrize("messages", [[], [{"role": "user"}], [{"role": "user", "content": [{"type": "image_url"}]}]])
async def test_messages_without_a_text_are_refused_before_anything_is_sent(
    peer: Peer, agent: RemoteAgent, messages: Any
) -> None:
    with pytest.raises(ValueError, match="expected"):
        await agent.process_message(messages)
    assert peer.asked == []


@pytest.mark.parametrize(
    "tail", ["", "/", "/.well-known/agent.json", "/.well-known/agent-card.json", "/.well-known/agent"]
)
def test_the_url_of_the_card_is_the_agents_url(tail: str) -> None:
    assert RemoteAgent("a", card_url="http://h:8000/x" + tail).base_url == "http://h:8000/x"
    assert RemoteAgent("a", agent_card_url="http://h:8000" + tail).base_url == "http://h:8000"


def test_an_agent_needs_a_url_that_can_be_called() -> None:
    with pytest.raises(ValueError, match="base_url is required"):
        RemoteAgent("a")
    with pytest.raises(BadUrl):
        RemoteAgent("a", "worker:8000")
