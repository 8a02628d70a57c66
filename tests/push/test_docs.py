"""The code in docs/push.md verifies real calls, and the numbers there are those of the code."""

import json
import re
import shutil
import subprocess
import time
from http.client import HTTPConnection
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest

from dragoman.engine.rules import WEBHOOKS_MAX
from dragoman.model.operations import PushConfig
from dragoman.push.announcer import EACH_BYTES_MAX
from dragoman.push.caller import make_headers
from dragoman.push.courier import ATTEMPT_S, CONNECT_S, FIRST_S
from dragoman.push.lanes import LARGE_BYTES_MAX
from dragoman.push.outcome import DELAYS_S, JITTER, RETRY_AFTER_MAX_S, WINDOW_MAX
from dragoman.store.outbox import SMALL_BYTES_MAX, Due, Lane
from tests.push.rig import FORM, delivery

PAGE = (Path(__file__).parents[2] / "docs" / "push.md").read_text(encoding="utf-8")
BODY = '{"text": "Grüße"}'.encode()
SECRETS = ("whsec_dHdlbnR5LWZvdXIgcmFuZG9tIGJ5dGVz", "a plain text of 16 or more characters")
NODE = shutil.which("node")
LIMIT_S = 60.0


def block(language: str) -> str:
    """The only block of that language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def sent(secret: str, age_s: int = 0) -> dict[str, str]:
    """The headers of a call that was made a while ago."""
    due = Due(
        number=1,
        task_id="t",
        agent="echo",
        config=PushConfig(url="https://hooks.example.com/tasks", secret=secret),
        host="https://hooks.example.com:443",
        delivery=delivery(BODY),
        attempts=0,
        made_ms=0,
    )
    return make_headers(due, FORM, FORM, (int(time.time()) - age_s) * 1000, None)


def cases() -> list[tuple[str, dict[str, str], str, bool]]:
    """Secret, headers, body, and whether the call is genuine and new."""
    found = []
    for secret, other in (SECRETS, reversed(SECRETS)):
        headers = sent(secret)
        two = {**headers, "webhook-signature": "v1,AAAA " + headers["webhook-signature"]}
        found += [
            (secret, headers, BODY.decode(), True),
            (secret, two, BODY.decode(), True),
            (secret, headers, BODY.decode() + " ", False),
            (secret, {**headers, "webhook-id": "msg_other"}, BODY.decode(), False),
            (other, headers, BODY.decode(), False),
            (secret, sent(secret, 600), BODY.decode(), False),
            (secret, {**headers, "webhook-timestamp": "9" * 400}, BODY.decode(), False),
        ]
    return found


def test_the_python_receiver_of_the_page_verifies_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "receiver"}
    exec(block("python"), names)
    with HTTPServer(("127.0.0.1", 0), names["Receiver"]) as server:
        for secret, headers, body, genuine in cases():
            monkeypatch.setenv("SECRET", secret)
            caller = HTTPConnection("127.0.0.1", server.server_port, timeout=LIMIT_S)
            caller.request("POST", "/", body.encode(), headers)
            server.handle_request()
            assert caller.getresponse().status == (204 if genuine else 401)
            caller.close()


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_node_receiver_of_the_page_verifies_what_is_sent(tmp_path: Path) -> None:
    assert NODE is not None
    script = tmp_path / "receiver.mjs"
    listening, text = 'listen(8080, "127.0.0.1")', block("js")
    assert listening in text
    script.write_text(
        text.replace(listening, 'listen(0, "127.0.0.1", call)')
        + f"""
async function call() {{
  for (const [secret, headers, body, genuine] of {json.dumps(cases())}) {{
    process.env.SECRET = secret;
    const answer = await fetch(`http://127.0.0.1:${{this.address().port}}/`, {{ method: "POST", headers, body }});
    if (answer.status !== (genuine ? 204 : 401)) process.exit(1);
  }}
  process.exit(0);
}}
""",
        encoding="utf-8",
    )
    subprocess.run([NODE, str(script)], check=True, timeout=LIMIT_S)


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert DELAYS_S == (1, 5, 30, 2 * 60, 10 * 60, 3600, 6 * 3600)
    assert "1 s, 5 s, 30 s, 2 min, 10 min, 1 h and 6 h" in PAGE.replace("\n", " ")
    assert (len(DELAYS_S) + 1, JITTER, RETRY_AFTER_MAX_S) == (8, 0.2, 6 * 3600)
    assert (ATTEMPT_S, CONNECT_S) == (10, 3)
    assert f"up to {WINDOW_MAX} calls at a time" in PAGE
    assert (FIRST_S, EACH_BYTES_MAX, SMALL_BYTES_MAX) == (2, 64 * 1024, 16 * 1024)
    assert (sum(LARGE_BYTES_MAX.values()), LARGE_BYTES_MAX[Lane.HEALTHY]) == (64 << 20, 24 << 20)
    assert f"at most {WEBHOOKS_MAX} webhooks" in PAGE
