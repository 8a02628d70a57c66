"""The requests of the admin API, from the table of its routes."""

from msgspec.structs import fields

from dragoman.admin.question import PREFIX, AnyQuestion
from dragoman.bindings.admin.routes import routes
from dragoman.cli.topics.table import Section, Table


def make_table() -> Table:
    """Each request with the fields of its query or body."""
    rows = (*map(_row, routes()), (f"`GET {PREFIX}/openapi.json`", "Describe all of this in OpenAPI 3.1."))
    return Table(("Request", "What it does"), (Section("", rows),))


def _row(route: AnyQuestion) -> tuple[str, ...]:
    names = [] if route.given is None else [f"`{field.encode_name}`" for field in fields(route.given)]
    where = "Body" if route.has_body else "Query"
    given = f" {where}: {', '.join(names)}." if names else ""
    streams = " With `Accept: text/event-stream` a stream." if route.events and route.answer is not None else ""
    return f"`{route.method} {PREFIX}{route.path}`", f"{route.summary}{streams}{given}"
