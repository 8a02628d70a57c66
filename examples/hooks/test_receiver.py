"""The receiver takes what is genuine and new, once, and puts it in order."""

import base64
import hashlib
import hmac
from pathlib import Path

import pytest

from examples.hooks.receiver import Calls, genuine, told

SECRET = "whsec_dHdlbnR5LWZvdXIgcmFuZG9tIGJ5dGVz"
NOW = 1_800_000_000.0


def signed(body: bytes, at: float = NOW, secret: str = SECRET) -> dict[str, str]:
    """The headers of a call."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"msg_1.{at:.0f}.".encode() + body, hashlib.sha256)
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": "msg_1", "webhook-timestamp": f"{at:.0f}", "webhook-signature": f"v1,AAAA {signature}"}


def test_a_genuine_call_is_recognised() -> None:
    assert genuine(SECRET, signed(b"{}"), b"{}", NOW)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        signed(b"[]"),
        signed(b"{}", NOW - 301),
        signed(b"{}", secret="whsec_AAAA"),
        signed(b"{}") | {"webhook-timestamp": "now"},
        signed(b"{}") | {"webhook-timestamp": "9" * 400},
    ],
)
def test_every_other_call_is_not(headers: dict[str, str]) -> None:
    assert not genuine(SECRET, headers, b"{}", NOW)


def test_calls_count_once_and_stand_in_order(tmp_path: Path) -> None:
    calls = Calls(str(tmp_path / "calls.db"))
    came = [("b", "7", "TASK_STATE_COMPLETED"), ("a", "2", "TASK_STATE_WORKING"), ("c", "7.1", "artifact")]
    for name, seq, what in came:
        assert calls.take(name, "task-1", seq, what)
        assert not calls.take(name, "task-1", seq, what)
    assert calls.of("task-1") == ["TASK_STATE_WORKING", "artifact", "TASK_STATE_COMPLETED"]
    assert Calls(str(tmp_path / "calls.db")).of("task-1") == calls.of("task-1")


def test_each_kind_of_body_is_understood() -> None:
    status = {"state": "TASK_STATE_WORKING"}
    assert told({"task": {"id": "t", "status": status}}) == ("t", "TASK_STATE_WORKING")
    assert told({"statusUpdate": {"taskId": "t", "status": status}}) == ("t", "TASK_STATE_WORKING")
    assert told({"artifactUpdate": {"taskId": "t", "artifact": {}}}) == ("t", "artifact")
