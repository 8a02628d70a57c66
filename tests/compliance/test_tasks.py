"""`task` against live agents: reading, waiting, listing, following, saving, webhooks."""

import json
import re
import signal
import urllib.request
from typing import Any

import pytest

from tests.cli.a2a.command import DEADLINE_S
from tests.compliance.agents import Caller
from tests.compliance.evidence import DEMO, KEYED

requirement = pytest.mark.requirement

TOKEN = "t0ken-of-the-webhook"


@requirement("TASK_GET_001", "TASK_POLL_001", "OUT_001")
def test_a_task_is_read_with_its_artifacts_and_history(caller: Caller) -> None:
    task = caller.send("echo").fields["Task"]
    ran = caller.task("get", task, what="echo")
    assert (ran.status, ran.fields["Task"], ran.fields["State"]) == (0, task, "TASK_STATE_COMPLETED"), ran.err
    assert ran.fields["Context"]
    assert "Text:\nhello\n\n" in ran.out
    document = caller.task("get", task, "-o", "json", "--history", "1", what="echo").json
    assert (document["id"], len(document["history"])) == (task, 1)
    assert document["artifacts"]
    assert not caller.task("get", task, "-o", "json", "--history", "0", what="echo").json.get("history")


def read_task(caller: Caller, task: str) -> dict[str, Any]:
    """Read a task over HTTP+JSON without the tool (A2A 1.0 §11.3)."""
    card = caller.shell.run("card", "get", "-o", "json", *caller.to("echo")).json
    url = next(
        each["url"]
        for each in card["supportedInterfaces"]
        if (each["protocolBinding"], each["protocolVersion"]) == ("HTTP+JSON", "1.0")
    )
    headers = {"A2A-Version": "1.0", "x-api-key": caller.shell.environment.get("A2ACLI_API_KEY", "")}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/tasks/{task}", headers=headers), timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@requirement("TASK_GET_001")
def test_json_is_the_task_as_the_agent_tells_it(caller: Caller) -> None:
    task = caller.send("echo").fields["Task"]
    for binding in ("HTTP+JSON", "JSONRPC"):
        assert caller.task("get", task, "-o", "json", "--transport", binding, what="echo").json == read_task(
            caller, task
        )


@requirement("TASK_POLL_001", "TASK_POLL_003")
def test_a_wait_polls_until_a_question(caller: Caller) -> None:
    task = caller.send("ask", "--async").fields["Task"]
    ran = caller.task("get", task, "--wait", "--poll-interval", "50ms", what="ask")
    assert (ran.status, ran.fields["State"]) == (0, "TASK_STATE_INPUT_REQUIRED"), ran.err


@requirement("TASK_POLL_001", "TASK_POLL_002")
def test_polls_become_rarer_until_the_timeout(caller: Caller) -> None:
    task = caller.send("slow", "--async").fields["Task"]
    words = ("--wait", "--poll-interval", "20ms", "--debug")
    ran = caller.wait_in_vain("task", "get", task, *words, *caller.to("slow"))
    waits = [float(found) for found in re.findall(r"asking again in ([0-9.]+) s", ran.err)]
    assert waits[0] == 0.02
    assert waits == sorted(waits)
    assert max(waits) <= 0.1
    assert task in ran.json["error"]["hint"]
    caller.task("cancel", task, what="slow")


@requirement("TASK_CANCEL_001", "OUT_004")
def test_a_task_that_has_ended_cannot_be_canceled(caller: Caller) -> None:
    task = caller.send("echo").fields["Task"]
    ran = caller.task("cancel", task, "-o", "json", what="echo")
    assert (ran.status, ran.json["error"]["code"]) == (1, "TaskNotCancelableError")


@requirement("OUT_004")
def test_an_unknown_task_is_an_error_by_its_own_name(caller: Caller) -> None:
    for command in ("get", "cancel", "subscribe", "download"):
        ran = caller.task(command, "no-such-task", "-o", "json", what="echo")
        assert (ran.status, ran.json["error"]["code"]) == (1, "TaskNotFoundError"), command
        assert set(ran.json["error"]) == {"code", "message", "hint", "a2aCode"}


@requirement("TASK_LIST_001")
def test_lists_are_filtered_and_paged_by_cursor(caller: Caller) -> None:
    context = caller.send("echo").fields["Context"]
    for _ in range(2):
        caller.send("echo", "--context-id", context)
    words = ("--context-id", context, "--limit", "2")
    first = caller.task("list", *words, "-o", "json", what="echo").json
    assert (len(first["tasks"]), first["totalSize"]) == (2, 3)
    rest = caller.task("list", *words, "-o", "json", "--cursor", first["nextPageToken"], what="echo").json
    assert len({task["id"] for task in first["tasks"] + rest["tasks"]}) == 3
    assert caller.task("list", *words, what="echo").fields["Next page"] == first["nextPageToken"]
    lines = caller.task("list", *words, "-o", "json", "--stream", what="echo").lines
    assert [line["id"] for line in lines] == [task["id"] for task in first["tasks"]]
    assert not caller.task("list", *words, "--state", "failed", "-o", "json", what="echo").json["tasks"]
    done = caller.task("list", *words, "--state", "completed", "-o", "json", what="echo").json
    assert {task["status"]["state"] for task in done["tasks"]} == {"TASK_STATE_COMPLETED"}


@requirement("TASK_SUBSCRIBE_001", "TASK_SUBSCRIBE_002")
def test_a_subscription_begins_with_the_task_and_follows_it(caller: Caller) -> None:
    task = caller.send("slow", "--async").fields["Task"]
    following = caller.shell.start("task", "subscribe", task, "--stream", "-o", "json", *caller.to("slow"))
    try:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["task"]["id"] == task
        assert "artifactUpdate" in following.stdout.readline()
        assert caller.task("cancel", task, what="slow").fields["State"] == "TASK_STATE_CANCELED"
        rest, _ = following.communicate(timeout=DEADLINE_S)
    finally:
        following.kill()
    last = json.loads(rest.splitlines()[-1])
    assert (last.get("statusUpdate") or last["task"])["status"]["state"] == "TASK_STATE_CANCELED"
    ended = caller.task("subscribe", task, "-o", "json", what="slow")
    assert (ended.status, ended.json["status"]["state"]) == (0, "TASK_STATE_CANCELED")


@requirement("DOWNLOAD_001")
def test_artifacts_are_saved(caller: Caller) -> None:
    (caller.shell.work / "a.txt").write_bytes(b"binary\x00")
    words = ("--text", "hello", "--file", "a.txt", "-o", "json")
    task = caller.shell.run("send", *words, *caller.to("echo")).json["task"]["id"]
    ran = caller.task("download", task, "--dir", "out", what="echo")
    assert (ran.status, ran.fields["Task"]) == (0, task), ran.err
    assert {path.read_bytes() for path in (caller.shell.work / "out").iterdir()} == {b"hello", b"binary\x00"}


@requirement("PUSH_001", "PUSH_002")
@pytest.mark.parametrize("live", [pytest.param("python-sdk", marks=pytest.mark.peer), KEYED], indirect=True)
def test_a_webhook_is_created_shown_listed_called_and_deleted(caller: Caller) -> None:
    task = caller.send("ask", "-o", "json").json["task"]["id"]
    receiving = caller.shell.start("receive", "--token", TOKEN, "--count", "1", "-o", "json")
    try:
        assert receiving.stderr is not None
        (url,) = re.findall(r"receiving at (\S+)", receiving.stderr.readline())
        hook = ("push-config", "create", task, "--url", url, "--token", TOKEN, "--id", "mine")
        made = caller.task(*hook, what="ask")
        assert (made.status, made.fields["Push config"]) == (0, "mine"), made.err
        assert TOKEN not in made.out
        shown = caller.task("push-config", "get", task, "mine", "-o", "json", what="ask").json
        assert (shown["id"], shown["url"]) == ("mine", url)
        assert len(caller.task("push-config", "list", task, "-o", "json", what="ask").json["configs"]) == 1
        caller.shell.run("send", "--task-id", task, "--text", "Oslo", *caller.to("ask"))
        out, _ = receiving.communicate(timeout=DEADLINE_S)
        (report,) = out.splitlines()
        assert len(json.loads(report)) == 1  # one StreamResponse, a union
        assert caller.task("push-config", "delete", task, "mine", what="ask").status == 0
        assert not caller.task("push-config", "list", task, "-o", "json", what="ask").json.get("configs")
    finally:
        receiving.kill()
        receiving.communicate()


@requirement("PUSH_002", "EXIT_001")
@pytest.mark.parametrize("live", [KEYED], indirect=True)
def test_an_interrupt_ends_a_receiver_that_has_received(caller: Caller) -> None:
    task = caller.send("ask", "-o", "json").json["task"]["id"]
    receiving = caller.shell.start("receive", "-o", "json")
    try:
        assert receiving.stderr is not None
        assert receiving.stdout is not None
        (url,) = re.findall(r"receiving at (\S+)", receiving.stderr.readline())
        assert caller.task("push-config", "create", task, "--url", url, what="ask").status == 0
        caller.shell.run("send", "--task-id", task, "--text", "Oslo", *caller.to("ask"))
        assert len(json.loads(receiving.stdout.readline())) == 1
        receiving.send_signal(signal.SIGINT)
        receiving.communicate(timeout=DEADLINE_S)
    finally:
        receiving.kill()
        receiving.communicate()
    assert receiving.returncode == 0


@requirement("AUTH_011", "TASK_POLL_003", "EXIT_002")
@pytest.mark.parametrize("live", [DEMO, KEYED], indirect=True)
def test_a_task_that_asks_for_authentication_goes_on_after_it(caller: Caller) -> None:
    agent = ("-a", f"{caller.live.url}/agents/login")
    asked = caller.shell.run("send", "What is in my mailbox?", *agent)
    assert (asked.status, asked.fields["State"]) == (0, "TASK_STATE_AUTH_REQUIRED")
    assert "authenticated (TASK_STATE_AUTH_REQUIRED)" in asked.err
    assert f"--task-id {asked.fields['Task']}" in asked.fields["Next"]
    done = caller.shell.run("send", "--task-id", asked.fields["Task"], "--text", "I have logged in", *agent)
    assert done.fields["State"] == "TASK_STATE_COMPLETED"
    assert "You are logged in" in done.out
