"""Credentials of client commands: they go where the card wants them, and nowhere else."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.a2a.command import Shell

TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00Z"}}

Request = tuple[str, dict[str, str]]


class Agent:
    """A server with a card of the test's choice, which records what it is asked."""

    def __init__(self) -> None:
        self.schemes: dict[str, Any] = {}
        self.interface = ""
        self.status = 200
        self.asked: list[Request] = []
        self.url = ""

    @property
    def card(self) -> dict[str, Any]:
        return {
            "name": "far",
            "description": "",
            "version": "1",
            "capabilities": {},
            "skills": [],
            "supportedInterfaces": [
                {"url": self.interface or f"{self.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
            "securitySchemes": self.schemes,
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        verb, path, _ = head[0].split(" ")
        self.asked.append((f"{verb} {path}", headers))
        status, answer = 200, json.dumps(self.card)
        if verb == "POST":
            call = json.loads(body)
            result = TASK if call["method"] == "GetTask" else {"task": TASK}
            status = self.status
            answer = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}) if status == 200 else "no"
        head_bytes = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n"
        writer.write(f"{head_bytes}Connection: close\r\n\r\n{answer}".encode())
        await writer.drain()
        writer.close()

    @property
    def calls(self) -> list[Request]:
        return [(line, headers) for line, headers in self.asked if line.startswith("POST")]

    @property
    def card_requests(self) -> list[Request]:
        return [(line, headers) for line, headers in self.asked if line.startswith("GET")]


@pytest.fixture
def agent() -> Iterator[Agent]:
    """Serve an agent on a thread, since the commands have a loop of their own."""
    agent, loop = Agent(), asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(agent.serve, "127.0.0.1", 0))
    agent.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield agent
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.run_until_complete(server.wait_closed())
    loop.close()


def api_key(where: str, name: str) -> dict[str, Any]:
    return {"key": {"apiKeySecurityScheme": {"location": where, "name": name}}}


BEARER = {"token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}


@pytest.mark.parametrize("given", ["flag", "environment"])
def test_an_api_key_goes_where_the_card_wants_it(shell: Shell, agent: Agent, given: str) -> None:
    words, environment = (("--api-key", "s3cret"), {}) if given == "flag" else ((), {"A2ACLI_API_KEY": "s3cret"})
    for where, name in (("header", "X-Agent-Key"), ("cookie", "session"), ("query", "key")):
        agent.schemes, agent.asked = api_key(where, name), []
        ran = shell.run("send", "-a", agent.url, "hello", *words, **environment)
        assert ran.status == 0, ran.err
        for line, headers in agent.calls:
            assert (headers.get("x-agent-key") == "s3cret") is (where == "header")
            assert (headers.get("cookie") == "session=s3cret") is (where == "cookie")
            assert line.startswith("POST /rpc?key=s3cret ".strip()) is (where == "query")
        assert "s3cret" not in str(agent.card_requests)
        assert "s3cret" not in ran.out + ran.err


def test_a_bearer_token_goes_to_an_agent_that_declares_one(shell: Shell, agent: Agent) -> None:
    agent.schemes = BEARER
    assert shell.run("send", "-a", agent.url, "hello", "--bearer", "s3cret").status == 0
    assert all(headers["authorization"] == "Bearer s3cret" for _, headers in agent.calls)
    assert all("authorization" not in headers for _, headers in agent.card_requests)


def test_a_credential_that_the_card_does_not_declare_is_not_sent(shell: Shell, agent: Agent) -> None:
    ran = shell.run("send", "-a", agent.url, "hello", "--bearer", "s3cret", "--api-key", "k3y-secret")
    assert ran.status == 0
    assert "--bearer is not sent: the agent's card declares no scheme" in ran.err
    assert "--api-key is not sent: the agent's card declares no scheme" in ran.err
    assert "s3cret" not in str(agent.asked)
    assert "k3y-secret" not in str(agent.asked)


def test_a_stranger_whom_the_card_names_gets_no_credential(shell: Shell, agent: Agent, demo: str) -> None:
    agent.schemes, agent.interface = BEARER, demo  # another origin, on a private address
    ran = shell.run("send", "-a", agent.url, "hello", "--bearer", "s3cret")
    assert ran.status == 3
    assert "may not be called from here" in ran.err
    trusted = shell.run("send", "-a", agent.url, "hello", "--bearer", "s3cret", "--trust-origin", demo)
    assert trusted.status == 0


def test_a_found_file_cannot_send_the_users_token_to_its_own_agent(shell: Shell, agent: Agent) -> None:
    agent.schemes = BEARER
    (shell.work / ".env").write_text(f"A2ACLI_AGENT_CARD={agent.url}\n")
    ran = shell.run("send", "hello", A2ACLI_BEARER="s3cret")
    assert ran.status == 0
    assert "which was only found" in ran.err
    assert "s3cret" not in str(agent.asked)
    named = shell.run("send", "hello", "--config", ".env", A2ACLI_BEARER="s3cret")
    assert named.status == 0
    assert "s3cret" in str(agent.calls)


@pytest.mark.parametrize(("words", "code"), [((), "CREDENTIALS_MISSING"), (("--bearer", "wrong"), "AUTH_FAILED")])
def test_a_refusal_says_whether_credentials_were_missing_or_wrong(
    shell: Shell, agent: Agent, words: tuple[str, ...], code: str
) -> None:
    agent.schemes, agent.status = BEARER, 401
    ran = shell.run("send", "-a", agent.url, "hello", "-o", "json", *words)
    assert ran.status == 4
    assert ran.json["error"]["code"] == f"A2ACLI_ERR_{code}"


def test_the_wire_log_has_every_message_and_no_credential(shell: Shell, agent: Agent) -> None:
    agent.schemes = BEARER | api_key("query", "key")
    for words in (("--bearer", "s3cret"), ("--api-key", "s3cret")):
        more = ("--svc-param", "X-Team: param-s3cret", "--debug", "--verbose")
        ran = shell.run("send", "-a", agent.url, "hello", *words, *more)
        assert "SendMessage" in ran.err
        assert '"state": "TASK_STATE_COMPLETED"' in ran.err
        assert "s3cret" not in ran.out + ran.err
        assert agent.calls[-1][1]["x-team"] == "param-s3cret"
