"""`dragoman send`: messages to agents, and what comes of them."""

import base64
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman import Agent, Context
from dragoman.cli.a2a.commands.send import read_parts
from dragoman.cli.a2a.settings import SettingsError
from tests.cli.a2a.command import DEADLINE_S, Shell
from tests.cli.admin.site import dragoman, site
from tests.client.proxy import Fault, before
from tests.compliance.proxied import proxied


def test_a_task_is_waited_for_and_rendered_as_fields_and_blocks(shell: Shell, demo: str) -> None:
    ran = shell.run("send", "-a", demo, "hello\nthere")
    assert ran.status == 0
    head, _, rest = ran.out.partition("State:")
    assert [line.partition(": ")[0] for line in head.splitlines()] == ["Task", "Context"]
    assert rest.startswith(" TASK_STATE_COMPLETED\nArtifact: result\nText:\nhello\nthere\n\nNext: dragoman send ")
    assert ran.fields["Task"] in ran.err  # printed before the wait, so that an interrupt does not lose it


def test_json_is_one_document_of_the_protocols_own_type(shell: Shell, demo: str) -> None:
    ran = shell.run("send", "-a", demo, "hello", "-o", "json")
    assert ran.status == 0
    assert list(ran.json) == ["task"]
    assert ran.json["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert ran.json["task"]["artifacts"][0]["parts"] == [{"text": "hello"}]


def test_a_stream_is_json_lines_that_end_with_the_final_state(shell: Shell, demo: str) -> None:
    ran = shell.run("send", "-a", f"{demo}/agents/counter", "3 every 0.01", "--stream", "-o", "json")
    assert ran.status == 0
    kinds = [next(iter(line)) for line in ran.lines]
    assert kinds[0] == "task"
    assert kinds.count("artifactUpdate") == 3
    assert ran.lines[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_stream_of_text_restates_ids_and_state_at_its_end(shell: Shell, demo: str) -> None:
    ran = shell.run("send", "-a", f"{demo}/agents/counter", "2 every 0.01", "--stream")
    labels = [line.partition(":")[0] for line in ran.out.splitlines()[-4:]]
    assert labels == ["Task", "Context", "State", "Next"]


DOWN = Fault(refuses=b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def test_a_stream_continues_when_an_agent_comes_back_later(
    shell: Shell, demo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.cli.a2a.session.MEND_S", 0.01)
    agent = f"{demo}/agents/counter"
    card = shell.run("card", "get", "-a", agent, "-o", "json").json
    jsonrpc = next(each for each in card["supportedInterfaces"] if each["protocolBinding"] == "JSONRPC")
    with proxied(demo) as proxy:
        interface = {**jsonrpc, "url": jsonrpc["url"].replace(demo, proxy.url)}
        (shell.work / "card.json").write_text(json.dumps({**card, "supportedInterfaces": [interface]}))
        away = iter(range(5))
        proxy.choose = lambda asked: (
            Fault(cut=1600) if b'"SendStreamingMessage"' in asked else None if next(away, None) is None else DOWN
        )
        words = ("20 every 0.05", "--stream", "-o", "json", "--poll-interval", "10ms", "--timeout", "30s")
        ran = shell.run("send", "-a", "./card.json", *words)
    assert ran.status == 0, ran.out[-1500:] + ran.err
    assert "its stream continues when it does" in ran.err
    chunks = [line["artifactUpdate"]["artifact"]["parts"] for line in ran.lines if "artifactUpdate" in line]
    said = "".join(part["text"] for parts in chunks for part in parts)
    assert list(map(int, said.split())) == list(range(1, 21))


async def test_a_question_asked_while_the_agent_was_away_is_told_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.cli.a2a.session.MEND_S", 0.01)
    asker = Agent("asker")

    @asker.skill
    async def ask(ctx: Context) -> AsyncIterator[str]:
        for number in range(5):
            yield str(number)
        await ctx.ask("Which day?")

    def lose(frame: bytes) -> list[bytes]:
        """Pass on two numbers, and break when the agent has asked."""
        if b"INPUT_REQUIRED" in frame:
            raise ConnectionError
        return [] if b"artifactUpdate" in frame and next(passed, None) is None else [frame]

    passed, away = iter(range(2)), iter(range(5))
    async with site(tmp_path, asker) as here, before(here.url) as proxy:
        proxy.choose = lambda asked: (
            Fault(frames=lose) if b"SendStreamingMessage" in asked else None if next(away, None) is None else DOWN
        )
        agent = ("-a", f"{proxy.url}/agents/asker", "--dialect", "1.0")
        ran = await dragoman(tmp_path, "send", *agent, "go", "--stream", "-o", "json", "--poll-interval", "10ms")
    assert "its stream continues when it does" in ran.err
    chunks = [line["artifactUpdate"]["artifact"]["parts"][0]["text"] for line in ran.lines if "artifactUpdate" in line]
    assert chunks == list("01234")
    assert ran.lines[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


def test_a_message_without_a_task_ends_well_in_every_form(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/greeter"
    assert "Message:\nHello, Ada!\n\n" in shell.run("send", "-a", agent, "Ada").out
    assert shell.run("send", "-a", agent, "Ada", "-o", "json").json["message"]["parts"] == [{"text": "Hello, Ada!"}]
    streamed = shell.run("send", "-a", agent, "Ada", "-o", "json", "--stream")
    assert streamed.status == 0
    assert [list(line) for line in streamed.lines] == [["message"]]


def test_parts_keep_the_order_of_their_flags(shell: Shell, demo: str) -> None:
    (shell.work / "report.bin").write_bytes(b"\x00\x01")
    (shell.work / "facts.json").write_text('{"a": [1]}')
    words = ("--data", "-", "--text", "one", "--file", "report.bin", "--media-type", "application/pdf", "--text", "two")
    more = ("--file", "https://example.org/picture.png?x=1", "--data", "facts.json")
    ran = shell.run("send", "-a", demo, *words, *more, "-o", "json", stdin='{"first": true}')
    sent = ran.json["task"]["history"][0]["parts"]
    assert [sorted(part)[0] for part in sent] == ["data", "text", "filename", "text", "filename", "data"]
    assert sent[0] == {"data": {"first": True}, "mediaType": "application/json"}
    assert sent[2] == {
        "raw": base64.b64encode(b"\x00\x01").decode(),
        "filename": "report.bin",
        "mediaType": "application/pdf",
    }
    assert sent[4] == {
        "url": "https://example.org/picture.png?x=1",
        "filename": "picture.png",
        "mediaType": "image/png",
    }


@pytest.mark.parametrize(
    ("words", "stdin", "texts"),
    [
        (("-",), "line one\nline two\n", ["line one\nline two"]),
        ((), "piped\n", ["piped"]),
        (("--text", "Review:", "--text", "-"), "a\n\n", ["Review:", "a\n"]),
        (("given",), "not read", ["given"]),
    ],
)
def test_a_text_comes_from_stdin(shell: Shell, demo: str, words: tuple[str, ...], stdin: str, texts: list[str]) -> None:
    ran = shell.run("send", "-a", f"{demo}/agents/echo", *words, "-o", "json", stdin=stdin)
    assert [part["text"] for part in ran.json["task"]["history"][0]["parts"]] == texts


@pytest.mark.parametrize(
    ("words", "stdin", "says"),
    [
        ((), "", "the message is empty"),
        (("--text", "-", "--data", "-"), "{}", "stdin can be read only once: use - for one part"),
    ],
)
def test_stdin_that_makes_no_message_is_said(
    shell: Shell, demo: str, words: tuple[str, ...], stdin: str, says: str
) -> None:
    ran = shell.run("send", "-a", f"{demo}/agents/echo", *words, stdin=stdin)
    assert (ran.status, ran.out) == (2, "")
    assert says in ran.err


def test_stdin_that_is_closed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SettingsError, match="stdin is closed"):
        list(read_parts([("text", "-")]))


def test_async_returns_the_ids_at_once(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/counter"
    ran = shell.run("send", "-a", agent, "600", "--async", "-o", "json")
    assert ran.status == 0
    task = ran.json["task"]
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    assert task["id"]
    assert task["contextId"]
    canceled = shell.run("task", "cancel", "-a", agent, task["id"])
    assert canceled.fields["State"] == "TASK_STATE_CANCELED"


def test_a_question_is_answered_by_the_command_that_is_printed(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/booking"
    asked = shell.run("send", "-a", agent, "Book me a trip")
    assert asked.status == 0
    assert "waits for an answer (TASK_STATE_INPUT_REQUIRED)" in asked.err
    assert "Message:\nFrom where?\n\n" in asked.out
    task = asked.fields["Task"]
    assert asked.fields["Next"] == f'dragoman send --agent-card {agent} --task-id {task} --text "…"'
    again = shell.run("send", "-a", agent, "--task-id", task, "--text", "Oslo")
    assert "To where?" in again.out
    done = shell.run("send", "-a", agent, "--task-id", task, "--context-id", asked.fields["Context"], "--text", "Rome")
    assert (done.status, done.fields["State"]) == (0, "TASK_STATE_COMPLETED")
    assert "Booked: from Oslo to Rome" in done.out


def test_a_task_that_is_refused_is_not_replaced_by_a_new_one(shell: Shell, demo: str) -> None:
    before = shell.run("task", "list", "-a", demo, "-o", "json").json["totalSize"]
    ran = shell.run("send", "-a", demo, "--task-id", "no-such-task", "hello", "-o", "json")
    assert ran.status == 1
    assert ran.json["error"]["code"] == "TaskNotFoundError"
    assert ran.json["error"]["a2aCode"] == -32001
    assert "--debug" in ran.json["error"]["hint"]
    assert shell.run("task", "list", "-a", demo, "-o", "json").json["totalSize"] == before


def test_a_context_holds_several_tasks(shell: Shell, demo: str) -> None:
    first = shell.run("send", "-a", demo, "one").fields
    second = shell.run("send", "-a", demo, "two", "--context-id", first["Context"]).fields
    assert second["Context"] == first["Context"]
    assert second["Task"] != first["Task"]
    mismatched = shell.run("send", "-a", demo, "x", "--task-id", second["Task"], "--context-id", "another")
    assert mismatched.status == 1


@pytest.mark.parametrize(
    ("agent", "state", "words"),
    [
        ("breaker", "TASK_STATE_FAILED", "the task failed"),
        ("refuser", "TASK_STATE_REJECTED", "the agent rejected the task"),
        ("login", "TASK_STATE_AUTH_REQUIRED", "the agent waits until its caller has authenticated"),
    ],
)
@pytest.mark.requirement("EXIT_002")
def test_the_status_tells_what_the_command_did_and_not_what_the_agent_made_of_it(
    shell: Shell, demo: str, agent: str, state: str, words: str
) -> None:
    ran = shell.run("send", "-a", f"{demo}/agents/{agent}", "hello")
    assert (ran.status, ran.fields["State"]) == (0, state)
    assert f"{words} ({state})" in ran.err


@pytest.mark.parametrize(
    ("agent", "status"), [("echo", 0), ("breaker", 1), ("refuser", 1), ("login", 1), ("nowhere", 1)]
)
def test_a_script_learns_from_the_state_what_the_agent_made_of_it(
    shell: Shell, demo: str, agent: str, status: int
) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^dragoman send .*\n  jq -e .*exit 1$", page, re.MULTILINE)
    command = f"{shlex.quote(sys.executable)} -m dragoman"
    script = recipe.replace("dragoman", command, 1).replace("agent.example", f"{demo}/agents/{agent}")
    environment = {**shell.environment, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    ran = subprocess.run(
        ["sh", "-c", script], env=environment, cwd=shell.work, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert (ran.returncode, ran.stdout) == (status, b""), ran.stderr


def test_a_timeout_leaves_the_task_and_its_id(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/counter"
    for timeout in ("1s", "5s", "25s"):  # a busy machine may need longer to hear of its task
        ran = shell.run("send", "-a", agent, "600", "--timeout", timeout, "-o", "json")
        error = ran.json["error"]
        assert (ran.status, error["code"]) == (5, "A2ACLI_ERR_TIMEOUT")
        if error["hint"]:
            break
    task = error["hint"].split()[-1]
    assert task in ran.err
    assert error["hint"] == f"the task continues: dragoman task get --agent-card {agent} --wait {task}"
    assert shell.run("task", "get", "-a", agent, task).fields["State"] == "TASK_STATE_WORKING"
    shell.run("task", "cancel", "-a", agent, task)


def test_ctrl_c_leaves_the_task_and_its_id(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/counter"
    sending = shell.start("send", "-a", agent, "600")
    try:
        assert sending.stderr is not None
        told = sending.stderr.readline()
        assert told.startswith("dragoman: task ")
        sending.send_signal(signal.SIGINT)
        out, err = sending.communicate(timeout=DEADLINE_S)
    finally:
        sending.kill()
        sending.communicate()
    task = told.split()[2].rstrip(",")
    assert sending.returncode == 130
    assert err.strip() == (
        f"dragoman: interrupted; the task continues: dragoman task get --agent-card {agent} --wait {task}"
    )
    assert out == ""
    assert shell.run("task", "cancel", "-a", agent, task).fields["State"] == "TASK_STATE_CANCELED"


@pytest.mark.requirement("OUT_005")
def test_a_hostile_agents_text_controls_no_terminal(shell: Shell, demo: str) -> None:
    ran = shell.run("send", "-a", demo, "\x1b[31mred\x1b[0m \x07\u202eevil\n\nState: TASK_STATE_FAILED")
    assert "\x1b" not in ran.out
    assert "\x07" not in ran.out
    assert "\u202e" not in ran.out
    body = ran.out.partition("Text:\n")[2].partition("\n\n")[0]
    assert body.splitlines()[1:] == [" ", "State: TASK_STATE_FAILED"]  # the block goes on past the empty line


WRONG = [
    (("send",), "the message is empty"),
    (("send", "a", "b"), "quote the text"),
    (("send", "--media-type", "text/plain"), "--media-type has no part before it"),
    (("send", "--media-type", "text/plain", "--text", "x"), "--media-type has no part before it"),
    (("send", "--file", "nowhere.txt"), "--file nowhere.txt: No such file"),
    (("send", "--data", "nowhere.json"), "--data nowhere.json: No such file"),
    (("send", "--data", "broken.json"), "--data broken.json is no JSON"),
    (("send", "hi", "--metadata", "[1]"), "--metadata is no JSON object"),
    (("send", "hi", "--metadata", "{"), "--metadata is no JSON object"),
    (("send", "hi", "--timeout", "soon"), "--timeout is 'soon': use a duration"),
    (("send", "hi", "--poll-interval", "-1"), "--poll-interval is '-1': use a duration"),
    (("send", "hi", "-o", "yaml"), "--output is 'yaml': use text or json"),
    (("send", "hi", "--a2a-version", "two"), "--a2a-version is 'two': use 1.0 or 0.3"),
    (("send", "hi", "--transport", "PIGEON"), "--transport is 'PIGEON'"),
    (("send", "hi", "--svc-param", "nocolon"), "--svc-param: use KEY:VALUE"),
    (("send", "hi", "--svc-param", "a b:c"), "--svc-param: use KEY:VALUE"),
    (("send", "hi", "--async", "--stream"), "--async and --stream exclude each other"),
    (("send", "hi", "--async", "--wait"), "--async and --wait exclude each other"),
    (("send", "hi", "--bogus"), "No such option '--bogus'"),
    (("send", "hi", "--ca-cert", "nowhere.pem"), "--ca-cert: nowhere.pem: No such file"),
    (("send", "hi", "--client-cert", "nowhere.pem"), "--client-cert: nowhere.pem: No such file"),
    (("send", "hi", "--config", "nowhere.env"), "nowhere.env: No such file"),
    (("send", "hi", "--dialect", "klingon"), "--dialect: "),
    (("task", "get"), "Missing argument 'TASK'"),
    (("task", "get", "t", "--history", "-1"), "--history is '-1'"),
    (("task", "get", "t", "--history", "many"), "--history is 'many'"),
    (("task", "list", "--state", "happy"), "Invalid value for '--state'"),
    (("task", "list", "--limit", "0"), "Invalid value for '--limit'"),
    (("task", "list", "--limit", "101"), "Invalid value for '--limit'"),
    (("task", "subscribe"), "Missing argument 'TASK'"),
    (("task", "download"), "Missing argument 'TASK'"),
    (("task", "push-config", "create", "t"), "Missing option '--url'"),
    (("task", "push-config", "get", "t"), "Missing argument 'ID'"),
    (("card", "get", "--agent-card", "ftp://example.org"), "ftp://example.org is no URL of an agent"),
    (("card", "get", "--agent-card", "file://elsewhere/card.json"), "names another machine"),
    (("card", "get", "--agent-card", " "), "--agent-card is empty"),
    (("card", "get", "--agent-card", "http://user:secret@localhost/"), "must not hold a user or password"),
    (("completion", "tcsh"), "'tcsh' is not one of"),
    (("help", "nonsense"), "No such command 'nonsense'"),
    (("config", "show", "--output", "xml"), "--output is 'xml': use text or json"),
]


@pytest.mark.parametrize(("words", "says"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
@pytest.mark.requirement("EXIT_001")
def test_wrong_input_gets_one_line_with_the_fix_and_status_2(
    shell: Shell, demo: str, words: tuple[str, ...], says: str
) -> None:
    (shell.work / "broken.json").write_text("{")
    agent = () if "--agent-card" in words or words[0] in ("completion", "help") else ("-a", f"{demo}/agents/echo")
    ran = shell.run(*words, *agent)
    assert ran.status == 2
    assert says in ran.err
    assert ran.out == ""
    assert len(ran.err.strip().splitlines()) == 1
    assert ".." not in ran.err


def test_no_agent_is_named(shell: Shell) -> None:
    ran = shell.run("send", "hello", "-o", "json")
    assert ran.status == 2
    assert ran.json["error"] == {
        "code": "A2ACLI_ERR_USAGE",
        "message": "no agent is named",
        "hint": "give --agent-card, or set A2ACLI_AGENT_CARD: `-a localhost:7870` is a server on this machine",
        "a2aCode": None,
    }


@pytest.mark.requirement("OUT_004")
def test_a_usage_error_keeps_to_json(shell: Shell) -> None:
    for words in (("-o", "json"), ("--output=json",)):
        ran = shell.run("send", "hi", *words, "--nonsense")
        assert (ran.status, ran.json["error"]["code"]) == (2, "A2ACLI_ERR_USAGE")
    assert shell.run("send", "--nonsense", A2ACLI_OUTPUT="json").json["error"]["code"] == "A2ACLI_ERR_USAGE"
    for words in (("nonsense", "-o", "json"), ("-o", "json", "nonsense"), ("task", "nonsense", "--output=json")):
        ran = shell.run(*words)
        assert (ran.status, ran.json["error"]["code"]) == (2, "A2ACLI_ERR_USAGE")
        assert ran.err == ""


def test_the_message_of_the_manual_reaches_every_binding_and_version(shell: Shell, demo: str) -> None:
    for words in (("--transport", "HTTP+JSON"), ("--transport", "JSONRPC"), ("--a2a-version", "0.3")):
        ran = shell.run("send", "-a", demo, "hello", "-o", "json", *words)
        assert ran.json["task"]["artifacts"][0]["parts"][0]["text"] == "hello"
    unknown = shell.run("send", "-a", demo, "hello", "--transport", "GRPC", "--transport", "HTTP+JSON", "--debug")
    assert unknown.status == 0
    assert "over HTTP+JSON" in unknown.err  # what the card lacks is skipped


def test_an_agent_of_an_old_version_alone_is_refused_unless_it_is_asked_for(shell: Shell, demo: str) -> None:
    card = shell.run("card", "get", "-a", demo, "-o", "json").json
    card["supportedInterfaces"] = [each for each in card["supportedInterfaces"] if each["protocolVersion"] == "0.3"]
    path = Path(shell.work / "old.json")
    path.write_text(json.dumps(card))
    refused = shell.run("send", "-a", "./old.json", "hello", "-o", "json")
    assert refused.status == 1
    assert refused.json["error"]["code"] == "VersionNotSupportedError"
    assert "--a2a-version 0.3" in refused.json["error"]["hint"]
    assert shell.run("send", "-a", "./old.json", "hello", "--a2a-version", "0.3").status == 0
