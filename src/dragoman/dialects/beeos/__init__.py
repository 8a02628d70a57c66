"""BeeOS: A2A's methods and a few of its own, flat tasks, bare SSE frames.

Invariant: an answer has every key that BeeOS's text shows, in its order; our own keys follow. A stream's frames have no
JSON-RPC envelope.
"""

from msgspec.structs import replace

from dragoman.dialects import v03, v1
from dragoman.dialects.api import Dialect
from dragoman.dialects.beeos import decode, encode, errors
from dragoman.dialects.beeos.client import TONGUE
from dragoman.dialects.cards import WELL_KNOWN
from dragoman.dialects.client.card import CardView, absolute_url
from dragoman.dialects.jsonrpc import error_status
from dragoman.dialects.requests import (
    ONLY_A_TASK,
    always,
    answer_in,
    by_task,
    lists_as_1,
    message_of_03,
    pascal,
    refuse_version,
    refusing,
    role_of_1,
    slash,
)
from dragoman.dialects.system import CardSign, Mount, OwnPath, RequestFacts, Rule, ServerProfile, System
from dragoman.model.errors import VersionNotSupported
from dragoman.model.events import StatusChanged
from dragoman.model.operations import Manners

METHODS = frozenset(decode.METHODS)
"""Every method name of BeeOS, including aliases."""

JSONRPC = Dialect(
    name="beeos",
    key="beeos",
    content_type="application/json",
    decode=decode.decode,
    decode_rest=None,
    encode_result=encode.encode_result,
    encode_snapshot=encode.encode_snapshot,
    encode_message=encode.encode_message,
    encode_event=encode.encode_event,
    encode_error=errors.encode_error,
    error_status=error_status,
    encode_subscription=encode.encode_subscription,
    folds=frozenset({StatusChanged}),
    manners=Manners(
        answers_with_message=False,
        subscribed_until_terminal=False,
        subscribes_to_ended=True,
        cancels_ended=True,
        late_is_error=True,
        webhook="configuration.pushNotificationConfig",
    ),
    around_frame=lambda _: (b"", b""),
    http_error=errors.http_error,
    push=encode.FORM,
    extensions_header=b"a2a-extensions",
)

REST = replace(
    JSONRPC, decode_rest=decode.decode_rest, encode_error=errors.envelope, error_status=errors.rest_error_status
)
"""The stream at `GET /{id}/stream`, with the envelope of its REST paths for errors. Frames are those of JSON-RPC."""


def _only_1(facts: RequestFacts) -> bool:
    """Whether 1.0 has the call and BeeOS does not."""
    if not pascal(facts):
        return False
    return facts.name not in METHODS or role_of_1(facts) or (facts.name == "ListTasks" and lists_as_1(facts))


def _only_03(facts: RequestFacts) -> bool:
    """Whether 0.3 has the call and BeeOS does not."""
    return slash(facts) and (facts.name not in METHODS or role_of_1(facts) or message_of_03(facts))


def _refuse_version(facts: RequestFacts) -> Dialect:
    """Refuse an unknown version. BeeOS's gateway also knows 1.0 and 0.3, and refuses every other one."""
    if _only_1(facts) or _only_03(facts):
        return refuse_version(facts)
    return refusing(JSONRPC, VersionNotSupported(facts.version))


def _endpoint(seen: CardView) -> str:
    named = seen.card.get("supportedInterfaces")
    url = absolute_url(named.get("a2a"), seen.card_url) if isinstance(named, dict) else ""
    return url or seen.at or seen.base


def _card_urls(base: str) -> tuple[str, ...]:
    """Return the older place of a card, `/.well-known/agent-card.json?id=…`."""
    origin, last = "/".join(base.split("/", 3)[:3]), base.rpartition("/")[2]
    return () if base == origin else (f"{origin}{WELL_KNOWN[0]}?id={last}",)


# Some calls of BeeOS and of the official versions look the same here, and only the task's own dialect tells them apart.
# A card promises only what holds for every call.
TENANT = Mount("/{id}", ("0.3",), ("1.0",))

SYSTEM = System(
    name="beeos",
    dialect=JSONRPC,
    methods=METHODS,
    tongue=TONGUE,
    # Its page of cards has an object, {"a2a": url, "mcp": url, "rest": url}. Its overview has an array instead, and is
    # recognised by the names of its schemes.
    signs=(
        CardSign(
            kind="by the object",
            when=lambda seen: isinstance(seen.card.get("supportedInterfaces"), dict),
            url=_endpoint,
            certain=True,
        ),
        CardSign(
            kind="by its schemes",
            when=lambda seen: {"agentApiKey", "userJwt"} <= seen.schemes.keys(),
            url=_endpoint,
            certain=True,
        ),
    ),
    card_urls=_card_urls,
    mount=TENANT,
    # BeeOS clients send A2A-Version: 1.0 on everything, so 1.0 is no signal here; 0.3 is one with 0.3's method names.
    rules=(
        Rule(lambda facts: not (pascal(facts) or slash(facts) or facts.name in METHODS), answer_in(JSONRPC)),
        Rule(lambda facts: not facts.official, _refuse_version),
        Rule(lambda facts: facts.version == "0.3" and (slash(facts) or _only_1(facts)), answer_in(v03.JSONRPC)),
        Rule(_only_1, answer_in(v1.JSONRPC)),
        Rule(_only_03, answer_in(v03.JSONRPC)),
        Rule(lambda facts: facts.name in ONLY_A_TASK and pascal(facts), by_task(JSONRPC, v1.JSONRPC)),
        Rule(lambda facts: facts.name in ONLY_A_TASK, by_task(JSONRPC, v03.JSONRPC)),
        Rule(always, answer_in(JSONRPC)),
    ),
    unread=lambda version: JSONRPC,
    paths=(OwnPath(mounts=(TENANT,), path="stream", methods={"GET": "SubscribeToTask"}, dialect=REST),),
    profile=ServerProfile(defaults={"port": "8092"}, method="SendMessage", part={"kind": "text"}),
)

__all__ = ["JSONRPC", "METHODS", "REST", "SYSTEM", "TENANT"]
