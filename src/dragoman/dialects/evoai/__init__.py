"""The dialect of Evo AI: `message/send` and `message/stream` at `/api/v1/a2a/{agent_id}`, frames of A2A 0.1.

Invariant: every key that Evo AI's own page shows is written in the order of that page; other keys come after those, and
docs/dialects.md lists them.
"""

import re

from dragoman.dialects import v03
from dragoman.dialects.api import Dialect
from dragoman.dialects.evoai import encode, errors
from dragoman.dialects.evoai.client import TONGUE
from dragoman.dialects.evoai.decode import METHODS, decode
from dragoman.dialects.requests import (
    ONLY_A_TASK,
    always,
    answer_in,
    by_task,
    names_task_id,
    refuse_version,
    slash,
    tagged_kind,
)
from dragoman.dialects.system import CardSign, Mount, Rule, ServerProfile, System, Variable
from dragoman.model.events import ArtifactChunk, StatusChanged
from dragoman.model.operations import Manners

STREAM_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
)
"""The first three are Evo AI's, in its order."""

COALESCE_S = 0.25
"""Shortest time between two frames of growing text: each frame repeats the text so far, and a person reads no faster.
"""

JSONRPC = Dialect(
    name="evoai",
    key="evoai",
    content_type="application/json",
    decode=decode,
    decode_rest=None,
    encode_result=encode.encode_result,
    encode_snapshot=encode.encode_snapshot,
    encode_message=encode.encode_message,
    encode_event=encode.encode_event,
    encode_error=errors.encode_error,
    error_status=errors.error_status,
    folds=frozenset({ArtifactChunk, StatusChanged}),
    manners=Manners(
        answers_with_message=False,
        subscribed_until_terminal=False,
        subscribes_to_ended=True,
        cancels_ended=True,
        late_is_error=True,
        failure_is_error=True,
        webhook="params.pushNotificationConfig",
    ),
    around_answer=encode.around_answer,
    around_frame=encode.around_frame,
    around_error=encode.around_error,
    http_error=errors.http_error,
    stream_headers=STREAM_HEADERS,
    coalesce_s=COALESCE_S,
    push=encode.FORM,
)

_PATH = re.compile(r"/api/v1/a2a(-sdk)?/")

MOUNT = Mount("/api/v1/a2a/{id}", ("0.3",), (), fixed=True)

SYSTEM = System(
    name="evoai",
    dialect=JSONRPC,
    methods=METHODS,
    tongue=TONGUE,
    # Cards of 0.3 must name their version (§5.5); Evo AI's does not.
    signs=(
        CardSign(
            kind="by its path",
            when=lambda seen: _PATH.search(seen.path) is not None and "protocolVersion" not in seen.card,
            url=lambda seen: seen.at or seen.base,
        ),
    ),
    mount=MOUNT,
    # Parts tagged `kind` are 0.3, all else is Evo AI.
    rules=(
        Rule(lambda facts: not facts.official and slash(facts) and tagged_kind(facts), refuse_version),
        Rule(lambda facts: facts.version == "0.3" or tagged_kind(facts), answer_in(v03.JSONRPC)),
        Rule(lambda facts: facts.name in ONLY_A_TASK and not names_task_id(facts), by_task(JSONRPC, v03.JSONRPC)),
        Rule(always, answer_in(JSONRPC)),
    ),
    unread=lambda version: JSONRPC,
    health_path=("api", "v1", "a2a", "health"),
    profile=ServerProfile(
        defaults={"port": "8000"},
        variables={
            "HOST": Variable("host"),
            "PORT": Variable("port"),
            "API_URL": Variable("public_url"),
            "CORS_ORIGINS": Variable("cors_origins"),
            "API_KEY": Variable("api_key"),
            "EVO_AI_API_KEY": Variable("api_key"),
        },
        asks_always=True,
        method="message/send",
        part={"type": "text"},
    ),
)

__all__ = ["JSONRPC", "METHODS", "MOUNT", "SYSTEM"]
