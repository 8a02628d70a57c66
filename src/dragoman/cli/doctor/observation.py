"""Observations of an agent: what was asked, and what came. Checks read nothing else.

Invariant: values without behaviour that waits, so that a check is tested with recorded answers. An observation has no
credentials, and no queries of URLs; the bodies of answers are kept to
their first part.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.client import Interface
from dragoman.net.tls import TlsSession

BODY_BYTES_MAX = 64 * 1024
"""The part of a body that is kept: no error is longer, unless it is a page for people."""


class Probe(StrEnum):
    """A request that changes nothing at the agent."""

    UNKNOWN_TASK = "the task of a random id"
    NO_CREDENTIALS = "the same without credentials"
    UNKNOWN_METHOD = "a method that does not exist"
    UNKNOWN_VERSION = "version 99.0"
    BROKEN_JSON = "a body that is not JSON"
    PREFLIGHT = "whether web pages of another origin may call"


class Exchange(Struct, frozen=True, kw_only=True):
    """A request and its answer. `status` is 0 if none came, and `failure` says why.

    Header names are in lower case. `refused`: it was not sent, since the address may not be dialled. `certificate` is
    why the certificate was not trusted, empty if it was. `error` is the name of an A2A error that came over gRPC.
    """

    status: int = 0
    headers: Mapping[str, str] = {}
    body: bytes = b""
    elapsed_ms: float = 0.0
    failure: str = ""
    refused: bool = False
    certificate: str = ""
    error: str = ""

    @property
    def document(self) -> Any:
        """The body as JSON, None if it is none."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    @property
    def rpc_code(self) -> int | None:
        """The code of a JSON-RPC error, None if the answer is none."""
        match self.document:
            case {"error": {"code": int(code)}}:
                return code
        return None

    @property
    def denied(self) -> bool:
        """Whether the answer asks for credentials, or refuses those that were given."""
        return self.status in (401, 403) or self.error in ("Unauthorized", "Forbidden")

    @property
    def words(self) -> str:
        """The answer in a few words."""
        if self.failure:
            return self.failure
        if self.error:
            return self.error
        code = self.rpc_code
        kind = self.headers.get("content-type", "no content type").partition(";")[0]
        return f"HTTP {self.status}" + (f" with the error {code}" if code is not None else f" with {kind}")


class Endpoint(Struct, frozen=True, kw_only=True):
    """An endpoint that the card lists, and what it answered. `known`: it may be shown credentials."""

    interface: Interface
    answers: Mapping[Probe, Exchange] = {}
    known: bool = True

    @property
    def name(self) -> str:
        """Binding, version and URL."""
        return f"{self.interface.binding} {self.interface.dialect} {self.interface.url.partition('?')[0]}"

    @property
    def official(self) -> bool:
        """Whether it speaks a version of A2A, and no vendor's dialect."""
        return self.interface.dialect in ("1.0", "0.3")


class Observations(Struct, frozen=True, kw_only=True):
    """Everything that was seen of an agent.

    `card` is None if there is none; `tried` then has the places, each with what came. `card_exchange` is the answer
    that the card came in, None for a file. `signature` is what `card get` says of it. `public`: the card's host is on
    the public internet. `unspoken` are the endpoints of the card that this tool does not speak. `authenticated`:
    credentials were shown. `now_s` is the time of the look, in seconds since the epoch.
    """

    agent: str
    place: str = ""
    card: dict[str, Any] | None = None
    card_exchange: Exchange | None = None
    tried: tuple[tuple[str, str], ...] = ()
    signature: str = ""
    public: bool = False
    tls: TlsSession | None = None
    certificate: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    unspoken: tuple[str, ...] = ()
    schemes: Mapping[str, Any] = {}
    requirements: tuple[Mapping[str, Any], ...] = ()
    authenticated: bool = False
    now_s: float = 0.0

    @property
    def modern(self) -> bool:
        """Whether the card is one of A2A 1.0."""
        return self.card is not None and isinstance(self.card.get("supportedInterfaces"), list)

    @property
    def asks(self) -> bool:
        """Whether the card says that callers must authenticate: it has requirements, and none of them is empty."""
        return bool(self.requirements) and all(each.get("schemes", each) for each in self.requirements)
