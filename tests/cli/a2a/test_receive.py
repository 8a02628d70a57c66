"""`dragoman receive` and `task push-config`: webhooks of an agent, received and printed."""

import http.client
import io
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from email.message import Message

import pytest

from dragoman.cli.a2a.commands.receive import BODY_BYTES_MAX, read_body
from dragoman.dialects.api import Signing
from dragoman.dialects.push import standard_signature
from tests.cli.a2a.command import DEADLINE_S, Shell
from tests.cli.a2a.peer import FarAgent

TOKEN = "t0ken-of-the-webhook"


def test_reports_of_an_agent_arrive_and_strangers_are_refused(shell: Shell) -> None:
    receiving = shell.start("receive", "--token", TOKEN, "--count", "2", "-o", "json")
    try:
        assert receiving.stderr is not None
        (url,) = re.findall(r"receiving at (\S+)", receiving.stderr.readline())
        assert post(url, b"{}", "wrong") == 401
        assert post(url, b"nonsense", TOKEN) == 400
        status = {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00.000Z"}
        assert post(url, json.dumps({"task": {"id": "t", "contextId": "c", "status": status}}).encode(), TOKEN) == 204
        update = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}}
        assert post(url, json.dumps(update).encode(), TOKEN) == 204
        out, err = receiving.communicate(timeout=DEADLINE_S)
    finally:
        receiving.kill()
        receiving.communicate()
    assert receiving.returncode == 0
    assert [next(iter(json.loads(line))) for line in out.splitlines()] == ["task", "statusUpdate"]
    assert TOKEN not in out + err


SECRET = "whsec_dHdlbnR5LWZvdXIgcmFuZG9tIGJ5dGVz"


def test_a_report_that_is_not_signed_with_the_secret_is_refused(shell: Shell) -> None:
    receiving = shell.start("receive", "--secret", SECRET, "--count", "1", "-o", "json")
    try:
        assert receiving.stderr is not None
        (url,) = re.findall(r"receiving at (\S+)", receiving.stderr.readline())
        assert post(url, REPORT, "") == 401
        assert post(url, REPORT, "", **signed(REPORT, SECRET[:-4] + "AAAA")) == 401
        assert post(url, REPORT, "", **signed(REPORT, SECRET, age_s=600)) == 401
        assert post(url, REPORT, "", **signed(REPORT, SECRET) | {"webhook-timestamp": "9" * 400}) == 401
        assert post(url, REPORT + b" ", "", **signed(REPORT, SECRET)) == 401
        zeros = {"webhook-timestamp": f"{'0' * 5000}{int(time.time())}"}  # a float, and no int of Python's
        assert post(url, REPORT, "", **signed(REPORT, SECRET) | zeros) == 401
        leave(url)
        assert post(url, REPORT, "", **signed(REPORT, SECRET)) == 204
        out, err = receiving.communicate(timeout=DEADLINE_S)
    finally:
        receiving.kill()
        receiving.communicate()
    assert (len(out.splitlines()), SECRET in out + err) == (1, False)
    assert "Traceback" not in err


def test_a_secret_that_no_webhook_can_have_is_wrong_input(shell: Shell) -> None:
    ran = shell.run("receive", "--secret", "short")
    assert ran.status == 2
    assert "--secret must have 16 to 256 characters" in ran.err


def leave(url: str) -> None:
    """Begin a report, and break the connection."""
    host, port = url.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def signed(body: bytes, secret: str, age_s: int = 0) -> dict[str, str]:
    """The headers of a delivery that was signed a while ago."""
    signing = Signing(delivery_id="msg_1", task_id="t", timestamp_s=int(time.time()) - age_s, body=body)
    return {"webhook-id": "msg_1", **dict(standard_signature(secret, signing))}


REPORT = json.dumps({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}}).encode()


@pytest.mark.parametrize(("more", "status"), [((), 0), (("--count", "2"), 130)])
def test_an_interrupt_ends_a_receiver_after_the_reports_that_came(
    shell: Shell, more: tuple[str, ...], status: int
) -> None:
    receiving = shell.start("receive", "-o", "json", *more)
    try:
        assert receiving.stderr is not None
        (url,) = re.findall(r"receiving at (\S+)", receiving.stderr.readline())
        assert post(url, REPORT, "") == 204
        receiving.send_signal(signal.SIGINT)
        out, err = receiving.communicate(timeout=DEADLINE_S)
    finally:
        receiving.kill()
        receiving.communicate()
    assert receiving.returncode == status
    assert (len(out.splitlines()), "interrupted" in err) == (1, status != 0)
    assert "Traceback" not in err


UNHEARD = """
import signal, sys, threading, time
from dragoman.cli import main

listening = threading.Event()
write = sys.stderr.write

def notice(text):
    if "receiving at" in text:
        listening.set()
    return write(text)

def interrupt():
    listening.wait()
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

sys.stderr.write = notice
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=interrupt, daemon=True).start()
main(["receive"], prog_name="dragoman")
"""


def test_an_interrupt_is_heard_that_does_not_wake_the_loop() -> None:
    """As one does not that comes just before the loop begins to wait: another thread gets this one."""
    ended = subprocess.run([sys.executable, "-c", UNHEARD], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (ended.returncode, "receiving at" in ended.stderr, "Traceback" in ended.stderr) == (0, True, False)


def test_a_report_in_chunks_is_received(shell: Shell) -> None:
    receiving = shell.start("receive", "-o", "json", "--count", "1")
    try:
        assert receiving.stderr is not None
        (url,) = re.findall(r"receiving at (\S+)", receiving.stderr.readline())
        connection = http.client.HTTPConnection(url.split("/")[2], timeout=60)
        connection.request("POST", "/", iter([REPORT[:10], REPORT[10:]]), encode_chunked=True)
        assert connection.getresponse().status == 204
        connection.close()
        out, _ = receiving.communicate(timeout=DEADLINE_S)
    finally:
        receiving.kill()
        receiving.communicate()
    assert json.loads(out)["message"]["parts"] == [{"text": "hello"}]


CHUNKED = {"Transfer-Encoding": "chunked"}


@pytest.mark.parametrize(
    ("headers", "sent", "came"),
    [
        ({}, b"", 411),
        ({"Content-Length": "-1"}, b"", 411),
        ({"Content-Length": str(BODY_BYTES_MAX + 1)}, b"", 413),
        ({"Content-Length": "9" * 5000}, b"", 413),
        ({"Content-Length": "0" * 5000 + "2"}, b"he", 413),
        ({"Content-Length": "2"}, b"hello", b"he"),
        (CHUNKED, b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nX: y\r\n\r\n", b"hello"),
        (CHUNKED, b"0\r\n\r\n", b""),
        (CHUNKED, b"x\r\n", 400),
        (CHUNKED, b"", 400),
        (CHUNKED, b"1\r\nab\r\n", 400),
        (CHUNKED, b"7fffffff\r\n", 413),
    ],
)
def test_a_body_is_read_whole_or_refused(headers: dict[str, str], sent: bytes, came: bytes | int) -> None:
    message = Message()
    for name, value in headers.items():
        message[name] = value
    assert read_body(message, io.BytesIO(sent)) == came


def post(url: str, body: bytes, token: str, **headers: str) -> int:
    request = urllib.request.Request(url, body, {"X-A2A-Notification-Token": token, **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_webhook_is_created_shown_listed_called_and_deleted(shell: Shell, demo: str) -> None:
    hooks = f"{demo}/agents/booking"
    task = shell.run("send", "-a", hooks, "Book", "-o", "json").json["task"]["id"]
    receiving = shell.start("receive", "--token", TOKEN, "--count", "1")
    try:
        assert receiving.stderr is not None
        (url,) = re.findall(r"receiving at (\S+)", receiving.stderr.readline())
        words = ("-a", hooks, task)
        address = url.removeprefix("http://")
        made = shell.run("task", "push-config", "create", *words, "--url", address, "--token", TOKEN, "--id", "mine")
        assert made.status == 0, made.err
        assert (made.fields["Task"], made.fields["State"]) == (task, "TASK_STATE_INPUT_REQUIRED")
        assert made.fields["Push config"] == "mine"
        assert TOKEN not in made.out
        shown = shell.run("task", "push-config", "get", *words, "mine", "-o", "json").json
        assert (shown["id"], shown["url"]) == ("mine", url)
        assert len(shell.run("task", "push-config", "list", *words, "-o", "json").json["configs"]) == 1
        shell.run("send", "-a", hooks, "--task-id", task, "--text", "Oslo")
        out, _ = receiving.communicate(timeout=DEADLINE_S)
        assert "State: TASK_STATE_" in out
        assert f"Task: {task}\n" in out, "one receiver hears of many tasks"
        assert shell.run("task", "push-config", "delete", *words, "mine", "-o", "json").json == {}
        assert shell.run("task", "push-config", "list", *words, "-o", "json").json["configs"] == []
    finally:
        receiving.kill()
        receiving.communicate()


@pytest.mark.requirement("VER_003")
def test_an_agent_that_calls_no_webhooks_is_not_asked(shell: Shell, agent: FarAgent) -> None:
    ran = shell.run("task", "push-config", "list", "-a", agent.url, "t", "-o", "json")
    assert (ran.status, ran.json["error"]["code"]) == (1, "PushNotificationNotSupportedError")
    assert agent.calls == []
