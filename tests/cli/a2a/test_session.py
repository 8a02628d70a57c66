"""How a command speaks to an agent: interfaces, tenants, versions, extensions, states, TLS, signatures."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey

from dragoman.auth.signatures import Signer
from tests.certificates import Authority
from tests.cli.a2a.command import DEADLINE_S, Shell, demo_agents_with
from tests.cli.a2a.peer import TASK, FarAgent
from tests.ports import kept_port

WORKING = {**TASK, "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-01-01T00:00:00Z"}}


def params(agent: FarAgent) -> list[dict[str, Any]]:
    return [asked.json["params"] for asked in agent.calls]


@pytest.mark.requirement("TX_003")
def test_the_tenant_of_the_interface_is_in_every_request(shell: Shell, agent: FarAgent) -> None:
    agent.interface = {"tenant": "acme"}
    assert shell.run("send", "-a", agent.url, "hello", "--poll-interval", "10ms").status == 0
    shell.run("task", "get", "-a", agent.url, "t")
    assert {each["tenant"] for each in params(agent)} == {"acme"}
    agent.interface, agent.asked = {}, []
    shell.run("send", "-a", agent.url, "hello")
    assert all("tenant" not in each for each in params(agent))


@pytest.mark.requirement("VER_001")
def test_the_version_is_in_every_request_and_never_empty(shell: Shell, agent: FarAgent) -> None:
    shell.run("send", "-a", agent.url, "hello")
    shell.run("task", "get", "-a", agent.url, "t")
    assert {asked.headers["a2a-version"] for asked in agent.asked} == {"1.0"}


@pytest.mark.requirement("INTERACT_002")
@pytest.mark.parametrize(("words", "sends"), [(("--task-id", "t"), 1), ((), 2)])
def test_a_refused_message_is_sent_again_only_without_a_task(
    shell: Shell, agent: FarAgent, words: tuple[str, ...], sends: int
) -> None:
    agent.capabilities = {"streaming": True}
    agent.refused = {"SendStreamingMessage": -32004}  # it does not stream, or the task has ended
    ran = shell.run("send", "-a", agent.url, "hello", *words, "-o", "json")
    assert (ran.status, [asked.json["method"] for asked in agent.calls].count("GetTask")) == (2 - sends, 0)
    assert len(agent.calls) == sends
    assert len({each["message"]["messageId"] for each in params(agent)}) == 1


@pytest.mark.requirement("INTERACT_002")
def test_another_task_than_the_one_that_was_named_is_no_answer(shell: Shell, agent: FarAgent) -> None:
    ran = shell.run("send", "-a", agent.url, "hello", "--task-id", "other", "-o", "json")
    assert (ran.status, ran.json["error"]["code"]) == (1, "InvalidAgentResponseError")
    assert "task other was answered with task t" in ran.json["error"]["message"]


@pytest.mark.requirement("TASK_GET_001", "TASK_CANCEL_001")
@pytest.mark.parametrize("moment", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:00.120Z"])
def test_a_time_stamp_is_printed_as_it_came(shell: Shell, agent: FarAgent, moment: str) -> None:
    agent.tasks = [{**TASK, "status": {"state": "TASK_STATE_COMPLETED", "timestamp": moment}}]
    assert shell.run("task", "get", "-a", agent.url, "t", "-o", "json").json == agent.tasks[0]


@pytest.mark.requirement("TASK_POLL_001")
def test_an_agent_that_does_not_stream_is_polled_with_growing_pauses(shell: Shell, agent: FarAgent) -> None:
    agent.tasks = [WORKING, WORKING, WORKING, TASK]
    ran = shell.run("send", "-a", agent.url, "hello", "--poll-interval", "10ms")
    assert ran.fields["State"] == "TASK_STATE_COMPLETED"
    methods = [asked.json["method"] for asked in agent.calls]
    assert methods == ["SendMessage", *["GetTask"] * 4]
    assert params(agent)[0]["configuration"]["returnImmediately"] is True


@pytest.mark.requirement("TASK_POLL_003")
def test_a_state_without_meaning_is_neither_an_end_nor_a_question(shell: Shell, agent: FarAgent) -> None:
    unspecified = {**TASK, "status": {"state": "TASK_STATE_UNSPECIFIED"}}
    agent.tasks = [unspecified] * 3 + [TASK]
    ran = shell.run("send", "-a", agent.url, "hello", "--poll-interval", "10ms")
    assert (ran.status, ran.fields["State"]) == (0, "TASK_STATE_COMPLETED")
    assert len(agent.calls) == 5
    agent.tasks = [unspecified]
    shown = shell.run("task", "get", "-a", agent.url, "t")
    assert shown.fields["State"] == "TASK_STATE_UNSPECIFIED"


@pytest.mark.requirement("VER_002")
def test_a_required_extension_must_be_declared(shell: Shell, agent: FarAgent) -> None:
    agent.capabilities = {"extensions": [{"uri": "urn:x:must", "required": True}, {"uri": "urn:x:may"}]}
    refused = shell.run("send", "-a", agent.url, "hello", "-o", "json")
    assert (refused.status, refused.json["error"]["code"]) == (1, "ExtensionSupportRequiredError")
    assert "--extension urn:x:must" in refused.json["error"]["hint"]
    assert agent.calls == []
    assert shell.run("send", "-a", agent.url, "hello", "--extension", "urn:x:must").status == 0
    assert {asked.headers["a2a-extensions"] for asked in agent.calls} == {"urn:x:must"}


@pytest.mark.requirement("CARD_GET_003", "VER_003", "AUTH_008")
def test_the_extended_card_is_asked_for_only_with_credentials_that_the_card_declares(
    shell: Shell, agent: FarAgent
) -> None:
    absent = shell.run("card", "get", "-a", agent.url, "--extended", "-o", "json")
    assert absent.json["error"]["code"] == "ExtendedAgentCardNotConfiguredError"
    agent.capabilities = {"extendedAgentCard": True}
    for words in ((), ("--bearer", "s3cret")):  # none, and one that the card does not declare
        ran = shell.run("card", "get", "-a", agent.url, "--extended", "-o", "json", *words)
        assert (ran.status, ran.json["error"]["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")
    assert agent.calls == []


def test_metadata_is_part_of_the_message_and_parameters_are_headers(shell: Shell, agent: FarAgent) -> None:
    words = ("--metadata", '{"team": {"id": 7}}', "--svc-param", "x-trace-id:abc")
    assert shell.run("send", "-a", agent.url, "hello", *words).status == 0
    assert params(agent)[0]["message"]["metadata"] == {"team": {"id": 7}}
    assert agent.calls[0].headers["x-trace-id"] == "abc"


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_every_command_works_over_grpc_too(shell: Shell, version: str) -> None:
    with demo_agents_with(f"grpc_port={kept_port()}") as url:
        grpc = ("-a", f"{url}/agents/booking" if version == "1.0" else url, "--transport", "GRPC")
        words = (*grpc, "--a2a-version", version)
        asked = shell.run("send", *words, "Book", "-o", "json", "--debug")
        assert asked.status == 0, asked.err
        assert "/SendStreamingMessage" in asked.err
        assert '"role": "ROLE_USER"' in asked.err  # the log shows messages, not bytes
        task = asked.json["task"]["id"]
        assert shell.run("task", "get", *words, task).fields["Task"] == task
        missing = shell.run("task", "get", *words, "no-such-task", "-o", "json")
        assert (missing.status, missing.json["error"]["code"]) == (1, "TaskNotFoundError")
        if version == "1.0":
            assert shell.run("task", "cancel", *words, task).fields["State"] == "TASK_STATE_CANCELED"


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_an_address_of_grpc_is_called_without_a_card(shell: Shell, version: str) -> None:
    port = kept_port()
    with demo_agents_with(f"grpc_port={port}, api_key='s3cret'"):
        named = ("-a", f"grpc://127.0.0.1:{port}", "--a2a-version", version)
        asked = shell.run("send", *named, "Book", "-o", "json", "--api-key", "s3cret")
        assert asked.status == 0, asked.err
        task = asked.json["task"]["id"]
        # The user's own file may send its key there.
        (shell.work / ".env").write_text(f"A2ACLI_AGENT_CARD=grpc://127.0.0.1:{port}\nA2ACLI_API_KEY=s3cret\n")
        assert shell.run("task", "get", "--a2a-version", version, task).fields["Task"] == task
        (shell.work / ".env").unlink()
        refused = shell.run("task", "get", *named, task, "-o", "json")
        assert (refused.status, refused.json["error"]["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")


def test_the_version_over_an_address_of_grpc_is_1_0_by_default(shell: Shell) -> None:
    port = kept_port()
    with demo_agents_with(f"grpc_port={port}"):
        asked = shell.run("send", "-a", f"grpc://127.0.0.1:{port}", "hello", "--debug")
        assert (asked.status, asked.fields["State"]) == (0, "TASK_STATE_COMPLETED"), asked.err
        assert "lf.a2a.v1.A2AService/" in asked.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("send", "-a", "grpc://127.0.0.1:1/agents/echo", "hello"), "use grpc://host:port"),
        (("send", "-a", "grpc://", "hello"), "is no URL of an agent"),
        (("send", "-a", "grpc://127.0.0.1:1", "--dialect", "beeos", "hello"), "use 1.0 or 0.3"),
        (("send", "-a", "grpc://127.0.0.1:1", "--a2a-version", "2", "hello"), "use 1.0 or 0.3"),
        (("card", "get", "-a", "grpcs://127.0.0.1:1"), "give the http or https address"),
        (("doctor", "grpcs://127.0.0.1:1"), "give the http or https address"),
    ],
)
def test_a_mistake_with_an_address_of_grpc_is_told_in_one_line(shell: Shell, words: tuple[str, ...], told: str) -> None:
    ran = shell.run(*words)
    assert (ran.status, ran.out) == (2, "")
    assert told in ran.err
    assert ran.err.count("\n") == 1


@contextmanager
def serve_over_tls(authority: Authority, agent: FarAgent, *, ask_certificate: bool = False) -> Iterator[str]:
    """Serve an agent over TLS, on a thread of its own."""
    import ssl

    from tests.cli.a2a.peer import Asked

    context = authority.server("127.0.0.1")
    if ask_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.path)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            _, content = agent.answer(Asked(head[0].rpartition(" ")[0], headers, body))
            encoded = json.dumps(content).encode()
            lines = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(encoded)}\r\n"
            writer.write(f"{lines}Connection: close\r\n\r\n".encode() + encoded)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        agent.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield agent.url
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()


def test_certificates_are_verified_unless_the_user_says_otherwise(shell: Shell, tmp_path: Path) -> None:
    authority, agent = Authority(tmp_path), FarAgent()
    agent.schemes = {"token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
    with serve_over_tls(authority, agent) as url:
        refused = shell.run("send", "-a", url, "hello", "-o", "json")
        assert (refused.status, refused.json["error"]["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")
        assert "--ca-cert" in refused.json["error"]["hint"]
        sent = shell.run("send", "-a", url, "hello", "--ca-cert", str(authority.path))
        assert sent.status == 0
        assert f" --ca-cert {authority.path} " in sent.fields["Next"], "the next command needs it, too"
        operated = shell.run("admin", "agents", "--server", url)
        assert (operated.status, operated.err.count("\n")) == (3, 1)
        assert operated.err.endswith("check its certificate: SSL_CERT_FILE names the file of an authority to trust\n")
        insecure = shell.run("send", "-a", url, "hello", "--insecure", "--bearer", "s3cret")
        assert insecure.status == 0
        assert "INSECURE: credentials are sent" in insecure.err


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://0.0.0.0:1/rpc", "in clear text to http://0.0.0.0:1: use TLS"),
        ("grpc://0.0.0.0:1", "in clear text to grpc://0.0.0.0:1: use TLS"),
        ("grpcs://0.0.0.0:1", ""),
        ("grpc://127.0.0.1:1", ""),
    ],
)
def test_credentials_in_clear_text_are_warned_about(shell: Shell, agent: FarAgent, url: str, told: str) -> None:
    agent.schemes = {"token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
    binding = "GRPC" if url.startswith("grpc") else "JSONRPC"
    listed = {"url": url, "protocolBinding": binding, "protocolVersion": "1.0"}
    (shell.work / "card.json").write_text(json.dumps({**agent.card, "supportedInterfaces": [listed]}))
    ran = shell.run("send", "-a", "card.json", "hello", "--bearer", "s3cret")
    assert ran.status != 0
    assert ("clear text" in ran.err) is bool(told)
    assert told in ran.err


def test_a_key_in_the_query_is_not_sent_over_grpc(shell: Shell, agent: FarAgent) -> None:
    agent.schemes = {"key": {"apiKeySecurityScheme": {"location": "query", "name": "key"}}}
    listed = {"url": "grpc://127.0.0.1:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
    (shell.work / "card.json").write_text(json.dumps({**agent.card, "supportedInterfaces": [listed]}))
    ran = shell.run("send", "-a", "card.json", "hello", "--api-key", "s3cret")
    assert ran.status != 0
    assert "it is not sent" in ran.err
    assert "is no URL of an agent" not in ran.err


def test_a_client_certificate_is_shown_where_it_is_asked_for(shell: Shell, tmp_path: Path) -> None:
    authority, agent = Authority(tmp_path), FarAgent()
    authority.server("localhost")  # writes a certificate with its key
    with serve_over_tls(authority, agent, ask_certificate=True) as url:
        trusted = ("-a", url, "--ca-cert", str(authority.path))
        shown = ("--client-cert", str(tmp_path / "localhost.pem"))
        assert shell.run("send", *trusted, "hello", *shown).status == 0
        assert shell.run("send", *trusted, "hello").status == 3


def test_a_certificate_that_is_missing_is_told_over_http_and_grpc(shell: Shell, tmp_path: Path) -> None:
    from tests.certificates import Authority as Issuer

    servers, clients, port = Issuer(tmp_path), Issuer(tmp_path, "clients"), kept_port()
    issued, client = servers.issue(), clients.issue("client")
    files = f"tls_cert={str(issued.cert)!r}, tls_key={str(issued.key)!r}, tls_client_ca={str(clients.path)!r}"
    with demo_agents_with(f"grpc_port={port}, {files}") as url:
        for agent in (url.replace("http:", "https:"), f"grpcs://127.0.0.1:{port}"):
            trusted = ("-a", agent, "--ca-cert", str(servers.path))
            refused = shell.run("send", *trusted, "hello", "-o", "json")
            error = refused.json["error"]
            assert (refused.status, error["code"]) == (3, "A2ACLI_ERR_UNREACHABLE"), error
            assert "only clients with a certificate" in error["message"]
            assert "--client-cert" in error["hint"]
            shown = ("--client-cert", str(client.cert), "--client-key", str(client.key))
            assert shell.run("send", *trusted, *shown, "hello").status == 0


@pytest.mark.requirement("CARD_GET_004")
def test_a_signature_is_verified_by_the_keys_that_the_user_names(shell: Shell, agent: FarAgent) -> None:
    key = ECKey.generate_key("P-256", {"kid": "k1"})
    other = ECKey.generate_key("P-256", {"kid": "k1"})
    for name, each in (("right.json", key), ("wrong.json", other)):
        (shell.work / name).write_text(json.dumps({"keys": [each.as_dict(private=False)]}))
    signature = Signer(key, "k1").sign(agent.card, "https://elsewhere.example/keys")
    signed = {**agent.card, "signatures": [signature]}
    (shell.work / "card.json").write_text(json.dumps(signed))
    found = shell.run("card", "get", "-a", "card.json", "--card-keys", "right.json")
    assert found.fields["Signature"] == "verified (key k1)"
    for words in (("--card-keys", "wrong.json"), ()):
        ran = shell.run("card", "get", "-a", "card.json", *words)
        assert ran.status == 0
        assert ran.fields["Signature"].startswith("unverifiable")
    (shell.work / "plain.json").write_text(json.dumps(agent.card))
    assert shell.run("card", "get", "-a", "plain.json").fields["Signature"] == "absent"
    missing = shell.run("card", "get", "-a", "card.json", "--card-keys", "nowhere.json")
    assert missing.status == 2


@pytest.mark.requirement("SKILL_001", "SKILL_002")
def test_there_is_one_skill_and_it_can_be_installed(shell: Shell) -> None:
    printed = shell.run("skill").out
    assert printed.startswith("---\nname: dragoman\n")
    assert "compatibility:" in printed
    assert len(printed.split()) < 400  # it is always loaded, so it is short
    for word in ("MUST", "SHALL", "A2ACLI_SEND"):
        assert word not in printed
    installed = shell.run("skill", "--install", "project")
    assert installed.status == 0
    skills = [path.relative_to(shell.work) for path in shell.work.rglob("SKILL.md")]
    assert skills == [Path(".agents/skills/dragoman/SKILL.md")]
    assert (shell.work / ".agents/skills/dragoman/references/examples.md").is_file()
    assert list(shell.home.rglob("*")) == []


def test_grpc_says_nothing_in_its_own_words(shell: Shell, demo: str) -> None:
    """Its C++ writes to the process's stderr: of TLS that the other side does not speak, for example."""
    shell.environment.pop("GRPC_VERBOSITY", None)
    process = shell.start("send", "-a", demo.replace("http", "grpcs"), "hi")
    try:
        _, told = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert (process.returncode, told.count("\n")) == (3, 1)
    assert told.startswith("dragoman: A2ACLI_ERR_UNREACHABLE: grpcs://")
