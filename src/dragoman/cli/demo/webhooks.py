"""Receives the webhooks of both servers, and keeps what each reported."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dragoman.cli.a2a.commands.receive import READ_TIMEOUT_S, read_body


class WebhookReceiver:
    """Listens on this machine, at a path for each column, until the block ends."""

    def __init__(self) -> None:
        reports: dict[str, set[str]] = {}
        self._reports = reports

        class Handler(BaseHTTPRequestHandler):
            timeout = READ_TIMEOUT_S

            def do_POST(self) -> None:
                body = read_body(self.headers, self.rfile)
                if not isinstance(body, bytes):
                    self.send_error(body)
                    return
                reports.setdefault(self.path, set()).update(_reported(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  the name is http.server's
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> "WebhookReceiver":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def url(self, column: str) -> str:
        """Where a column's server reports."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{column}"

    def reports(self, column: str) -> frozenset[str]:
        """What it has reported: names of artifacts, and states in A2A's words."""
        return frozenset(self._reports.get(f"/{column}", ()))


def _reported(body: bytes) -> set[str]:
    try:
        said = json.loads(body)
    except ValueError:
        return set()
    task = said.get("task") or {}
    artifacts = [said.get("artifactUpdate", {}).get("artifact", {}), *task.get("artifacts", ())]
    status = (said.get("statusUpdate") or task).get("status", {})
    names = {artifact["name"] for artifact in artifacts if artifact.get("name")}
    return names | ({status["state"]} if "state" in status else set())
