"""The endpoint of a model: its address, this server's credentials for it, and whether calls get through.

Invariant: the key appears in request headers and nowhere else. At most `connections` streams are open at once, and each
is closed by its reader.
"""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from dragoman.agents.breaker import Breaker
from dragoman.net.egress import Egress, Flow, HttpReply, checked

log = logging.getLogger("dragoman.models")

CONNECTIONS_MAX = 4000
"""The most answers in progress at one endpoint: each holds a connection."""

LOOK_S = 4.0
"""How long a check waits for each of its two answers."""

COMPLETIONS = "/chat/completions"


class Address(Struct, frozen=True, kw_only=True):
    """An endpoint's URL as configured, and the key with the header that carries it; None: a bearer token."""

    url: str
    key: str = ""
    header: str | None = None
    answer_s: float = 120.0
    idle_s: float = 60.0


class Endpoint:
    """The endpoint at `address`. Belongs to the event loop in which it is opened."""

    def __init__(self, address: Address, breaker: Breaker) -> None:
        self.breaker = breaker
        self.key = address.key
        self._address = address
        self._to = completions_url(address.url)
        self._egress: Egress | None = None

    def asked(self, body: bytes, traceparent: str | None) -> AbstractAsyncContextManager[Flow]:
        """Request a completion. Raises EgressError."""
        headers = {**self._headers, "Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
        if traceparent:
            headers["traceparent"] = traceparent
        return self._out.stream(
            "POST",
            self._to,
            head_timeout_s=self._address.answer_s,
            idle_timeout_s=self._address.idle_s,
            headers=headers,
            body=body,
        )

    def failed(self, name: str) -> None:
        """Record that the agent `name` got no answer, because the endpoint is away or unwell."""
        pause_s = self.breaker.failed()
        if pause_s is not None:
            log.warning("model %s: %s does not answer: the next call is made in %g s", name, self.place, pause_s)

    async def models(self) -> HttpReply:
        """Fetch the list of models, over a separate connection: the agent need not be open. Raises EgressError."""
        return await self._get(models_url(self._address.url))

    async def look(self) -> HttpReply:
        """Send GET to the URL of completions, which requests no completion.

        This call, too, has a separate connection. Raises EgressError.
        """
        return await self._get(self._to)

    async def _get(self, url: str) -> HttpReply:
        egress = Egress()
        try:
            return await egress.request("GET", url, timeout_s=LOOK_S, headers=self._headers)
        finally:
            await egress.close()

    @property
    def place(self) -> str:
        """The URL without what may be secret in it."""
        parts = urlsplit(self._address.url)
        return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))

    @property
    def hint(self) -> str:
        """Advice for the operator when something other than a model answers there."""
        place = self.place
        if "/v1" in place:
            return f"is the URL in `run` right? Completions are asked for at {checked(self._to)}"
        return f"is the URL in `run` right? Most end in /v1: try openai:{place.rstrip('/')}/v1"

    async def close(self) -> None:
        """Close every connection."""
        egress, self._egress = self._egress, None
        if egress is not None:
            await egress.close()

    @property
    def _out(self) -> Egress:
        if self._egress is None:
            self._egress = Egress(connections_max=CONNECTIONS_MAX)
        return self._egress

    @property
    def _headers(self) -> dict[str, str]:
        address = self._address
        if not address.key:
            return {}
        if address.header is None:
            return {"Authorization": f"Bearer {address.key}"}
        return {address.header: address.key}


def endpoint(address: Address, failures: int, pause_s: float, clock: Callable[[], float] = time.monotonic) -> Endpoint:
    """Create an endpoint with a breaker of its own."""
    return Endpoint(address, Breaker(failures, pause_s, clock))


def completions_url(url: str) -> str:
    """The URL of completions: below the base URL (`/v1` if the URL has no path), or the URL itself if it names them."""
    return _below(url, COMPLETIONS)


def models_url(url: str) -> str:
    """The URL of the list of models."""
    return _below(url, "/models")


def _below(url: str, route: str) -> str:
    parts = urlsplit(url)
    base = parts.path.rstrip("/").removesuffix(COMPLETIONS)
    if not parts.path.rstrip("/"):
        base = "/v1"
    return urlunsplit((parts.scheme, parts.netloc, base + route, parts.query, ""))


def limit_name(url: str) -> str:
    """The field that limits the answer's length. OpenAI and Azure renamed it; some models refuse the old name."""
    host = urlsplit(url).hostname or ""
    new = host == "api.openai.com" or host.endswith((".openai.azure.com", ".services.ai.azure.com"))
    return "max_completion_tokens" if new else "max_tokens"
