"""The server's own paths, as operations of the document: cards, the list of agents, and how the server is.

Invariant: every path of `bindings.routes.SERVER` is here, unless it belongs to an API of its own.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from dragoman.bindings.cards import AgentList
from dragoman.bindings.monitoring import Liveness, Readiness
from dragoman.bindings.openapi import shapes
from dragoman.bindings.openapi.a2a import A2A_JSON, CARDS, encode_reason
from dragoman.bindings.openapi.document import JSON, AnswerForms, ErrorAnswer, OperationForms
from dragoman.bindings.openapi.refusals import describe_refusals
from dragoman.dialects import ai_catalog
from dragoman.model import errors
from dragoman.model.card import AgentCard
from dragoman.model.errors import A2AError

SERVER = "Server"

TAGS = {SERVER: "Whether the server is well."}


class JsonWebKeys(Struct, frozen=True):
    """Public keys (RFC 7517)."""

    keys: list[dict[str, Any]]


def _refusals(*kinds: type[A2AError]) -> dict[str, AnswerForms]:
    return describe_refusals(kinds, encode_reason, ErrorAnswer, A2A_JSON)


def _own(
    name: str,
    path: str,
    summary: str,
    tag: str,
    answers: Mapping[str, AnswerForms],
    *,
    query: type[Struct] | None = None,
    headers: Mapping[str, Mapping[str, Any]] = {},
    public: bool = True,
) -> OperationForms:
    return OperationForms(
        name=name,
        method="GET",
        path=path,
        summary=summary,
        tag=tag,
        query=query,
        headers=headers,
        public=public,
        answers={**answers, **_refusals(errors.InternalError)},
    )


def _etag(of: str) -> Mapping[str, Mapping[str, Any]]:
    return {"ETag": {"description": f"Changes with the {of}.", "schema": {"type": "string"}}}


UNCHANGED = AnswerForms(description="It still has the ETag of `If-None-Match`.")
CACHED: Mapping[str, Mapping[str, Any]] = {
    "If-None-Match": {"description": "The ETag of an earlier answer.", "schema": {"type": "string"}}
}

OWN: tuple[OperationForms, ...] = (
    _own(
        "getAgentCard",
        "/.well-known/agent-card.json",
        "Read the card of the default agent",
        CARDS,
        {
            "200": AnswerForms(
                description="The card. Unless `A2A-Version` names a version, it also has the fields of 0.3.",
                bodies={JSON: AgentCard},
                headers=_etag("card"),
            ),
            "304": UNCHANGED,
            **_refusals(errors.AgentNotFound),
        },
        headers={
            "A2A-Version": {
                "description": "The version whose card is wanted. Absent: one card for both.",
                "schema": {"type": "string", "enum": ["1.0"]},
            },
            **CACHED,
        },
    ),
    _own(
        "getCatalog",
        ai_catalog.PATH,
        "Read where the cards of all agents are, and that of the MCP server",
        CARDS,
        {
            "200": AnswerForms(
                description="The AI Catalog. To callers with credentials: with the agents that these may use.",
                bodies={ai_catalog.CONTENT_TYPE: ai_catalog.AiCatalog},
                headers=_etag("catalog"),
            ),
            "304": UNCHANGED,
            **_refusals(errors.Unauthorized, errors.Forbidden, errors.Unavailable),
        },
        headers=CACHED,
        public=False,
    ),
    _own(
        "listAgents",
        "/agents",
        "List and search the agents",
        CARDS,
        {
            "200": AnswerForms(description="A page of agents.", bodies={JSON: AgentList}),
            "304": UNCHANGED,
            **_refusals(errors.InvalidParams),
        },
        query=shapes.AgentQuery,
        headers=CACHED,
    ),
    _own(
        "getKeys",
        "/.well-known/jwks.json",
        "Read the keys that verify what this server signs",
        CARDS,
        {"200": AnswerForms(description="The keys.", bodies={JSON: JsonWebKeys})},
    ),
    _own(
        "getHealth",
        "/health",
        "Whether the process answers",
        SERVER,
        {"200": AnswerForms(description="It does.", bodies={JSON: Liveness})},
    ),
    _own(
        "getReadiness",
        "/ready",
        "Whether the server takes work",
        SERVER,
        {
            "200": AnswerForms(description="It does.", bodies={JSON: Readiness}),
            "503": AnswerForms(description="It does not, and says why.", bodies={JSON: Readiness}),
        },
    ),
    _own(
        "getMetrics",
        "/metrics",
        "Read the metrics, for Prometheus",
        SERVER,
        {
            "200": AnswerForms(
                description="Metrics.", bodies={"text/plain": None, "application/openmetrics-text": None}
            ),
            **_refusals(errors.Unauthorized, errors.Forbidden),
        },
        public=False,
    ),
)
"""The server's own paths."""
