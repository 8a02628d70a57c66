"""The routes of the admin API: the rows of the table, and those about agents elsewhere.

Invariant: the routes, the decoding, the encoding and the OpenAPI document come from this one table.
"""

from collections.abc import Sequence
from functools import cache

from dragoman.admin.question import AnyQuestion
from dragoman.admin.table import QUESTIONS
from dragoman.bindings.optional import load_optional
from dragoman.model.errors import MethodNotAllowed, NotFound


@cache
def remote_questions() -> tuple[AnyQuestion, ...]:
    """The rows about agents elsewhere; none if this installation is without them."""
    module = load_optional("dragoman.bindings.remote.questions")
    return () if module is None else module.REMOTE_QUESTIONS


def routes() -> tuple[AnyQuestion, ...]:
    """All rows."""
    return (*QUESTIONS, *remote_questions())


def find_route(method: str, segments: Sequence[str]) -> tuple[AnyQuestion, str]:
    """The route of a request, and the id in its path; empty if it has none. Raises NotFound or MethodNotAllowed."""
    allowed: list[str] = []
    for route in routes():
        found = _match(route.path, segments)
        if found is not None:
            if route.method == method or (route.method == "GET" and method == "HEAD"):
                return route, found
            allowed += [route.method] if route.method != "GET" else ["GET", "HEAD"]
    if allowed:
        raise MethodNotAllowed(list(dict.fromkeys(allowed)), "")
    raise NotFound("no such path here: GET /admin/v1/openapi.json describes those that exist")


def _match(path: str, segments: Sequence[str]) -> str | None:
    """The id in a path, empty if it has none; None for a path of another route. The parts of a longer id have slashes
    between them."""
    pattern = path.strip("/").split("/")
    if len(pattern) != len(segments):
        return None
    found: list[str] = []
    for expected, sent in zip(pattern, segments, strict=True):
        suffix = expected.removeprefix("{id}").removeprefix("{member}")
        if suffix == expected:
            if expected != sent:
                return None
        elif not sent.endswith(suffix) or len(sent) == len(suffix):
            return None
        else:
            found.append(sent.removesuffix(suffix))
    return "/".join(found)
