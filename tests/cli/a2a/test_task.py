"""`dragoman task`, `card`, `completion` and `help` against the demo server."""

import json
import re
from typing import Any

import pytest

from dragoman.cli.a2a.reference import CARD_BYTES_MAX
from tests.cli.a2a.command import Shell
from tests.cli.a2a.peer import serve_http


@pytest.fixture
def task(shell: Shell, demo: str) -> str:
    """A task that has ended."""
    return str(shell.run("send", "-a", demo, "hello", "-o", "json").json["task"]["id"])


def test_a_task_is_read_with_its_artifacts_and_history(shell: Shell, demo: str, task: str) -> None:
    ran = shell.run("task", "get", "-a", demo, task)
    assert ran.status == 0
    assert ran.fields["State"] == "TASK_STATE_COMPLETED"
    assert "Text:\nhello\n" in ran.out
    document = shell.run("task", "get", "-a", demo, task, "-o", "json", "--history", "1").json
    assert (document["id"], len(document["history"])) == (task, 1)
    assert "history" not in shell.run("task", "get", "-a", demo, task, "-o", "json", "--history", "0").json


def test_verbose_shows_the_messages_too(shell: Shell, demo: str, task: str) -> None:
    ran = shell.run("task", "get", "-a", demo, task, "--verbose")
    assert "Sent:\nhello\n" in ran.out


def test_waiting_asks_until_the_task_ends(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/counter"
    begun = shell.run("send", "-a", agent, "3 every 0.2", "--async", "-o", "json").json["task"]["id"]
    ran = shell.run("task", "get", "-a", agent, begun, "--wait", "--poll-interval", "50ms", "--debug")
    assert ran.fields["State"] == "TASK_STATE_COMPLETED"
    waits = [float(found) for found in re.findall(r"asking again in ([0-9.]+) s", ran.err)]
    assert waits
    assert waits == sorted(waits)  # ever more rarely
    assert max(waits) <= 0.25


def test_a_wait_stops_at_a_question(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/booking"
    begun = shell.run("send", "-a", agent, "go", "--async", "-o", "json").json["task"]["id"]
    ran = shell.run("task", "get", "-a", agent, begun, "--wait", "--poll-interval", "50ms")
    assert ran.fields["State"] == "TASK_STATE_INPUT_REQUIRED"


@pytest.mark.parametrize("words", [("task", "subscribe"), ("watch",)])
def test_following_stops_at_a_question(shell: Shell, demo: str, words: tuple[str, ...]) -> None:
    agent = ("-a", f"{demo}/agents/booking")
    begun = shell.run("send", *agent, "go", "--async", "-o", "json").json["task"]["id"]
    ran = shell.run(*words, *agent, begun, "--timeout", "30s")
    assert (ran.status, ran.fields["State"]) == (0, "TASK_STATE_INPUT_REQUIRED")


def test_an_unknown_task_is_an_error_by_its_own_name(shell: Shell, demo: str) -> None:
    for command in ("get", "cancel", "subscribe", "download"):
        ran = shell.run("task", command, "-a", demo, "no-such-task", "-o", "json")
        assert (ran.status, ran.json["error"]["code"]) == (1, "TaskNotFoundError"), command


def test_a_task_that_has_ended_cannot_be_canceled(shell: Shell, demo: str, task: str) -> None:
    ran = shell.run("task", "cancel", "-a", demo, task, "-o", "json")
    assert (ran.status, ran.json["error"]["code"]) == (1, "TaskNotCancelableError")


def test_lists_are_filtered_and_paged_by_cursor(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/echo"
    context = shell.run("send", "-a", agent, "one").fields["Context"]
    for text in ("two", "three"):
        shell.run("send", "-a", agent, text, "--context-id", context)
    words = ("task", "list", "-a", agent, "--context-id", context, "--limit", "2")
    first = shell.run(*words, "-o", "json").json
    assert (len(first["tasks"]), first["totalSize"], first["pageSize"]) == (2, 3, 2)
    rest = shell.run(*words, "-o", "json", "--cursor", first["nextPageToken"]).json
    assert len(rest["tasks"]) == 1
    assert len({task["id"] for task in first["tasks"] + rest["tasks"]}) == 3
    assert shell.run(*words).fields["Next page"] == first["nextPageToken"]
    lines = shell.run(*words, "-o", "json", "--stream").lines
    assert [line["id"] for line in lines] == [task["id"] for task in first["tasks"]]
    assert shell.run(*words, "--state", "failed", "-o", "json").json["tasks"] == []


def test_a_subscription_ends_with_the_task(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/counter"
    begun = shell.run("send", "-a", agent, "5 every 0.1", "--async", "-o", "json").json["task"]["id"]
    ran = shell.run("task", "subscribe", "-a", agent, begun, "--stream", "-o", "json")
    assert next(iter(ran.lines[0])) == "task"  # so that no separate read is needed
    assert ran.lines[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    ended = shell.run("task", "subscribe", "-a", agent, begun, "-o", "json")
    assert (ended.status, ended.json["status"]["state"]) == (0, "TASK_STATE_COMPLETED")


@pytest.mark.requirement("DOWNLOAD_001")
def test_artifacts_are_saved_and_nothing_is_overwritten(shell: Shell, demo: str) -> None:
    agent = f"{demo}/agents/papers"
    (shell.work / "a.txt").write_bytes(b"\x00binary")
    words = ("--file", "a.txt", "--file", "../work/a.txt")
    made = shell.run("send", "-a", agent, "look", *words, "-o", "json").json["task"]["id"]
    ran = shell.run("task", "download", "-a", agent, made, "--dir", "out")
    assert ran.status == 0, ran.err
    assert ran.fields["State"] == "TASK_STATE_COMPLETED"
    assert (shell.work / "out/a.txt").read_bytes() == b"\x00binary"
    assert sorted(path.name for path in (shell.work / "out").iterdir()) == [
        "a-2.txt",
        "a.txt",
        "a.txt-2.json",
        "a.txt.json",
    ]
    again = shell.run("task", "download", "-a", agent, made, "--dir", "out")
    assert again.status == 2
    assert "exists already" in again.err
    assert shell.run("task", "download", "-a", agent, made, "--dir", "out", "--overwrite").status == 0


@pytest.mark.parametrize("name", ["../../escape.txt", "/etc/passwd", "..", "a/b\\c.txt", "\x1b[2J.txt", ".env"])
def test_no_name_of_an_agent_leads_out_of_the_folder(shell: Shell, demo: str, name: str) -> None:
    agent = f"{demo}/agents/papers"
    part = {"raw": "aGk=", "filename": name}
    (shell.work / "part").write_text("hi")
    message = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [part]}}
    made = post(f"{agent}/message:send", message)["task"]["id"]
    ran = shell.run("task", "download", "-a", agent, made, "--dir", "out")
    assert ran.status == 0, ran.err
    saved = [path.resolve() for path in shell.home.parent.rglob("*") if path.is_file() and path.name != "part"]
    assert saved
    assert all(path.parent == shell.work / "out" for path in saved)
    assert all(not path.name.startswith(".") and path.name.isprintable() for path in saved)


def post(url: str, body: object) -> dict[str, dict[str, str]]:
    import urllib.request

    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    request.add_header("A2A-Version", "1.0")
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, dict[str, str]] = json.load(answer)
        return found


def test_a_card_is_shown_validated_and_its_signature_reported(shell: Shell, demo: str) -> None:
    ran = shell.run("card", "get", "-a", demo, "--validate")
    assert (ran.status, ran.fields["Name"], ran.fields["Valid"]) == (0, "echo", "yes")
    assert ran.fields["Signature"].startswith(("unverifiable", "absent"))
    whole = shell.run("card", "get", "-a", demo, "-o", "json").json
    assert whole["supportedInterfaces"]


@pytest.mark.requirement("CARD_GET_002")
def test_a_card_with_faults_is_refused_with_each_of_them(shell: Shell) -> None:
    card = {"name": "x", "supportedInterfaces": [{"url": "nowhere", "protocolBinding": "JSONRPC"}], "skills": {}}
    (shell.work / "card.json").write_text(json.dumps({**card, "url": "http://127.0.0.1:1"}))
    ran = shell.run("card", "get", "-a", "card.json", "--validate", "-o", "json")
    assert (ran.status, ran.json["error"]["code"]) == (1, "A2ACLI_ERR_CARD_INVALID")
    for fault in (
        "description: is missing",
        "supportedInterfaces[0].protocolVersion",
        "[0].url: is no",
        "skills: is dict",
    ):
        assert fault in ran.json["error"]["message"]


@pytest.mark.requirement("CARD_GET_002")
@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("name", None, "name: is missing"),
        ("skills", ["echo"], "skills[0]: is str, not an object"),
        ("supportedInterfaces", ["http://127.0.0.1:1"], "supportedInterfaces[0]: is str, not an object"),
        ("defaultInputModes", [1], "defaultInputModes: is a list with entries that are no texts"),
        ("signatures", [None], "signatures[0]: is NoneType, not an object"),
        (
            "securitySchemes",
            {"a": {"apiKeySecurityScheme": {"name": "k"}}},
            "apiKeySecurityScheme.location: is missing",
        ),
        (
            "securitySchemes",
            {"a": {"apiKeySecurityScheme": {"name": "k", "location": "body"}}},
            "location: is 'body', not one of query, header, cookie",
        ),
        (
            "securitySchemes",
            {"a": {"oauth2SecurityScheme": {"flows": {"deviceCode": {"tokenUrl": "https://x.example"}}}}},
            "flows.deviceCode.deviceAuthorizationUrl: is missing",
        ),
        ("securitySchemes", {"a": {"openIdConnectSecurityScheme": []}}, "openIdConnectSecurityScheme: is list"),
    ],
)
def test_validation_reads_a_card_to_its_leaves(shell: Shell, demo: str, field: str, value: Any, fault: str) -> None:
    card = {**shell.run("card", "get", "-a", f"{demo}/agents/echo", "-o", "json").json, field: value}
    with serve_http(lambda asked: (200, card)) as url:
        ran = shell.run("card", "get", "-a", f"{url}/mine", "--validate", "-o", "json")
    assert (ran.status, ran.json["error"]["code"]) == (1, "A2ACLI_ERR_CARD_INVALID")
    assert fault in ran.json["error"]["message"]


def test_a_file_that_is_too_large_for_a_card_is_said_to_be(shell: Shell) -> None:
    (shell.work / "large.json").write_bytes(b" " * (CARD_BYTES_MAX + 1))
    error = shell.run("card", "get", "-a", "./large.json", "-o", "json").json["error"]
    assert error["code"] == "A2ACLI_ERR_CARD_INVALID"
    assert "it is larger than 8 MB" in error["message"]


@pytest.mark.parametrize(
    ("reference", "status", "code"),
    [
        ("http://127.0.0.1:1", 3, "A2ACLI_ERR_UNREACHABLE"),
        ("missing.json", 3, "A2ACLI_ERR_CARD_NOT_FOUND"),
        ("{demo}/nowhere", 3, "A2ACLI_ERR_CARD_NOT_FOUND"),
        ("{demo}/health", 1, "A2ACLI_ERR_CARD_INVALID"),
        ("./broken.json", 1, "A2ACLI_ERR_CARD_INVALID"),
        ("./empty.json", 1, "A2ACLI_ERR_CARD_INVALID"),
    ],
)
def test_a_reference_without_a_card_says_what_is_wrong(
    shell: Shell, demo: str, reference: str, status: int, code: str
) -> None:
    (shell.work / "broken.json").write_text("{")
    (shell.work / "empty.json").write_text('{"hello": 1}')
    reference = "./missing.json" if reference == "missing.json" else reference.format(demo=demo)
    ran = shell.run("card", "get", "-a", reference, "-o", "json")
    assert (ran.status, ran.json["error"]["code"]) == (status, code)


def test_an_agent_without_a_card_is_told_with_every_place_and_the_flags(shell: Shell, demo: str) -> None:
    error = shell.run("card", "get", "-a", f"{demo}/nowhere", "-o", "json").json["error"]
    places = (
        f"no agent card: {demo}/nowhere: HTTP status 404; {demo}/nowhere/.well-known/agent-card.json: HTTP status 404"
    )
    assert error["message"].startswith(places)
    assert "--agent-card" in error["hint"]
    assert "--dialect" in error["hint"]


def test_https_to_a_server_without_tls_names_http(shell: Shell, demo: str) -> None:
    ran = shell.run("send", "-a", demo.replace("http://", "https://"), "hello")
    assert (ran.status, ran.err.count("\n")) == (3, 1)
    assert "does not speak TLS: use http://" in ran.err


@pytest.mark.requirement("CARD_GET_005")
def test_a_catalogs_entry_stands_for_its_card(shell: Shell, demo: str) -> None:
    agents = [
        {"identifier": "urn:x:echo", "type": "application/a2a-agent-card+json", "url": f"{demo}/agents/echo"},
        {"displayName": "Booking", "mediaType": "application/a2a-agent-card+json", "url": f"{demo}/agents/booking"},
        {"displayName": "Tools", "type": "application/mcp-server-card+json", "url": "https://example.org/mcp.json"},
    ]
    (shell.work / "catalog.json").write_text(json.dumps({"specVersion": "1.0", "entries": agents}))
    assert shell.run("card", "get", "-a", "catalog.json#Booking").fields["Name"] == "booking"
    assert shell.run("send", "-a", "catalog.json#urn:x:echo", "hello").fields["State"] == "TASK_STATE_COMPLETED"
    several = shell.run("card", "get", "-a", "catalog.json")
    assert several.status == 3
    assert "urn:x:echo, Booking" in several.err
    (shell.work / "one.json").write_text(json.dumps({"name": "it", "cardUrl": f"{demo}/agents/echo"}))
    assert shell.run("card", "get", "-a", "one.json").fields["Name"] == "echo"


@pytest.mark.requirement("CLI_001", "CLI_002")
def test_completion_and_help_know_every_command(shell: Shell) -> None:
    for shell_name in ("bash", "zsh", "fish"):
        assert "_DRAGOMAN_COMPLETE" in shell.run("completion", shell_name).out
    assert "Usage: dragoman task get" in shell.run("help", "task", "get").out
    assert "Usage: dragoman" in shell.run("help").out
    for flag in ("-v", "--version"):
        assert shell.run(flag).out.startswith("dragoman ")
    for line in ("[default: text]", "[default: the card's order]", "[default: verified]", "[default: concise]"):
        assert line in " ".join(shell.run("help", "send").out.split())
