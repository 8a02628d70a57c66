"""The document at `/openapi.json`: a table of operations for each API that this server speaks over HTTP.

Invariant: what is described is what is served; `tests/peers/test_openapi.py` holds real answers against it. Paths that
follow another protocol are not described: JSON-RPC of every dialect, MCP, and the vendors' own paths.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from dragoman.bindings.openapi import a2a, calls, chat, legacy, own, responses, shapes, workers
from dragoman.bindings.openapi.a2a import A2A
from dragoman.bindings.openapi.calls import CALLS
from dragoman.bindings.openapi.chat import CHAT
from dragoman.bindings.openapi.document import DocumentInfo, OperationForms, Schemas, make_document
from dragoman.bindings.openapi.legacy import LEGACY
from dragoman.bindings.openapi.own import OWN
from dragoman.bindings.openapi.responses import RESPONSES
from dragoman.bindings.openapi.workers import WORKERS

ABOUT = (
    "Agents over HTTP. The paths of Messages, Tasks and Webhooks are HTTP+JSON of the Agent2Agent (A2A) protocol, "
    "version 1.0 (§11); those of A2A 0.3 are below `/v1`. They lead to the default agent; `/agents/{agent}` in front "
    "of them leads to another one. There the header `A2A-Version: 1.0` is needed for 1.0. The same server speaks "
    "JSON-RPC, MCP and the dialects of other systems at addresses that are not described here: the agent cards name "
    "them. A server without keys accepts requests without authentication."
)

OPERATIONS: tuple[OperationForms, ...] = (*A2A, *LEGACY, *CHAT, *RESPONSES, *WORKERS, *OWN)
"""All operations; each table has a module of its own."""

TAGS: Mapping[str, str] = {
    **a2a.TAGS,
    **calls.TAGS,
    **legacy.TAGS,
    **chat.TAGS,
    **responses.TAGS,
    **workers.TAGS,
    **own.TAGS,
}

NULLS = frozenset({*legacy.NULLS, *chat.NULLS, *responses.NULLS, *workers.NULLS})
"""Structs that write null where a value is missing; all others leave the field out."""


ONE_OF = {**shapes.ONE_OF, **legacy.ONE_OF}
"""Structs of which exactly one of some fields is set."""


class ServedPaths(Struct, frozen=True):
    """The optional parts of a server, and its `default` agent, to which the paths at the root lead; empty for none."""

    default: str
    metrics: bool = True
    keys: bool = True
    workers: bool = True


def make_server_document(version: str, served: ServedPaths, mount: str = "") -> dict[str, Any]:
    """The document of a server with these parts. `version` is that of the server, and `mount` the path before all."""
    usual = [{"url": f"{mount}/", "description": f"The default agent, {served.default}."}] if served.default else []
    agent = {
        "url": mount + "/agents/{agent}",
        "description": "Any agent, by its id.",
        "variables": {"agent": {"default": served.default or "ID"}},
    }
    of_agents = {operation.path for operation in (*A2A, *LEGACY)}

    def servers(path: str) -> Sequence[Mapping[str, Any]] | None:
        return [*usual, agent] if path in of_agents else None

    left_out = {*(() if served.metrics else ("getMetrics",)), *(() if served.keys else ("getKeys",))}
    left_out |= set() if served.workers else {each.name for each in WORKERS}
    described = tuple(each for each in OPERATIONS if each.name not in left_out)
    tags = {each.tag for each in (*described, *CALLS)}
    info = DocumentInfo(
        title="Dragoman",
        version=version,
        description=ABOUT,
        security=[{}, {"apiKey": []}, {"bearer": []}],
        tags={tag: about for tag, about in TAGS.items() if tag in tags},
        servers=servers,
        refine=_refine,
    )
    document = make_document(info, described, CALLS)
    if mount:
        document["servers"] = [{"url": mount}]
    for query in {each.query for each in described if each.query is not None}:  # its fields are parameters
        del document["components"]["schemas"][query.__name__]
    return document


def _refine(schemas: Schemas) -> None:
    """Say what the structs' types cannot: what is never null, never on the wire, and exclusive."""
    for name, schema in schemas.items():
        if "description" in schema:  # the other paragraphs of a docstring speak to programmers
            schema["description"] = " ".join(schema["description"].partition("\n\n")[0].split())
        properties = schema.get("properties", {})
        for internal in shapes.INTERNAL.get(name, ()):
            del properties[internal]
        for field, described in properties.items():
            choices = [each for each in described.get("anyOf", ()) if each != {"type": "null"}]
            if described.get("default", choices) is None and len(choices) == 1 and name not in NULLS:
                # Absent rather than null; a description beside a reference is allowed since OpenAPI 3.1.
                said = {key: value for key, value in described.items() if key not in ("anyOf", "default")}
                properties[field] = described = {**choices[0], **said}
            if described.get("default", schema) in ("", [], {}):
                del described["default"]  # nothing, which is the same as absent
        if name in ONE_OF:
            schema["oneOf"] = [{"required": [field]} for field in ONE_OF[name]]
