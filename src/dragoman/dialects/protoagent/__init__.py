"""The dialect of protoAgent: 0.3 at `/a2a`, with `data` beside a task's artifacts and the extensions of protoLabs.

Invariant: a superset of 0.3: every object has the `kind` and the ids that the official 0.3 clients require.
"""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from dragoman.dialects import v1
from dragoman.dialects.api import Dialect
from dragoman.dialects.cards import WELL_KNOWN
from dragoman.dialects.protoagent import encode
from dragoman.dialects.protoagent.client import TONGUE
from dragoman.dialects.protoagent.decode import METHODS, decode, decode_rest
from dragoman.dialects.protoagent.extensions import EXTENSIONS
from dragoman.dialects.requests import always, answer_in, pascal, refuse_version
from dragoman.dialects.system import CardSign, Mount, OwnPath, Rule, ServerProfile, System, Variable
from dragoman.dialects.v03.errors import encode_error, error_status
from dragoman.model.events import StatusChanged
from dragoman.model.operations import Manners

JSONRPC = Dialect(
    name="protoagent",
    key="protoagent",
    content_type="application/json",
    decode=decode,
    decode_rest=None,
    encode_result=encode.encode_result,
    encode_snapshot=encode.encode_snapshot,
    encode_message=encode.encode_message,
    encode_event=encode.encode_event,
    encode_error=encode_error,
    error_status=error_status,
    encode_subscription=encode.encode_subscription,
    folds=frozenset({StatusChanged}),
    manners=Manners(
        answers_with_message=False,
        subscribed_until_terminal=False,
        subscribes_to_ended=True,
        cancels_ended=True,
        absent_webhook_is_none=True,
        webhook="configuration.pushNotificationConfig",
    ),
    http_error=encode.http_error,
    push=encode.FORM,
)

REST = replace(
    JSONRPC,
    decode_rest=decode_rest,
    encode_result=encode.encode_rest_result,
    encode_error=encode.encode_rest_error,
    error_status=encode.rest_error_status,
    http_error=None,
)
"""The aliases below `/a2a/tasks`: the same objects without an envelope, and errors as `{"detail": …}`."""

_EXTENSION = re.compile(r"https://(proto-labs|protolabs)\.ai/a2a/ext/")
"""The prefixes of its extension URIs; the second was in use until May 2026."""

MOUNT = Mount("/a2a", ("1.0", "0.3"), (), fixed=True)


def _card_urls(base: str) -> tuple[str, ...]:
    """Return the places beside its endpoint: it serves no card below that."""
    above, _, last = base.rpartition("/")
    return tuple(above + known for known in WELL_KNOWN) if last == "a2a" else ()


def _key_variables(environ: Mapping[str, str]) -> Mapping[str, Variable]:
    """Return the variable of its key, which is named after the agent: AGENT_NAME=my-agent, MY_AGENT_API_KEY."""
    stem = re.sub(r"[^A-Z0-9]", "_", (environ.get("AGENT_NAME") or "protoagent").upper())
    return {f"{stem}_API_KEY": Variable("api_key")}


SYSTEM = System(
    name="protoagent",
    dialect=JSONRPC,
    methods=METHODS,
    tongue=TONGUE,
    # Cards of 0.3 must name their version (§5.5); protoAgent's does not.
    signs=(
        CardSign(
            kind="by its extensions",
            when=lambda seen: any(_EXTENSION.match(uri) for uri in seen.uris),
            url=lambda seen: seen.at or f"{seen.base.removesuffix('/a2a')}/a2a",
        ),
        CardSign(
            kind="by its path",
            when=lambda seen: seen.path.rstrip("/") == "/a2a" and "protocolVersion" not in seen.card,
            url=lambda seen: seen.at or seen.base,
        ),
    ),
    card_urls=_card_urls,
    mount=MOUNT,
    # protoAgent's 1.0 clients use 1.0's names, all others those of 0.3. Its dialect is a superset of 0.3.
    rules=(
        Rule(lambda facts: pascal(facts) and facts.version in ("1.0", ""), answer_in(v1.JSONRPC)),
        Rule(lambda facts: facts.name in METHODS and facts.version in ("0.3", ""), answer_in(JSONRPC)),
        Rule(lambda facts: facts.version == "1.0", answer_in(v1.JSONRPC)),
        Rule(lambda facts: not facts.official and (pascal(facts) or facts.name in METHODS), refuse_version),
        Rule(always, answer_in(JSONRPC)),
    ),
    unread=lambda version: v1.JSONRPC if version == "1.0" else JSONRPC,
    paths=(
        OwnPath(mounts=(MOUNT,), path="tasks/{id}", methods={"GET": "GetTask", "HEAD": "GetTask"}, dialect=REST),
        # POST and GET of `pushNotificationConfig` register and list.
        OwnPath(
            mounts=(MOUNT,),
            path="tasks/{task_id}/pushNotificationConfig",
            methods={"POST": "CreateTaskPushNotificationConfig", "GET": "ListTaskPushNotificationConfigs"},
            dialect=REST,
        ),
    ),
    extensions=EXTENSIONS,
    profile=ServerProfile(
        defaults={"port": "7870"},
        variables={
            "PROTOAGENT_HOST": Variable("host"),
            "A2A_PUBLIC_URL": Variable("public_url"),
            "LOG_LEVEL": Variable("log_level"),
            "A2A_AUTH_TOKEN": Variable("api_key"),
        },
        named_variables=_key_variables,
        method="message/send",
        part={"kind": "text"},
    ),
)

__all__ = ["EXTENSIONS", "JSONRPC", "METHODS", "MOUNT", "REST", "SYSTEM"]
