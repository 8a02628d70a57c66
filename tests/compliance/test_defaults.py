"""The six defaults and the eight error codes, each shown by a live agent."""

import json
import re
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.a2a.command import Ran, Shell
from tests.client.proxy import Fault
from tests.compliance.agents import KEY, Caller
from tests.compliance.evidence import DEMO, KEYED, PYTHON
from tests.compliance.proxied import proxied
from tests.compliance.test_credentials import tls_server
from tests.compliance.test_transport import read_card, spoken, write_card

requirement = pytest.mark.requirement
is_default = requirement("DEFAULT_001")

SHOWN = {
    "transport_server_preference_order": "[default: the card's order]",
    "task_completion_wait": "[default: wait]",
    "output_text": "[default: text]",
    "detail_level_concise": "[default: concise]",
    "protocol_version_highest_mutual": "[default: the highest that both speak, never below 1.0]",
    "transport_security_tls_on": "[default: verified]",
}


def row(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("default", [name])


@is_default
@row("transport_server_preference_order")
def test_the_transport_is_the_cards_first(caller: Caller, default: str) -> None:
    assert_shown(caller.shell, default)
    current = [each for each in read_card(caller)["supportedInterfaces"] if each["protocolVersion"] == "1.0"]
    assert spoken(caller.send("echo", "--debug").err)[1] == current[0]["protocolBinding"]
    other = current[1]["protocolBinding"]
    assert other != current[0]["protocolBinding"]
    assert spoken(caller.send("echo", "--transport", other, "--debug").err)[1] == other


@is_default
@row("task_completion_wait")
def test_a_task_is_waited_for(caller: Caller, default: str) -> None:
    assert_shown(caller.shell, default)
    assert caller.send("count").fields["State"] == "TASK_STATE_COMPLETED"
    begun = caller.send("slow", "--async").fields
    assert begun["State"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    caller.task("cancel", begun["Task"], what="slow")
    words = ("send", caller.live.text("count"), "--wait", *caller.to("count"))
    assert caller.shell.run(*words, A2ACLI_ASYNC="true").fields["State"] == "TASK_STATE_COMPLETED"


@is_default
@row("output_text")
def test_the_output_is_text(caller: Caller, default: str) -> None:
    assert_shown(caller.shell, default)
    assert caller.send("echo").out.startswith("Task: ")
    assert list(caller.send("echo", "-o", "json").json) == ["task"]
    words = ("send", caller.live.text("echo"), "-o", "text", *caller.to("echo"))
    assert caller.shell.run(*words, A2ACLI_OUTPUT="json").out.startswith("Task: ")


@is_default
@row("detail_level_concise")
def test_the_detail_is_concise(caller: Caller, default: str) -> None:
    assert_shown(caller.shell, default)
    task = caller.send("echo").fields["Task"]
    assert "Sent:" not in caller.task("get", task, what="echo").out
    assert "Sent:\nhello\n" in caller.task("get", task, "--verbose", what="echo").out


@is_default
@row("protocol_version_highest_mutual")
def test_the_version_is_the_highest_of_both(caller: Caller, default: str) -> None:
    assert_shown(caller.shell, default)
    card = read_card(caller)
    old_first = sorted(card["supportedInterfaces"], key=lambda each: str(each["protocolVersion"]))
    agent = write_card(caller, {**card, "supportedInterfaces": old_first})
    ran = caller.shell.run("send", "hello", "--debug", *agent)
    assert (ran.status, spoken(ran.err)[0]) == (0, "1.0"), ran.err
    asked = caller.shell.run("send", "hello", "--a2a-version", "0.3", "--debug", *agent)
    assert (asked.status, spoken(asked.err)[0]) == (0, "0.3"), asked.err


@requirement("DEFAULT_001", on="tls-server")
@row("transport_security_tls_on")
def test_certificates_are_verified(shell: Shell, tmp_path: Path, default: str) -> None:
    assert_shown(shell, default)
    with tls_server(tmp_path, asks_certificates=False) as (url, _):
        assert shell.run("send", "hello", "-a", url, A2ACLI_API_KEY=KEY).status == 3
        ran = shell.run("send", "hello", "-a", url, "--insecure", A2ACLI_API_KEY=KEY)
    assert (ran.status, "INSECURE: TLS certificates are not verified" in ran.err) == (0, True)


def assert_shown(shell: Shell, default: str) -> None:
    assert SHOWN[default] in " ".join(shell.run("send", "--help").out.split())


CODES = {
    "USAGE": 2,
    "CARD_NOT_FOUND": 3,
    "CARD_INVALID": 1,
    "UNREACHABLE": 3,
    "CREDENTIALS_MISSING": 4,
    "AUTH_FAILED": 4,
    "TIMEOUT": 5,
    "INTERNAL": 1,
}
"""The codes of Appendix E and their exit statuses."""


@requirement("OUT_004", "EXIT_001")
@pytest.mark.parametrize("live", [KEYED], indirect=True)
@pytest.mark.parametrize("error_code", [f"A2ACLI_ERR_{symbol}" for symbol in CODES])
def test_each_failure_of_the_tool_has_its_code_and_status(caller: Caller, error_code: str) -> None:
    symbol = error_code.removeprefix("A2ACLI_ERR_")
    ran = fail(caller, symbol)
    assert (ran.status, ran.json["error"]["code"]) == (CODES[symbol], error_code)
    assert set(ran.json["error"]) == {"code", "message", "hint", "a2aCode"}


def fail(caller: Caller, symbol: str) -> Ran:
    """Make a command fail in a certain way."""
    shell, url = caller.shell, caller.live.url
    send = ("send", "hello", "-o", "json", "-a")
    match symbol:
        case "USAGE":
            return shell.run(*send, url, "--nonsense")
        case "CARD_NOT_FOUND":
            return shell.run(*send, f"{url}/nowhere")
        case "CARD_INVALID":
            return shell.run(*send, f"{url}/health")
        case "UNREACHABLE":
            return shell.run(*send, "http://127.0.0.1:9")  # nobody listens there (RFC 863)
        case "CREDENTIALS_MISSING":
            del shell.environment["A2ACLI_API_KEY"]
            return shell.run(*send, url)
        case "AUTH_FAILED":
            return shell.run(*send, url, "--api-key", "wr0ng-secret")
        case "TIMEOUT":
            return caller.send("slow", "--timeout", "1s", "-o", "json")
    with proxied(url) as proxy:
        proxy.choose = lambda asked: (
            Fault(refuses=b"HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            if asked.startswith(b"POST")
            else None
        )
        return shell.run(*send, proxy.url)


@requirement("CARD_GET_004")
@pytest.mark.parametrize("live", [DEMO, KEYED], indirect=True)
def test_a_signature_is_verified_by_the_keys_of_the_agent(caller: Caller) -> None:
    with urlopen(f"{caller.live.url}/.well-known/jwks.json", timeout=60) as answer:
        (caller.shell.work / "keys.json").write_bytes(answer.read())
    keys = ("--card-keys", "keys.json")
    ran = caller.shell.run("card", "get", *keys, *caller.to("echo"))
    assert (ran.status, ran.fields["Signature"][:9]) == (0, "verified "), ran.err
    changed = write_card(caller, {**read_card(caller), "description": "somebody else"})
    for words in ((*keys, *changed), caller.to("echo")):  # a card that was changed, and keys that nobody named
        ran = caller.shell.run("card", "get", *words)
        assert (ran.status, ran.fields["Signature"][:12]) == (0, "unverifiable")


@requirement("CARD_GET_004")
@pytest.mark.parametrize("live", [pytest.param(PYTHON, marks=pytest.mark.peer)], indirect=True)
def test_a_card_without_a_signature_is_no_failure(caller: Caller) -> None:
    ran = caller.shell.run("card", "get", *caller.to("echo"))
    assert (ran.status, ran.fields["Signature"]) == (0, "absent")


@requirement("CARD_GET_005")
def test_an_entry_of_a_catalog_stands_for_its_card(caller: Caller) -> None:
    url = f"{caller.live.reference('echo')}/.well-known/agent-card.json"
    other = {"displayName": "Other", "type": "application/a2a-agent-card+json", "url": "http://127.0.0.1:9/card"}
    entries = [other, {**other, "displayName": "Wanted", "url": url}]
    (caller.shell.work / "catalog.json").write_text(json.dumps({"specVersion": "1.0", "entries": entries}))
    ran = caller.shell.run("send", caller.live.text("echo"), "-a", "catalog.json#Wanted")
    assert (ran.status, ran.fields["State"]) == (0, "TASK_STATE_COMPLETED"), ran.err


@requirement("CHAT_001")
def test_a_conversation_carries_task_and_context(caller: Caller) -> None:
    ran = caller.shell.run("chat", *caller.to("ask"), stdin=f"{caller.live.text('ask')}\nOslo\n")
    assert ran.status == 0, ran.err
    tasks, contexts = (re.findall(rf"^{label}: (\S+)$", ran.out, re.MULTILINE) for label in ("Task", "Context"))
    assert (len(set(tasks)), len(set(contexts))) == (1, 1), ran.out
    assert "TASK_STATE_INPUT_REQUIRED" in ran.out
    assert "\x1b" not in ran.out


@requirement("OUT_003")
def test_task_get_and_cancel_print_their_task_on_one_line(caller: Caller) -> None:
    task = caller.send("slow", "--async").fields["Task"]
    for command in ("get", "cancel"):
        ran = caller.task(command, task, "-o", "json", "--stream", what="slow")
        assert (ran.status, [line["id"] for line in ran.lines]) == (0, [task]), ran.err
    missing = caller.task("subscribe", "no-such-task", "-o", "json", "--stream", what="slow")
    assert [list(line) for line in missing.lines] == [["error"]]
