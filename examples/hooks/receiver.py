"""Receives the webhooks of tasks: `SECRET=… python examples/hooks/receiver.py 8080 calls.db`. It needs no package.

A call is taken if its signature is right and it is new. Each is written to the file before it is answered, so that
nothing that was taken is lost; a call that comes again is answered again and counts once.
"""

import base64
import hashlib
import hmac
import json
import os
import sqlite3
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BODY_MAX = 1 << 20
AGE_MAX_S = 300


def genuine(secret: str, headers: dict[str, str], body: bytes, now: float) -> bool:
    """Whether a call bears a signature of Standard Webhooks made with `secret`, not longer ago than AGE_MAX_S."""
    key = base64.b64decode(secret.removeprefix("whsec_")) if secret.startswith("whsec_") else secret.encode()
    name, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    digest = hmac.digest(key, f"{name}.{timestamp}.".encode() + body, hashlib.sha256)
    expected = f"v1,{base64.b64encode(digest).decode()}".encode()
    given = headers.get("webhook-signature", "").encode().split()
    fresh = timestamp.isdecimal() and abs(now - float(timestamp)) < AGE_MAX_S
    return fresh and any(hmac.compare_digest(expected, one) for one in given)


def position(seq: str) -> tuple[int, float]:
    """Where a call stands among the calls of its task: `7.1`, `7.2`, and last `7`."""
    event, _, part = seq.partition(".")
    return int(event), int(part) if part else float("inf")


def told(body: Any) -> tuple[str, str]:
    """The task that a StreamResponse of A2A 1.0 is about, and its state or "artifact"."""
    if "task" in body:
        return body["task"]["id"], body["task"]["status"]["state"]
    update = body.get("statusUpdate") or body["artifactUpdate"]
    return update["taskId"], update["status"]["state"] if "status" in update else "artifact"


class Calls:
    """The calls that were taken, in a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with self._open() as database:
            database.execute("CREATE TABLE IF NOT EXISTS calls (id TEXT PRIMARY KEY, task TEXT, seq TEXT, what TEXT)")

    def take(self, name: str, task: str, seq: str, what: str) -> bool:
        """Keep a call; False if it had come before. On disk when this returns."""
        with self._open() as database:
            row = database.execute("INSERT OR IGNORE INTO calls VALUES (?, ?, ?, ?)", (name, task, seq, what))
            return row.rowcount == 1

    def of(self, task: str) -> list[str]:
        """What is known of a task, in the order in which it happened."""
        with self._open() as database:
            rows = database.execute("SELECT seq, what FROM calls WHERE task = ?", (task,)).fetchall()
        return [what for _, what in sorted(rows, key=lambda row: position(row[0]))]

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path)


class Receiver(BaseHTTPRequestHandler):
    """Answers 204 to a call that it has taken, and 401 to one that is not genuine."""

    calls: Calls
    secret: str

    def do_POST(self) -> None:
        """Take one call."""
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(min(length, BODY_MAX))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if length > BODY_MAX or not genuine(self.secret, headers, body, time.time()):
            self.send_response(413 if length > BODY_MAX else 401)
        else:
            task, what = told(json.loads(body))
            if self.calls.take(headers["webhook-id"], task, headers["x-dragoman-seq"], what):
                print(" -> ".join(self.calls.of(task)), flush=True)
            self.send_response(204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The calls are printed instead."""


def main() -> None:
    """Listen on the port that is the first argument; the calls go into the file that is the second."""
    port, path = int(sys.argv[1]), sys.argv[2]
    Receiver.calls, Receiver.secret = Calls(path), os.environ["SECRET"]
    with ThreadingHTTPServer(("127.0.0.1", port), Receiver) as server:
        print(f"Listening on http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
