"""How frameworks are told to do what a check wants.

Invariant: a row names what the framework itself has, in the version that the doctor recognises. Without a row the fix
is that of the check.
"""

from collections.abc import Mapping

from dragoman.doctor.finding import Fixes
from dragoman.doctor.identity import ServerIdentity

_ENDS = "let `execute` end with a terminal status, for example `await updater.complete()`, after its last artifact"
_SENDER = "pass `push_config_store=` and `push_sender=BasePushNotificationSender(…)` to `DefaultRequestHandler`"

_PYTHON_03 = {
    "push-called": _SENDER,
    "push-served": _SENDER,
    "webhook-address": "give the push sender an HTTP client that refuses loopback and private addresses",
    "extended-card": "check the caller in `extended_card_modifier`, or pass no `extended_agent_card`",
    "extended-card-served": "pass `extended_agent_card=` to `A2AStarletteApplication`",
    "stream-ends": _ENDS,
    "stream-after-end": _ENDS,
    "cancel": "let `cancel` of the `AgentExecutor` stop the work, and call `await updater.cancel()`",
}
_JS = {
    "push-called": "pass a `PushNotificationStore` and a `PushNotificationSender` to `DefaultRequestHandler`",
    "push-served": "pass a `PushNotificationStore` to `DefaultRequestHandler`",
    "webhook-address": "write a `PushNotificationSender` that refuses loopback and private addresses",
    "extended-card-served": "pass the extended card, or a function that makes it, to `DefaultRequestHandler`",
    "extended-card": "pass a function as the extended card that refuses callers without an authenticated user",
    "stream-ends": "publish a status with a terminal state, and call `eventBus.finished()` after it",
    "cancel": "let `cancelTask` of the `AgentExecutor` stop the work and publish the state canceled",
}
_FASTA2A = "FastA2A has no setting for this: put a gateway before it that speaks A2A, or report it to FastA2A"

FIXES: Mapping[str, Mapping[str, str]] = {
    "the official Python SDK, 1.x": {
        **_PYTHON_03,
        "card-caching": "pass `cache_control='public, max-age=300'` to `create_agent_card_routes`",
        "webhook-address": "pass `push_url_validator=` to `DefaultRequestHandler`, which refuses such addresses",
        "extended-card-served": "pass `extended_agent_card=` to `DefaultRequestHandler`",
    },
    "the official Python SDK, 0.3": _PYTHON_03,
    "the official JavaScript SDK, 1.x": _JS,
    "the official JavaScript SDK, 0.3": _JS,
    "FastA2A": {
        "card-skills": "pass `skills=[Skill(…)]` to `FastA2A`, or to `agent.to_a2a`",
        **dict.fromkeys(
            (
                *(
                    "answer-values",
                    "broken-json",
                    "cancel-ended",
                    "message-blocks",
                    "message-to-unknown",
                    "missing-params",
                    "subscribe-ended",
                ),
                *("unknown-method", "unknown-version", "list", "history-length"),
            ),
            _FASTA2A,
        ),
    },
    "python-a2a": {
        "endpoint-answers": "python-a2a's server speaks only its own format, which its own client reads: serve A2A by "
        "another library, or put a gateway before it that knows python-a2a",
    },
}
"""The fixes by the name of the server and the check."""


def fixes_of(identity: ServerIdentity) -> Fixes:
    """Return the fixes of a recognised server; none for another."""
    return FIXES.get(identity.name, {}).get
