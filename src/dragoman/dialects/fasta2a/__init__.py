"""FastA2A, as its client speaks (2.1.1): 0.3's method names around the objects of 1.0, whose enums are in lowercase.

Invariant: every answer passes the client's own validation: results are `{"task": …}` for a send and bare for a task
that is asked for, and the errors of a task have exactly the client's words.
"""

from dragoman.dialects.api import Dialect
from dragoman.dialects.fasta2a import encode
from dragoman.dialects.fasta2a.decode import METHODS, decode
from dragoman.dialects.requests import answer_in, role_of_1, untagged
from dragoman.dialects.system import AGENT, ROOT, RequestFacts, Rule, System
from dragoman.dialects.v03.errors import error_status
from dragoman.model.operations import Manners

JSONRPC = Dialect(
    name="fasta2a",
    key="fasta2a",
    content_type="application/json",
    decode=decode,
    decode_rest=None,
    encode_result=encode.encode_result,
    encode_snapshot=encode.encode_snapshot,
    encode_message=encode.encode_message,
    encode_event=encode.encode_event,
    encode_error=encode.encode_error,
    error_status=error_status,
    manners=Manners(
        subscribed_until_terminal=False,
        subscribes_to_ended=True,
        webhook="configuration.taskPushNotificationConfig",
    ),
    push=encode.FORM,
    extensions_header=b"a2a-extensions",
)


def _sends(facts: RequestFacts) -> bool:
    """Whether it is a send without a version, whose parts have no tag, as every client of 0.3 sends, nor 1.0's role."""
    sends = facts.version == "" and facts.name in ("message/send", "message/stream")
    return sends and untagged(facts) and not role_of_1(facts)


_RULES = (Rule(_sends, answer_in(JSONRPC)),)

SYSTEM = System(name="fasta2a", dialect=JSONRPC, methods=METHODS, shared={ROOT: _RULES, AGENT: _RULES})

__all__ = ["JSONRPC", "METHODS", "SYSTEM"]
