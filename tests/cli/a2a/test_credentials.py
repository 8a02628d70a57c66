"""Credentials of client commands: they go where the card wants them, and nowhere else."""

from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.cli.a2a.command import Shell, demo_agents_with, demo_server
from tests.cli.a2a.peer import FarAgent


def api_key(where: str, name: str) -> dict[str, Any]:
    return {"key": {"apiKeySecurityScheme": {"location": where, "name": name}}}


BEARER = {"token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}


@pytest.mark.parametrize("given", ["flag", "environment"])
@pytest.mark.requirement("AUTH_001", "AUTH_002", "AUTH_004")
def test_an_api_key_goes_where_the_card_wants_it(shell: Shell, agent: FarAgent, given: str) -> None:
    words, environment = (("--api-key", "s3cret"), {}) if given == "flag" else ((), {"A2ACLI_API_KEY": "s3cret"})
    for where, name in (("header", "X-Agent-Key"), ("cookie", "session"), ("query", "key")):
        agent.schemes, agent.asked = api_key(where, name), []
        ran = shell.run("send", "-a", agent.url, "hello", *words, **environment)
        assert ran.status == 0, ran.err
        for asked in agent.calls:
            line, headers = asked.line, asked.headers
            assert (headers.get("x-agent-key") == "s3cret") is (where == "header")
            assert (headers.get("cookie") == "session=s3cret") is (where == "cookie")
            assert line.startswith("POST /rpc?key=s3cret") is (where == "query")
        assert "s3cret" not in str(agent.card_requests)
        assert "s3cret" not in ran.out + ran.err


@pytest.mark.requirement("AUTH_001", "AUTH_008")
def test_a_bearer_token_goes_to_an_agent_that_declares_one(shell: Shell, agent: FarAgent) -> None:
    agent.schemes = BEARER
    assert shell.run("send", "-a", agent.url, "hello", "--bearer", "s3cret").status == 0
    assert all(asked.headers["authorization"] == "Bearer s3cret" for asked in agent.calls)
    assert all("authorization" not in asked.headers for asked in agent.card_requests)


@pytest.mark.requirement("AUTH_008")
def test_a_credential_that_the_card_does_not_declare_is_not_sent(shell: Shell, agent: FarAgent) -> None:
    ran = shell.run("send", "-a", agent.url, "hello", "--bearer", "s3cret", "--api-key", "k3y-secret")
    assert ran.status == 0
    assert "--bearer is not sent: the agent's card declares no scheme" in ran.err
    assert "--api-key is not sent: the agent's card declares no scheme" in ran.err
    assert "s3cret" not in str(agent.asked)
    assert "k3y-secret" not in str(agent.asked)


def test_a_stranger_whom_the_card_names_gets_no_credential(shell: Shell, agent: FarAgent, demo: str) -> None:
    agent.schemes, agent.interface = BEARER, {"url": demo}  # another origin, on a private address
    ran = shell.run("send", "-a", agent.url, "hello", "--bearer", "s3cret")
    assert ran.status == 3
    assert "may not be called from here" in ran.err
    trusted = shell.run("send", "-a", agent.url, "hello", "--bearer", "s3cret", "--trust-origin", demo)
    assert trusted.status == 0


def test_a_found_file_cannot_send_the_users_token_to_its_own_agent(shell: Shell, agent: FarAgent) -> None:
    agent.schemes = BEARER
    (shell.work / ".env").write_text(f"A2ACLI_AGENT_CARD={agent.url}\n")
    given = {"A2ACLI_BEARER": "s3cret", "A2ACLI_SVC_PARAM": "x-team:param-s3cret"}
    ran = shell.run("send", "hello", **given)
    assert ran.status == 0
    assert ran.err.count("which was only found") == 2
    assert "s3cret" not in str(agent.asked)
    named = shell.run("send", "hello", "--config", ".env", **given)
    assert named.status == 0
    assert [each.headers["authorization"] for each in agent.calls[-1:]] == ["Bearer s3cret"]
    assert [each.headers["x-team"] for each in agent.calls[-1:]] == ["param-s3cret"]


def test_a_global_parameter_goes_to_the_agent_of_its_file_alone(shell: Shell, agent: FarAgent) -> None:
    general = shell.home / ".config" / "a2a-cli" / ".env"
    general.parent.mkdir(parents=True)
    for line, sent in (("", False), ("A2ACLI_AGENT_CARD=https://mine.example\n", False), (agent.url, True)):
        named = f"A2ACLI_AGENT_CARD={line}\n" if sent else line
        general.write_text(f"{named}A2ACLI_SVC_PARAM=x-team:param-s3cret\n")
        general.chmod(0o600)
        agent.asked.clear()
        ran = shell.run("send", "hello", "-a", agent.url)
        assert ran.status == 0, ran.err
        assert ("param-s3cret" in str(agent.calls)) is sent
        assert ("A2ACLI_SVC_PARAM" in ran.err) is not sent


@pytest.mark.parametrize(("words", "code"), [((), "CREDENTIALS_MISSING"), (("--bearer", "wrong"), "AUTH_FAILED")])
def test_a_refusal_says_whether_credentials_were_missing_or_wrong(
    shell: Shell, agent: FarAgent, words: tuple[str, ...], code: str
) -> None:
    agent.schemes, agent.status = BEARER, 401
    ran = shell.run("send", "-a", agent.url, "hello", "-o", "json", *words)
    assert ran.status == 4
    assert ran.json["error"]["code"] == f"A2ACLI_ERR_{code}"


def test_a_key_that_was_not_sent_is_not_asked_for_again(shell: Shell, agent: FarAgent) -> None:
    agent.status = 401
    ran = shell.run("send", "-a", f"{agent.url}/far", "hello", "--api-key", "s3cret")
    assert ran.status == 4
    assert "--api-key is not sent: the agent's card declares no scheme that takes an API key" in ran.err
    assert "A2ACLI_ERR_CREDENTIALS_MISSING" in ran.err
    assert "your credentials were not sent, for the reason above; --svc-param NAME:VALUE sends any header" in ran.err
    assert "give --api-key" not in ran.err


def test_http_to_a_server_with_tls_names_https(shell: Shell, tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue()
    with demo_agents_with(f"tls_cert={str(issued.cert)!r}, tls_key={str(issued.key)!r}") as url:
        for reference in (url, url.removeprefix("http://"), f"{url}/agents/echo"):
            for words in (("send", "hello"), ("card", "get"), ("doctor",)):
                ran = shell.run(*words, "-a", reference, "-o", "json")
                assert (ran.status, ran.json["error"]["code"]) == (3, "A2ACLI_ERR_UNREACHABLE"), ran.err
                assert ran.json["error"]["message"].endswith(" speaks TLS: use https://")
                assert ran.json["error"]["hint"].startswith("give --agent-card https://127.0.0.1:")


def test_the_demo_server_takes_its_key_from_a_flag_a_variable_or_a_file(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    for flags, environment in (
        (("--api-key", "s3cret"), {}),
        (("--api-key-file", str(tmp_path / "key")), {}),
        ((), {"DRAGOMAN_API_KEY": "s3cret"}),
        ((), {"DRAGOMAN_API_KEY_FILE": str(tmp_path / "key")}),
    ):
        with demo_server(*flags, environment=environment) as url:
            assert shell.run("send", "-a", url, "hello").status == 4
            assert shell.run("send", "-a", url, "hello", A2ACLI_API_KEY="s3cret").status == 0
    ran = shell.run("demo-server", "--api-key", "x", DRAGOMAN_API_KEY_FILE="y")
    assert (ran.status, "exclude each other" in ran.err) == (2, True)
    ran = shell.run("demo-server", "--api-key-file", "nowhere")
    assert (ran.status, "--api-key-file 'nowhere' cannot be read: No such file" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("send", "--api-key"),
        ("send", "--bearer"),
        ("demo-server", "--api-key"),
        ("serve", "--api-key"),
        ("worker", "--key"),
        ("doctor", "--second-key"),
        ("auth login", "--client-secret"),
    ],
)
def test_help_says_that_others_see_a_secret_in_a_flag(shell: Shell, command: str, flag: str) -> None:
    whole = "--help-all" if command == "serve" else "--help"
    text = " ".join(shell.run(*command.split(), whole, COLUMNS="200").out.split())
    said = text.partition(f" {flag} ")[2][:400]
    assert "process table" in said
    assert "[A2ACLI_" in said or "[DRAGOMAN_" in said


@pytest.mark.requirement("AUTH_004", "OUT_007")
def test_the_wire_log_has_every_message_and_no_credential(shell: Shell, agent: FarAgent) -> None:
    agent.schemes = BEARER | api_key("query", "key")
    for words in (("--bearer", "s3cret"), ("--api-key", "s3cret")):
        more = ("--svc-param", "X-Team: param-s3cret", "--debug", "--verbose")
        ran = shell.run("send", "-a", agent.url, "hello", *words, *more)
        assert "SendMessage" in ran.err
        assert '"state": "TASK_STATE_COMPLETED"' in ran.err
        assert "s3cret" not in ran.out + ran.err
        assert agent.calls[-1].headers["x-team"] == "param-s3cret"
