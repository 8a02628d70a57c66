"""OpenAPI 3.1 documents, made from operations and the structs that they read and write.

Invariant: nothing but the operations and the structs decides what a document says, so that it says what the server
does. The same operations give the same bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

SCHEMAS = "#/components/schemas/{name}"

JSON = "application/json"
EVENTS = "text/event-stream"

SECURITY_SCHEMES: Mapping[str, Any] = {
    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "bearer": {"type": "http", "scheme": "bearer"},
}

Schemas = dict[str, Any]

HeaderForms = Mapping[str, Mapping[str, Any]]
"""Headers by name, each with its schema and perhaps a description; one that is always sent is `required`."""


class ErrorStatus(Struct, frozen=True):
    """Why a request was refused: a google.rpc.Status, as in A2A 1.0 (§11.6)."""

    code: int
    status: str
    message: str
    details: list[dict[str, Any]] = []


class ErrorAnswer(Struct, frozen=True):
    """The answer to a request that was refused."""

    error: ErrorStatus


Form = type[Struct] | tuple[type[Struct], ...] | None
"""A struct, or several of which a body is one; None: text."""


class AnswerForms(Struct, frozen=True, kw_only=True):
    """The forms of an answer of one status.

    `bodies` has the form for each media type. `events` has the forms of a stream's data by the names of its events; the
    name is empty if the events have none. `links` say which operations take an id from the answer: the
    name of each, with its parameter and the place of the id.
    """

    description: str
    bodies: Mapping[str, Form] = {}
    events: Mapping[str, Form] = {}
    headers: HeaderForms = {}
    links: Mapping[str, Mapping[str, str]] = {}


class OperationForms(Struct, frozen=True, kw_only=True):
    """One operation: what it reads, and its answers by HTTP status, or `default`.

    `query` and `body` are structs; the body comes in any of `body_types`. `public`: callers need no key. A call that
    the server makes is an operation without a path.
    """

    name: str
    method: str
    path: str
    summary: str
    answers: Mapping[str, AnswerForms]
    description: str = ""
    tag: str = ""
    query: type[Struct] | None = None
    headers: HeaderForms = {}
    body: type[Struct] | None = None
    body_required: bool = True
    body_types: tuple[str, ...] = (JSON,)
    public: bool = False


class DocumentInfo(Struct, frozen=True, kw_only=True):
    """The facts of a document that no operation has. `servers` returns those of a path; None: it has the usual one."""

    title: str
    version: str
    description: str
    security: Sequence[Mapping[str, Sequence[str]]]
    tags: Mapping[str, str] = {}
    servers: Callable[[str], Sequence[Mapping[str, Any]] | None] = lambda path: None
    refine: Callable[[Schemas], None] = lambda schemas: None


def make_document(
    info: DocumentInfo, operations: Iterable[OperationForms], calls: Sequence[OperationForms] = ()
) -> dict[str, Any]:
    """Make the document. `calls` are those that the server makes, to webhooks.

    `info.refine` may change the schemas of all structs before they are used.
    """
    operations = tuple(operations)
    types = list(dict.fromkeys([ErrorAnswer, *(each for one in (*operations, *calls) for each in _types(one))]))
    references, schemas = msgspec.json.schema_components(types, ref_template=SCHEMAS)
    info.refine(schemas)
    by_type = dict(zip(types, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        path = paths.setdefault(one.path, {})
        if (servers := info.servers(one.path)) is not None:
            path["servers"] = servers
        path[one.method.lower()] = _operation(one, by_type, schemas)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": info.title, "version": info.version, "description": info.description},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": SECURITY_SCHEMES},
        "security": info.security,
    }
    if calls:
        document["webhooks"] = {one.name: {one.method.lower(): _operation(one, by_type, schemas)} for one in calls}
    if info.tags:
        document["tags"] = [{"name": name, "description": said} for name, said in info.tags.items()]
    return document


def _types(one: OperationForms) -> Iterable[type[Struct]]:
    forms: list[Form] = [one.query, one.body]
    for answer in one.answers.values():
        forms += [*answer.bodies.values(), *answer.events.values()]
    for form in forms:
        if form is not None:
            yield from form if isinstance(form, tuple) else (form,)


def _schema(form: Form, by_type: Mapping[Any, Any]) -> Mapping[str, Any]:
    match form:
        case None:
            return {"type": "string"}
        case tuple():
            return {"anyOf": [by_type[each] for each in form]}
        case _:
            reference: Mapping[str, Any] = by_type[form]
            return reference


def _operation(one: OperationForms, by_type: Mapping[Any, Any], schemas: Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": one.name, "summary": one.summary}
    if one.description:
        described["description"] = one.description
    if one.tag:
        described["tags"] = [one.tag]
    if one.public:
        described["security"] = []
    if parameters := [*_path_parameters(one), *_query_parameters(one, schemas), *_header_parameters(one)]:
        described["parameters"] = parameters
    if one.body is not None:
        content = {kind: {"schema": by_type[one.body]} for kind in one.body_types}
        described["requestBody"] = {"required": one.body_required, "content": content}
    described["responses"] = {status: _answer(answer, by_type) for status, answer in one.answers.items()}
    return described


def _path_parameters(one: OperationForms) -> list[dict[str, Any]]:
    names = [part.partition("}")[0] for part in one.path.split("{")[1:]]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(one: OperationForms, schemas: Schemas) -> list[dict[str, Any]]:
    if one.query is None:
        return []
    schema = schemas[one.query.__name__]
    needed = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": each}
        for name, each in schema["properties"].items()
    ]


def _header_parameters(one: OperationForms) -> list[dict[str, Any]]:
    return [{"name": name, "in": "header", "required": False, **said} for name, said in one.headers.items()]


def _answer(answer: AnswerForms, by_type: Mapping[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": answer.description}
    if answer.headers:
        described["headers"] = answer.headers
    content: dict[str, Any] = {kind: {"schema": _schema(form, by_type)} for kind, form in answer.bodies.items()}
    if answer.events:  # before OpenAPI 3.2, the schema of a stream describes each event
        forms = [_event(name, _schema(form, by_type)) for name, form in answer.events.items()]
        content[EVENTS] = {"schema": forms[0] if len(forms) == 1 else {"oneOf": forms}}
    if content:
        described["content"] = content
    if answer.links:
        described["links"] = {
            name: {"operationId": name, "parameters": parameters} for name, parameters in answer.links.items()
        }
    return described


def _event(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """One kind of event of a stream, with its fields as a reader of Server-Sent Events gets them."""
    fields: dict[str, Any] = {"id": {"type": "string"}}
    if name:
        fields["event"] = {"const": name}
    fields["data"] = {"type": "string", "contentMediaType": JSON, "contentSchema": data}
    return {"type": "object", "properties": fields, "required": ["event", "data"] if name else ["data"]}
