"""The OpenAPI 3.1 document of the admin API.

Invariant: it is made from the table of routes and the structs alone, so that it says what the server does.
"""

import msgspec

from dragoman.admin.question import PREFIX, AnyQuestion
from dragoman.bindings.admin.routes import routes
from dragoman.bindings.openapi.document import (
    JSON,
    AnswerForms,
    DocumentInfo,
    ErrorAnswer,
    OperationForms,
    make_document,
)

RESUMES = {"Last-Event-ID": {"schema": {"type": "string"}}}

MATCHES = {"If-Match": {"schema": {"type": "string"}}}


def make_admin_document(version: str) -> bytes:
    """The document as JSON. `version` is that of the server."""
    info = DocumentInfo(
        title="Dragoman's admin API",
        version=version,
        description="For operators: keys of the role operator, or the token of a server without authentication.",
        security=[{"apiKey": []}, {"bearer": []}],
    )
    return msgspec.json.encode(make_document(info, map(_operation, routes())))


def _operation(route: AnyQuestion) -> OperationForms:
    answer = AnswerForms(
        description="The answer.",
        bodies={} if route.answer is None else {JSON: route.answer},
        events=route.events,
    )
    posted = route.has_body
    headers = {**(RESUMES if route.events else {}), **(MATCHES if route.takes_version else {})}
    return OperationForms(
        name=route.name,
        method=route.method,
        path=PREFIX + route.path,
        summary=route.summary,
        query=None if posted else route.given,
        headers=headers,
        body=route.given if posted else None,
        body_required=not route.optional,
        answers={
            "200": answer,
            "default": AnswerForms(description="The request was refused.", bodies={JSON: ErrorAnswer}),
        },
    )
