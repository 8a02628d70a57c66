"""The endpoints of the server's HTTP side: the functions that answer the requests of each route.

Invariant: every name of a route has an endpoint. That of a part that is not in use answers that it is not there.
"""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from dragoman.bindings.a2a import A2a
from dragoman.bindings.admin import Admin
from dragoman.bindings.calls import Reception
from dragoman.bindings.cards import Cards
from dragoman.bindings.console import Console
from dragoman.bindings.files import FileDoor
from dragoman.bindings.http import EventsResponse, HttpRequest, HttpResponse, StreamingResponse
from dragoman.bindings.mcp import Mcp
from dragoman.bindings.monitoring import Health, Metrics
from dragoman.bindings.openai import OpenAi
from dragoman.bindings.openapi import Description
from dragoman.bindings.request import Request
from dragoman.bindings.routes import EndpointName
from dragoman.bindings.workers import Workers
from dragoman.model.errors import A2AError, NotFound
from dragoman.model.principal import Principal

Answer = HttpResponse | StreamingResponse | EventsResponse


class HttpEndpoint(Struct, frozen=True):
    """The functions that answer the requests of some routes, and that encode their errors.

    `asks`: callers are authenticated, and must be allowed to use the agent in the path; `identify` replaces the usual
    way to do so. `admit` checks what else this endpoint asks of them. All raise A2AError.
    """

    answer: Callable[[HttpRequest], Awaitable[Answer]]
    refuse: Callable[[HttpRequest, A2AError], HttpResponse]
    asks: bool = True
    admit: Callable[[Request], None] | None = None
    identify: Callable[[Request], Awaitable[Principal]] | None = None


class OptionalBindings(Struct, frozen=True, kw_only=True):
    """The bindings that a server may do without; None for each that it has not."""

    openai: OpenAi | None = None
    mcp: Mcp | None = None
    metrics: Metrics | None = None
    workers: Workers | None = None
    files: FileDoor | None = None
    admin: Admin | None = None
    console: Console | None = None
    description: Description | None = None


def make_endpoints(
    a2a: A2a, reception: Reception, cards: Cards, health: Health, given: OptionalBindings
) -> Mapping[EndpointName, HttpEndpoint]:
    """Make all endpoints, by the name in their routes."""
    callers, refuse = reception.callers, a2a.refuse_rest

    def public(answer: Callable[[HttpRequest], Awaitable[Answer]]) -> HttpEndpoint:
        return HttpEndpoint(answer, refuse, asks=False)

    absent = HttpEndpoint(_answer_absent, refuse)
    openai, mcp, metrics, workers = given.openai, given.mcp, given.metrics, given.workers
    admin, console, description = given.admin, given.console, given.description
    return {
        "rpc": HttpEndpoint(a2a.answer, a2a.refuse_rpc),
        "rest": HttpEndpoint(a2a.answer, refuse),
        "card": public(cards.answer_card),
        "jwks": public(lambda request: cards.keys()),
        "agents": public(cards.answer_list),
        "health": public(lambda request: health.alive()),
        "ready": public(lambda request: health.ready()),
        "files": public(_answer_absent if given.files is None else given.files.answer),
        "chat": absent if openai is None else HttpEndpoint(openai.answer, openai.refuse),
        "models": absent if openai is None else HttpEndpoint(openai.answer_models, openai.refuse),
        "mcp": absent if mcp is None else HttpEndpoint(mcp.answer, mcp.refuse),
        "metrics": absent if metrics is None else HttpEndpoint(metrics.answer, refuse, admit=callers.admit_scraper),
        "admin": absent
        if admin is None
        else HttpEndpoint(
            admin.answer,
            admin.refuse,
            admit=callers.admit_operator,
            identify=None if console is None else console.identify,
        ),
        "console": public(_answer_absent if console is None else console.answer),
        "openapi": public(_answer_absent if description is None else description.answer_document),
        "docs": public(_answer_absent if description is None else description.answer_page),
        "workers": HttpEndpoint(_answer_no_workers, refuse)
        if workers is None
        else HttpEndpoint(workers.answer, workers.refuse, admit=callers.admit_worker),
    }


async def _answer_absent(request: HttpRequest) -> HttpResponse:
    raise NotFound("no such path here: this server was started without it")


async def _answer_no_workers(request: HttpRequest) -> HttpResponse:
    raise NotFound(f'{request.route.agent} is not served by workers: declare it with run = "worker"')
