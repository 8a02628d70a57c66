"""`dragoman receive`: a webhook receiver, which prints what agents report about their tasks (a2a-cli §7.2).

Invariant: nothing is printed before its token and signature have been checked, and every report is answered only after
it was printed.
"""

import hmac
import re
import sys
import threading
import time
from collections.abc import Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.a2a.options import LISTENING_IDLE, ClientCommand, agent_options
from dragoman.cli.a2a.settings import SettingsError
from dragoman.cli.arguments import WholeNumber
from dragoman.cli.endings import unwritten

if TYPE_CHECKING:
    from dragoman.cli.a2a.output import Output
    from dragoman.cli.a2a.session import KnownTask
    from dragoman.cli.a2a.settings import Settings

TOKEN_HEADER = "X-A2A-Notification-Token"
"""The header in which agents repeat the token of a configuration."""

BODY_BYTES_MAX = 64 * 1024 * 1024

LENGTH_DIGITS_MAX = 20
"""The longest number that is read: Python reads none of thousands of digits."""

LINE_BYTES_MAX = 4096
"""The longest line between chunks of a body."""

READ_TIMEOUT_S = 30.0

POLL_S = 0.1
"""How long the server takes to see that it shall end."""


@click.command(cls=ClientCommand, idle=LISTENING_IDLE)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=WholeNumber(0, 65535), default=0, show_default="a free one", help="Port to listen on.")
@click.option(
    "--token", metavar="TOKEN", help="Token that each report must carry, as given to `push-config create --token`."
)
@click.option("--secret", metavar="SECRET", help="Secret with which each report must be signed, by Standard Webhooks.")
@click.option("--count", type=WholeNumber(1), metavar="N", help="End after N reports.  [default: end with Ctrl-C]")
@agent_options
def receive(host: str, port: int, token: str | None, secret: str | None, count: int | None, **options: Any) -> None:
    """Receive webhooks, and print each report.

    A report is printed as fields and blocks, or with -o json as one JSON object a line.

    Examples:
      dragoman receive --port 8080 --secret whsec_dHdlbnR5LWZvdXIgcmFuZG9tIGJ5dGVz
      dragoman receive --port 8080 --count 1 -o json
    """
    from dragoman.cli.a2a.session import run_command
    from dragoman.dialects.push import check
    from dragoman.model.operations import PushConfig

    faults: list[tuple[str, str]] = []
    check(PushConfig(url="", secret=secret), "--", faults)
    for option, fault in faults:
        raise click.UsageError(f"{option} {fault}")

    async def work(settings: "Settings", output: "Output", task: "KnownTask") -> None:
        await _serve(_Reports(output, token, secret, count), host, port)

    run_command(options, work, lines=True, endless=count is None)


def read_body(headers: Message, file: BufferedIOBase) -> bytes | int:
    """Read a body of a known length, or one in chunks (RFC 9112 §7.1). Returns the HTTP status of a refusal."""
    if headers.get("Transfer-Encoding", "").strip().lower() == "chunked":
        return _read_chunks(file)
    size = headers.get("Content-Length", "")
    if not size.isascii() or not size.isdigit():
        return 411
    return 413 if len(size) > LENGTH_DIGITS_MAX or int(size) > BODY_BYTES_MAX else file.read(int(size))


def _read_chunks(file: BufferedIOBase) -> bytes | int:
    body = bytearray()
    while True:
        size = file.readline(LINE_BYTES_MAX).partition(b";")[0].strip()
        if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", size):
            return 400
        if len(body) + int(size, 16) > BODY_BYTES_MAX:
            return 413
        if int(size, 16) == 0:
            break
        body += file.read(int(size, 16))
        if file.readline(LINE_BYTES_MAX).strip():
            return 400
    while file.readline(LINE_BYTES_MAX).strip():
        pass  # trailers
    return bytes(body)


async def _serve(reports: "_Reports", host: str, port: int) -> None:
    """Take reports until as many have come as were asked for, or until the caller is cancelled."""
    import asyncio

    from dragoman.cli.a2a.output import warn

    class WebhookHandler(BaseHTTPRequestHandler):
        timeout = READ_TIMEOUT_S

        def do_POST(self) -> None:
            body = read_body(self.headers, self.rfile)
            if not isinstance(body, bytes):
                self.send_error(body)
                return
            status = reports.take({name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            if reports.complete:
                threading.Thread(target=server.shutdown).start()

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  the name is http.server's
            """Log nothing: reports are the output."""

    class WebhookServer(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Tell the fault of a sender in a line, and one of ours with its traceback."""
            if isinstance(sys.exception(), ConnectionError):
                warn("a sender left before it was answered")
            else:
                super().handle_error(request, client_address)

    try:
        server = WebhookServer((host, port), WebhookHandler)
    except OSError as error:
        raise SettingsError(f"{host}:{port} cannot be listened on: {error.strerror}: choose another --port") from error
    with server:
        warn(f"receiving at http://{host}:{server.server_address[1]}/ ; Ctrl-C ends")
        try:
            await asyncio.to_thread(server.serve_forever, POLL_S)
        finally:
            server.shutdown()  # the thread goes on when its caller is cancelled, and the process would wait for it
            reports.close()


class _Reports:
    """Prints reports, one at a time. `complete` once as many have come as were asked for."""

    def __init__(self, output: "Output", token: str | None, secret: str | None, count: int | None) -> None:
        self.complete = False
        self._output = output
        self._token = token
        self._secret = secret
        self._left = count
        self._turn = threading.Lock()

    def take(self, headers: Mapping[str, str], body: bytes) -> int:
        """Print a report, and return the HTTP status of the answer. `headers` have lower-case names."""
        from dragoman.cli.a2a.output import warn
        from dragoman.dialects.push import has_standard_signature

        token = headers.get(TOKEN_HEADER.lower(), "")
        if self._token is not None and not hmac.compare_digest(token.encode(), self._token.encode()):
            warn(f"a report without the right {TOKEN_HEADER} was refused")
            return 401
        if self._secret is not None and not has_standard_signature(self._secret, headers, body, time.time()):
            warn("a report without a fresh signature by the secret was refused")
            return 401
        with self._turn:
            if self.complete:  # it came before the server stopped; its sender may try again
                return 503
            try:
                known = self._print(body)
            except OSError as error:
                if not (reason := unwritten(error)):
                    raise
                warn(f"a report was refused: {reason}")  # its sender tries again
                return 507
            if not known:
                warn("a report was refused, as it is neither a task nor an event of one")
                return 400
            if self._left is not None:
                self._left -= 1
                self.complete = self._left <= 0
        return 204

    def close(self) -> None:
        """Take no more. A report that is being printed is printed to its end."""
        with self._turn:
            self.complete = True

    def _print(self, body: bytes) -> bool:
        from dragoman.dialects.v1.client import read_update
        from dragoman.model.errors import InvalidAgentResponse

        try:
            updates = read_update(body)
        except InvalidAgentResponse:
            return False
        for update in updates:
            self._output.report(update)
        return True
