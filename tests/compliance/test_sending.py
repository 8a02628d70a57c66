"""`send` to live agents: interactions begun and continued, waits, streams, parts."""

import base64
import json
import re
import signal

import pytest

from tests.cli.a2a.command import DEADLINE_S, Shell
from tests.compliance.agents import Caller
from tests.compliance.proxied import proxied

requirement = pytest.mark.requirement


@requirement("SEND_001", "SEND_002", "SEND_004", "OUT_001", "OUT_005", "INTERACT_004")
def test_a_message_starts_a_task_that_is_waited_for_and_rendered(caller: Caller) -> None:
    ran = caller.send("echo")
    assert ran.status == 0, ran.err
    assert ran.fields["State"] == "TASK_STATE_COMPLETED"
    assert "Text:\nhello\n\n" in ran.out
    lines = ran.out.splitlines()
    assert [line.partition(": ")[0] for line in lines[:3]] == ["Task", "Context", "State"]
    assert ran.fields["Next"].startswith(f"dragoman send --agent-card {caller.live.reference('echo')} --context-id ")
    assert ran.fields["Task"] in ran.err  # the ids were told before the wait
    assert "\x1b" not in ran.out + ran.err


@requirement("SEND_002", "OUT_006", "TASK_CANCEL_001")
def test_without_waiting_the_ids_are_printed_and_the_task_goes_on(caller: Caller) -> None:
    ran = caller.send("slow", "--async")
    assert ran.status == 0, ran.err
    assert ran.fields["Context"]
    assert ran.fields["State"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    document = caller.send("slow", "--no-wait", "-o", "json").json["task"]
    assert document["id"]
    assert document["contextId"]
    for task in (ran.fields["Task"], document["id"]):
        canceled = caller.task("cancel", task, what="slow")
        assert (canceled.status, canceled.fields["Task"]) == (0, task), canceled.err
        assert canceled.fields["State"] == "TASK_STATE_CANCELED"
        assert caller.task("get", task, what="slow").fields["State"] == "TASK_STATE_CANCELED"


@requirement("SEND_003", "OUT_003", "TASK_SUBSCRIBE_002")
def test_a_stream_is_json_lines_that_end_with_the_final_state(caller: Caller) -> None:
    ran = caller.send("count", "--stream", "-o", "json")
    assert ran.status == 0, ran.err
    kinds = [next(iter(line)) for line in ran.lines]
    assert kinds[0] == "task"
    assert kinds.count("artifactUpdate") == 3
    last = ran.lines[-1]
    status = (last.get("statusUpdate") or last["task"])["status"]
    assert status["state"] == "TASK_STATE_COMPLETED"
    tail = last.get("statusUpdate") or {"taskId": last["task"]["id"], "contextId": last["task"]["contextId"]}
    assert tail["taskId"]
    assert tail["contextId"]


@requirement("SEND_003", "OUT_001", "OUT_005")
def test_a_stream_of_text_restates_ids_and_state_at_its_end(caller: Caller) -> None:
    ran = caller.send("count", "--stream")
    assert ran.status == 0, ran.err
    assert [line.partition(":")[0] for line in ran.out.splitlines()[-4:]] == ["Task", "Context", "State", "Next"]


@requirement("SEND_003", "OUT_002", "OUT_003")
def test_a_message_without_a_task_is_an_answer_in_every_form(caller: Caller) -> None:
    assert "good day" in caller.send("direct").out
    assert list(caller.send("direct", "-o", "json").json) == ["message"]
    streamed = caller.send("direct", "-o", "json", "--stream")
    assert streamed.status == 0, streamed.err
    assert [list(line) for line in streamed.lines] == [["message"]]


@requirement("SEND_004", "SEND_005", "SEND_006")
def test_parts_keep_their_order_and_types_and_come_back(caller: Caller) -> None:
    work = caller.shell.work
    (work / "report.bin").write_bytes(b"\x00\x01")
    (work / "picture.png").write_bytes(b"\x02")
    words = ("--text", "hello", "--data", "-", "--file", "report.bin", "--media-type", "application/pdf")
    more = ("--file", "picture.png", "--file", "https://example.org/b.pdf", "--text", "bye")
    sent = caller.shell.run("send", *words, *more, "-o", "json", *caller.to("echo"), stdin='{"a": ["b"]}')
    assert sent.status == 0, sent.err
    task = sent.json["task"]
    parts = task["artifacts"][0]["parts"]
    assert [sorted({"text", "data", "raw", "url"} & set(part))[0] for part in parts] == [
        *("text", "data", "raw", "raw", "url", "text"),
    ]
    assert parts[1]["data"] == {"a": ["b"]}
    assert (parts[2]["raw"], parts[2]["mediaType"]) == (base64.b64encode(b"\x00\x01").decode(), "application/pdf")
    assert parts[3]["mediaType"] == "image/png"
    assert parts[4]["url"] == "https://example.org/b.pdf"
    shown = caller.task("get", task["id"], what="echo").out
    blocks = ("Text:\nhello\n\n", 'Data:\n{\n  "a": [\n    "b"\n  ]\n}\n\n', "Text:\nbye\n\n")
    files = ("File: report.bin (application/pdf, 2 bytes)", "File: picture.png (image/png, 1 bytes)")
    for piece in (*blocks, *files, "https://example.org/b.pdf"):
        assert piece in shown
    assert not [path for path in work.iterdir() if path.name not in ("report.bin", "picture.png")]  # nothing is saved


@requirement("SEND_005", "EXIT_001")
def test_a_media_type_without_a_part_is_a_usage_error(caller: Caller) -> None:
    ran = caller.shell.run("send", "--media-type", "text/plain", "--text", "x", *caller.to("echo"))
    assert ran.status == 2


@requirement("INTERACT_001", "INTERACT_003")
def test_a_context_holds_several_tasks(caller: Caller) -> None:
    first = caller.send("echo").fields
    second = caller.send("echo", "--context-id", first["Context"])
    assert second.status == 0, second.err
    assert second.fields["Context"] == first["Context"]
    assert second.fields["Task"] != first["Task"]


@requirement("INTERACT_003", "INTERACT_005")
def test_nothing_is_invented_and_nothing_is_remembered(caller: Caller) -> None:
    ran = caller.send("echo", "--debug")
    sent = next(line for line in ran.err.splitlines() if "ROLE_USER" in line)
    assert "taskId" not in sent
    assert "contextId" not in sent
    again = caller.send("echo")
    assert again.fields["Context"] != ran.fields["Context"]
    assert [path for path in caller.shell.home.rglob("*") if path.is_file()] == []
    assert "--continue" not in caller.shell.run("send", "--help-all").out


@requirement("INTERACT_002", "INTERACT_004", "EXIT_002", "TASK_POLL_003")
def test_a_question_ends_the_wait_and_is_answered_by_the_printed_command(caller: Caller) -> None:
    asked = caller.send("ask")
    assert (asked.status, asked.fields["State"]) == (0, "TASK_STATE_INPUT_REQUIRED"), asked.err
    assert "waits for an answer (TASK_STATE_INPUT_REQUIRED)" in asked.err
    task = asked.fields["Task"]
    assert (
        asked.fields["Next"] == f'dragoman send --agent-card {caller.live.reference("ask")} --task-id {task} --text "…"'
    )
    both = caller.shell.run("send", "--task-id", task, "--context-id", "another", "--text", "x", *caller.to("ask"))
    assert both.status == 1  # the agent refuses, and the tool does not reconcile the two
    answered = caller.shell.run("send", "--task-id", task, "--text", "Oslo", *caller.to("ask"))
    assert (answered.status, answered.fields["Task"]) == (0, task), answered.err
    assert answered.fields["State"] in ("TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED")


@requirement("INTERACT_002", "OUT_004", "EXIT_001")
def test_a_refused_task_id_fails_and_starts_nothing(caller: Caller) -> None:
    before = caller.task("list", "-o", "json", what="echo").json
    ran = caller.send("echo", "--task-id", "no-such-task", "-o", "json")
    assert (ran.status, ran.json["error"]["code"]) == (1, "TaskNotFoundError")
    assert "--debug" in ran.json["error"]["hint"]
    assert caller.task("list", "-o", "json", what="echo").json["totalSize"] == before["totalSize"]


@requirement("INTERACT_002", "EXIT_001")
def test_a_message_to_a_task_that_has_ended_is_refused_once(caller: Caller) -> None:
    task = caller.send("echo").fields["Task"]
    with proxied(caller.live.url) as proxy:
        card = caller.shell.run("card", "get", "-o", "json", *caller.to("echo")).json
        moved = json.dumps(card).replace(caller.live.url, proxy.url)
        (caller.shell.work / "moved.json").write_text(moved)
        ran = caller.shell.run("send", "again", "--task-id", task, "-a", "moved.json", "-o", "json")
        assert (ran.status, ran.json["error"]["code"]) == (1, "UnsupportedOperationError"), ran.out
        assert "--debug" in ran.json["error"]["hint"]
        assert sum(b"again" in request for request in proxy.asked) == 1


@requirement("EXIT_002")
def test_a_task_that_fails_is_no_failure_of_the_command(caller: Caller) -> None:
    ran = caller.send("fail")
    assert (ran.status, ran.fields["State"]) == (0, "TASK_STATE_FAILED")
    assert "the task failed (TASK_STATE_FAILED)" in ran.err


@requirement("OUT_001", "OUT_002", "EXIT_001")
def test_json_is_one_document_of_the_protocols_own_type(caller: Caller) -> None:
    ran = caller.send("count", "-o", "json", "--debug")  # the log is on stderr
    assert ran.status == 0
    assert list(ran.json) == ["task"]
    assert ran.json["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert ran.json["task"]["id"]
    assert ran.json["task"]["contextId"]
    quiet = caller.shell.run("send", caller.live.text("count"), "-o", "json", *caller.to("count"), A2ACLI_STREAM="true")
    assert list(quiet.json) == ["task"]  # nothing but the flag makes it a stream


@requirement("TASK_POLL_002", "EXIT_001")
def test_a_timeout_leaves_the_task_and_its_id(caller: Caller) -> None:
    ran = caller.wait_in_vain("send", caller.live.text("slow"), *caller.to("slow"))
    (task,) = re.findall(r"task get --agent-card \S+ --wait (\S+)", ran.json["error"]["hint"])
    assert task in ran.err
    assert caller.task("cancel", task, what="slow").fields["State"] == "TASK_STATE_CANCELED"


@requirement("TASK_POLL_002")
def test_an_interrupt_leaves_the_task_and_its_id(caller: Caller) -> None:
    sending = caller.shell.start("send", caller.live.text("slow"), *caller.to("slow"))
    try:
        assert sending.stderr is not None
        told = next(line for line in sending.stderr if line.startswith("dragoman: task "))
        sending.send_signal(signal.SIGINT)
        _, err = sending.communicate(timeout=DEADLINE_S)
    finally:
        sending.kill()
    task = told.split()[2].rstrip(",")
    assert re.search(rf"task get --agent-card \S+ --wait {task}\n", err)
    assert caller.task("cancel", task, what="slow").fields["State"] == "TASK_STATE_CANCELED"


@requirement("SEND_001")
def test_metadata_of_the_message_arrives(shell: Shell, demo: str) -> None:
    ran = shell.run("send", "-a", demo, "hi", "--metadata", json.dumps({"team": {"id": 7}}), "-o", "json")
    assert ran.json["task"]["history"][0]["metadata"] == {"team": {"id": 7}}
