"""The log of `--debug`: what goes over the wire, on stderr (a2a-cli §5.2, §10.1).

Invariant: no credential is printed, at any verbosity: header values that could be one are left out, and known secrets
are replaced wherever they occur.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dragoman.cli.a2a.text import printable
from dragoman.client.credentials import REDACTED, redact

PLAIN_HEADERS = frozenset(
    {
        "accept",
        "a2a-extensions",
        "a2a-version",
        "cache-control",
        "content-length",
        "content-type",
        "date",
        "idempotency-key",
        "last-event-id",
        "retry-after",
        "server",
        "traceparent",
        "x-a2a-extensions",
    }
)
"""Headers whose values are shown. Every other may carry a credential."""


class DebugLog:
    """Prints what a client sends and receives. Times are seconds since the command began."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._began_s = time.monotonic()
        self._method = ""  # the gRPC method of the newest request
        self._secrets = [*secrets]

    def add_secrets(self, secrets: Sequence[str]) -> None:
        """Replace these values, too, from now on."""
        self._secrets += secrets

    def branch(self) -> "DebugLog":
        """A log of the same command, for requests that are made beside those of this one."""
        branch = DebugLog()
        branch._began_s, branch._secrets = self._began_s, self._secrets
        return branch

    def request(self, verb: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Print a request."""
        self._method = url if url.startswith(("grpc://", "grpcs://")) else ""
        self.note(f"> {verb} {url}")
        self._headers(">", headers)
        self._body(">", body)

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Print an answer."""
        self.note(f"< {status}")
        self._headers("<", headers)
        self._body("<", body)

    def piece(self, data: bytes) -> None:
        """Print a piece of a stream."""
        self._body("<", data)

    def card(self, place: str, card: Mapping[str, Any]) -> None:
        """Print an agent card and where it came from."""
        self.note(f"card from {place}")
        self._body("<", msgspec.json.encode(card))

    def note(self, text: str) -> None:
        """Print a line about the work itself."""
        text = self._redact(printable(" ".join(text.split())))
        print(f"{time.monotonic() - self._began_s:7.3f} {text}", file=sys.stderr, flush=True)  # noqa: T201

    def _headers(self, sign: str, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            self.note(f"{sign} {name}: {value if name.lower() in PLAIN_HEADERS else REDACTED}")

    def _body(self, sign: str, body: bytes) -> None:
        if self._method and body:
            body = _protobuf_json(self._method, body, is_request=sign == ">").encode()
        for line in body.decode("utf-8", "replace").splitlines():
            if line.strip():
                self.note(f"{sign} {line}")

    def _redact(self, text: str) -> str:
        return redact(text, self._secrets)


def _protobuf_json(method: str, message: bytes, *, is_request: bool) -> str:
    """Return a message of gRPC as JSON; what cannot be read as one is described by its size."""
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    from dragoman.dialects.protobuf.schema import POOL

    service, _, name = method.rpartition("/")
    try:
        # The client has loaded the types of the service that it called.
        found = POOL.FindServiceByName(service.rpartition("/")[2]).FindMethodByName(name)
        kind = GetMessageClass(found.input_type if is_request else found.output_type)
        return json_format.MessageToJson(kind.FromString(message), indent=None)
    except (KeyError, AttributeError, DecodeError, json_format.Error, RecursionError):
        return f"{len(message)} bytes"
