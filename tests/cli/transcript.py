"""A transcript of everything that commands print and servers answer, and a stranger who repeats what it is given.

Invariant: what is noted is searched for every secret, except for the one that it is made to show.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

from msgspec import Struct

from tests.kit.commands import run_command
from tests.processes import ENDS_WITH_US

DEADLINE_S = 60.0

COMMAND = (*ENDS_WITH_US, sys.executable, "-m", "dragoman")

SHOWN_MIN = 12
"""Fewer characters of a secret give nothing away."""


class Noted(Struct, frozen=True):
    """A text, where it comes from, and the kind of secret that it is made to show; empty for none."""

    name: str
    text: str
    shows: str = ""


class Transcript:
    """The texts of a session in one folder, which is the home and the working directory of its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.noted: list[Noted] = []
        self.environment = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "COLUMNS": "1000",  # a secret that a table wraps would not be found
        }

    def note(self, name: str, text: str, shows: str = "") -> str:
        """Keep a text, and return it."""
        self.noted.append(Noted(name, text, shows))
        return text

    def run(self, *words: str, shows: str = "", **environment: str) -> str:
        """Run a command to its end, inside this process, and return what it wrote to standard output."""
        ran = run_command(self.folder, *words, **{**self.environment, **environment})
        return self._note_command(words, ran.out, ran.err, shows)

    def run_process(self, *words: str, **environment: str) -> str:
        """Run a command to its end in a process of its own: one that would be a server, or that fails unexpectedly."""
        ran = subprocess.run(
            [*COMMAND, *words],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return self._note_command(words, ran.stdout, ran.stderr)

    def _note_command(self, words: Sequence[str], out: str, err: str, shows: str = "") -> str:
        name = " ".join(words)[:80]
        self.note(f"{name}: stderr", err, shows)
        return self.note(f"{name}: stdout", out, shows)

    def ask(self, method: str, url: str, body: object = None, *, shows: str = "", **headers: str) -> Mapping[str, str]:
        """Make a request, keep its answer with its headers, and return these."""
        at = urlsplit(url)
        connection = HTTPConnection(at.hostname or "", at.port, timeout=DEADLINE_S)
        sent = None if body is None else json.dumps(body)
        named = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"{at.path}?{at.query}" if at.query else at.path, sent, named)
        answer = connection.getresponse()
        given = {name.lower(): value for name, value in answer.getheaders()}
        text = answer.read().decode()
        connection.close()
        self.note(f"{method} {at.path}: {answer.status}", f"{given}\n{text}", shows)
        return given

    @contextmanager
    def serving(self, *flags: str, **environment: str) -> Iterator[str]:
        """Run a server in the block, which gets its URL. Its output is kept at the end."""
        server = subprocess.Popen(
            [*COMMAND, "serve", *flags],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        assert server.stderr is not None
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.append(server.stderr.read() if server.stderr else ""))
        reader.start()  # else a full pipe would hold up the server
        first = ""
        try:
            first = server.stdout.readline()
            assert "listens on" in first, first
            yield first.split("listens on ")[1].split("/ ")[0]
        finally:
            server.send_signal(signal.SIGTERM)
            rest = server.stdout.read()
            server.wait(DEADLINE_S)
            reader.join()
            server.stdout.close()
            server.stderr.close()
            self.note("serve: stdout", first + rest)
            self.note("serve: stderr", "".join(errors))

    def places_of(self, kind: str, secret: str) -> list[str]:
        """The places where a secret is found, in any of its forms, but for those that are meant to show it."""
        forms = forms_of(secret)
        return [each.name for each in self.noted if each.shows != kind and any(form in each.text for form in forms)]

    def shown(self, kind: str, secret: str) -> bool:
        """Whether the secret was shown where it is meant to be."""
        return any(each.shows == kind and secret in each.text for each in self.noted)


def forms_of(secret: str) -> set[str]:
    """A secret as it is, in URLs, and in base64, also in the middle of more, as in Basic authentication."""
    forms = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret)}
    for plain, before in [(plain, before) for plain in sorted(forms) for before in range(3)]:
        whole = base64.b64encode(b"\0" * before + plain.encode()).decode().rstrip("=")
        middle = whole[4 if before else 0 : -2]  # the rest depends on the neighbours
        forms |= {middle, middle.replace("+", "-").replace("/", "_")}
    assert min(map(len, forms)) >= SHOWN_MIN
    return forms


class Stranger:
    """A server that keeps what it is given, and refuses it in words that repeat it: agent, model, issuer, webhook."""

    def __init__(self, access_token: str) -> None:
        self.heard: list[str] = []
        self.hooked = threading.Event()
        stranger = self

        class Door(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stranger.heard.append(str(self.headers))
                self._answer(200, stranger.card)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                stranger.heard.append(f"{self.headers}\n{body}")
                said = f"this is wrong: {' '.join(map(str, self.headers.values()))} {body}"
                match self.path:
                    case "/token":
                        self._answer(200, {"access_token": access_token, "token_type": "Bearer"})
                    case "/hook":
                        self._answer(500, said)
                        stranger.hooked.set()
                    case "/rpc":
                        error = {"code": -32603, "message": said, "data": [{"said": said}]}
                        self._answer(200, {"jsonrpc": "2.0", "id": json.loads(body)["id"], "error": error})
                    case _:
                        self._answer(401, {"error": {"message": said, "code": "invalid_api_key"}})

            def _answer(self, status: int, body: object) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the base class has it
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def card(self) -> Any:
        """The card of its agent."""
        place = {"url": f"{self.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return {
            "name": "stranger",
            "description": "Repeats what it is given",
            "version": "1",
            "capabilities": {},
            "skills": [],
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "supportedInterfaces": [place],
            "securitySchemes": {
                "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
                "key": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}},
            },
            "securityRequirements": [{"schemes": {name: {"list": []}}} for name in ("bearer", "key")],
        }

    @contextmanager
    def listening(self) -> Iterator["Stranger"]:
        """Serve within the block."""
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def was_given(self, secret: str) -> bool:
        """Whether the secret arrived, in any of its forms."""
        return any(form in each for each in self.heard for form in forms_of(secret))
