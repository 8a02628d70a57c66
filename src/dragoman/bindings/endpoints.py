"""Endpoints: the functions that answer the requests of each route.

Invariant: an application has an endpoint for every name of a route. One of a part that is not in use answers that it is
not there, so that no other module has to know which parts a server has.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, get_args

from msgspec import Struct

from dragoman.bindings.http import EventsResponse, HttpRequest, HttpResponse, StreamingResponse
from dragoman.bindings.request import Request
from dragoman.bindings.routes import EndpointName
from dragoman.model.errors import A2AError, NotFound
from dragoman.model.principal import Principal

Answer = HttpResponse | StreamingResponse | EventsResponse

Refuse = Callable[[HttpRequest, A2AError], HttpResponse]
"""Encodes an error for the callers of an endpoint."""


class HttpEndpoint(Struct, frozen=True):
    """The functions that answer the requests of some routes, and that encode their errors.

    Without `refuse`, errors are encoded as those of HTTP+JSON are. `asks`: callers are authenticated, and must be
    allowed to use the agent in the path; `identify` replaces the usual way to do so. `admit` checks what else this
    endpoint asks of them. All raise A2AError.
    """

    answer: Callable[[HttpRequest], Awaitable[Answer]]
    refuse: Refuse | None = None
    asks: bool = True
    admit: Callable[[Request], None] | None = None
    identify: Callable[[Request], Awaitable[Principal]] | None = None


Endpoints = Mapping[EndpointName, HttpEndpoint]
"""The endpoints of a part of the server, by the name in their routes."""


class PageSessions(Protocol):
    """Knows the callers that are signed in with a browser."""

    proof: bytes
    """The header that a request has if it belongs to a session, in lower case."""

    async def identify(self, request: Request) -> Principal:
        """The operator of the session that the request belongs to, else the caller by other credentials.

        Raises A2AError.
        """
        ...


def public(answer: Callable[[HttpRequest], Awaitable[Answer]]) -> HttpEndpoint:
    """Make an endpoint that asks nobody who they are."""
    return HttpEndpoint(answer, asks=False)


def add_absent(given: Endpoints) -> Endpoints:
    """Add an endpoint for each name that has none."""
    absent: dict[EndpointName, HttpEndpoint] = dict.fromkeys(get_args(EndpointName), HttpEndpoint(_answer_absent))
    absent |= dict.fromkeys(PUBLIC, public(_answer_absent))
    absent["workers"] = HttpEndpoint(_answer_no_workers)
    return {**absent, **given}


PUBLIC: frozenset[EndpointName] = frozenset({"files", "console", "openapi", "docs", "server_card"})
"""Parts that ask nobody. A server without them does not ask for credentials before it says so."""


async def _answer_absent(request: HttpRequest) -> HttpResponse:
    raise NotFound("no such path here: this server was started without it")


async def _answer_no_workers(request: HttpRequest) -> HttpResponse:
    raise NotFound(f'{request.route.agent} is not served by workers: declare it with run = "worker"')
