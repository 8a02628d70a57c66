"""The OpenAPI 3.1 document of the admin API.

Invariant: it is made from the table of routes and the structs alone, so that it says what the server does.
"""

from typing import Any

import msgspec
from msgspec import Struct

from dragoman.bindings.admin.route import PREFIX, AdminRoute
from dragoman.bindings.admin.routes import ROUTES

SCHEMAS = "#/components/schemas/{name}"


class ErrorStatus(Struct, frozen=True):
    """Why a request was refused: a google.rpc.Status, as in A2A 1.0 (§11.6)."""

    code: int
    status: str
    message: str
    details: list[dict[str, Any]] = []


class ErrorAnswer(Struct, frozen=True):
    """The answer to a request that was refused."""

    error: ErrorStatus


def make_document(version: str) -> bytes:
    """The document as JSON. `version` is that of the server."""
    used = (each for route in ROUTES for each in (route.answer, route.given, *route.events.values()))
    types = [ErrorAnswer, *(each for each in used if each is not None)]
    schemas, components = msgspec.json.schema_components(types, ref_template=SCHEMAS)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route, by_type, components)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Dragoman's admin API",
                "version": version,
                "description": "For operators: keys of the role operator, or the token of a server that asks nobody.",
            },
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {
                    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                    "bearer": {"type": "http", "scheme": "bearer"},
                },
            },
            "security": [{"apiKey": []}, {"bearer": []}],
        }
    )


def _contents(route: AdminRoute, by_type: dict[Any, Any]) -> dict[str, Any]:
    """The forms of an answer. OpenAPI has no words for the events of a stream: they are named beside the schema."""
    contents: dict[str, Any] = {}
    if route.answer is not None:
        contents["application/json"] = {"schema": by_type[route.answer]}
    if route.events:
        events = {name: by_type[each] for name, each in route.events.items()}
        contents["text/event-stream"] = {"schema": {"type": "string"}, "x-events": events}
    return contents


def _operation(route: AdminRoute, by_type: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "responses": {
            "200": {"description": "The answer.", "content": _contents(route, by_type)},
            "default": {
                "description": "The request was refused.",
                "content": {"application/json": {"schema": by_type[ErrorAnswer]}},
            },
        },
    }
    names = [part.partition("}")[0] for part in route.path.split("{")[1:]]
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    if route.given is not None and route.method == "POST":
        content = {"application/json": {"schema": by_type[route.given]}}
        described["requestBody"] = {"required": not route.optional, "content": content}
    elif route.given is not None:
        schema = components[route.given.__name__]
        needed = schema.get("required", ())
        parameters += [
            {"name": name, "in": "query", "required": name in needed, "schema": one}
            for name, one in schema["properties"].items()
        ]
    if route.events:
        resumes = {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"}}
        parameters.append(resumes)
    if parameters:
        described["parameters"] = parameters
    return described
