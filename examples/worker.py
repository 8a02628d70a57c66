"""A worker in plain Python, without Dragoman: counts words for an agent that is declared with run = "worker".

    python examples/worker.py http://127.0.0.1:7870 words

Set DRAGOMAN_API_KEY if the agent has a key. The worker waits while the server is away. docs/workers.md explains the
calls.
"""

import http.client
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

SERVER, AGENT = sys.argv[1:]
KEY = os.environ.get("DRAGOMAN_API_KEY")


class Refused(Exception):
    """The server refused a call; `status` 409 says that the lease is over."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


def call(action: str, **body: Any) -> Any:
    """Make one call of the worker API, again and again while the server is away; None if the answer is empty."""
    headers = {"Content-Type": "application/json"} | ({"x-api-key": KEY} if KEY else {})
    url = f"{SERVER.rstrip('/')}/workers/{AGENT}/{action}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                content = answer.read()
                return json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise Refused(error.code, error.read().decode()) from error
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(1)


def keep(lease: str, done: threading.Event, canceled: threading.Event) -> None:
    """Send heartbeats until the work is done, or nobody wants it any more."""
    while not done.is_set():
        try:
            pulse = call("heartbeat", lease=lease, wait_s=10)  # a cancel is answered at once
        except Refused:
            pulse = {"cancel": True}
        if pulse["cancel"]:
            canceled.set()
            return


def work(task: dict[str, Any], canceled: threading.Event) -> None:
    """Count the words of the message."""
    lease, parts = task["lease"], task["message"]["parts"]
    words = " ".join(part.get("text", "") for part in parts).split()
    call("update", lease=lease, number=1, message=f"Counting {len(words)} words")
    if not canceled.is_set():
        call(
            "complete",
            lease=lease,
            confirmed=1,
            artifacts=[{"name": "count", "parts": [{"text": f"{len(words)} words"}]}],
        )


def main() -> None:
    """Take one task after the other."""
    print(f"Working for {AGENT} at {SERVER}", flush=True)
    while True:
        task = call("lease", worker="worker.py", wait_s=25)
        if task is None:
            continue
        done, canceled = threading.Event(), threading.Event()
        threading.Thread(target=keep, args=(task["lease"], done, canceled), daemon=True).start()
        try:
            work(task, canceled)
        except Refused as refused:
            if refused.status != 409:
                call("fail", lease=task["lease"], message="The words could not be counted.")
        finally:
            done.set()


if __name__ == "__main__":
    main()
