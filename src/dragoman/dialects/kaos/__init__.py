"""KAOS: a task runs to its end within the call and is answered flat, with its history. It has no streams and no push.

Invariant: an answer has every key that KAOS's text shows, in its order; our own keys follow.
"""

from dragoman.dialects.api import Dialect
from dragoman.dialects.jsonrpc import error_status
from dragoman.dialects.kaos import decode, encode
from dragoman.dialects.kaos.client import TONGUE
from dragoman.dialects.requests import answer_in, pascal, slash
from dragoman.dialects.system import ROOT, CardSign, RequestFacts, Rule, ServerProfile, System, Variable
from dragoman.model.operations import Manners

METHODS = frozenset(decode.METHODS)
"""Every method name of KAOS, including aliases."""

JSONRPC = Dialect(
    name="kaos",
    key="kaos",
    content_type="application/json",
    decode=decode.decode,
    decode_rest=None,
    encode_result=encode.encode_result,
    encode_snapshot=encode.encode_snapshot,
    encode_message=encode.encode_message,
    encode_event=encode.encode_event,
    encode_error=encode.encode_error,
    error_status=error_status,
    manners=Manners(answers_with_message=False, cancels_ended=True),
    extensions_header=b"a2a-extensions",
)

TASK_STORE_TYPE = Variable(
    "tasks",
    {"local": "true", "null": "false"},
    "must be local (tasks in memory) or null (no tasks); for tasks that last, set store = sqlite:///path",
)
"""The variable that tells KAOS where to keep tasks. `null` keeps none: a card shows no A2A capabilities."""


def _named_as_kaos(facts: RequestFacts) -> bool:
    """Whether the name is KAOS's, or in no known naming scheme. A name that 0.3 has too may be either's."""
    if facts.name in METHODS:
        return not slash(facts)
    return not pascal(facts) and "/" not in facts.name


SYSTEM = System(
    name="kaos",
    dialect=JSONRPC,
    methods=METHODS,
    tongue=TONGUE,
    # The URL is where the card was found, as for KAOS's own client: the card's `url` is the host's own view.
    signs=(
        CardSign(
            kind="by its list",
            when=lambda seen: isinstance(seen.card.get("supportedProtocols"), list),
            url=lambda seen: seen.base + "/" if "jsonrpc" in (seen.card["supportedProtocols"] or ()) else "",
        ),
    ),
    mount=ROOT,
    # KAOS clients send no version: its names without one are KAOS.
    shared={ROOT: (Rule(lambda facts: facts.version == "" and _named_as_kaos(facts), answer_in(JSONRPC)),)},
    profile=ServerProfile(
        defaults={"port": "8000", "store": "memory:", "telemetry_prefix": "kaos", "push": "false"},
        variables={
            "AGENT_PORT": Variable("port"),
            "AGENT_LOG_LEVEL": Variable("log_level"),
            "OTEL_ENABLED": Variable("telemetry"),
            "TASK_STORE_TYPE": TASK_STORE_TYPE,
        },
        history=True,
        method="SendMessage",
        part={"type": "text"},
    ),
)

__all__ = ["JSONRPC", "METHODS", "SYSTEM", "TASK_STORE_TYPE"]
