"""Failures of a model's endpoint: whether the call is repeated, and otherwise how the task ends and in what words.

Invariant: pure. The caller reads the agent's name and, if a request was refused, the endpoint's reason without anything
that looks like a key. It reads no address and no text of a connection's exception.
"""

import re
from collections.abc import Mapping
from math import ceil

from dragoman.agents.acting_party import NOT_EXCHANGED
from dragoman.agents.model.completion import ApiFault
from dragoman.client.errors import ExchangeRefused, NoToken
from dragoman.engine.api import Ended
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.net.errors import EgressError, TimedOut
from dragoman.net.retry_after import retry_after_s

AGAIN_S = 5.0
"""Seconds until a call may be repeated, when the endpoint names no time."""

SPENT_S = 60.0
"""Likewise when the operator's credit is used up: somebody has to pay, or a new day has to begin."""

SAID_MAX = 300
"""The longest text of an endpoint that callers are shown."""

_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""Statuses after which a repeated call may succeed. The last ones are those of Cloudflare and overloaded endpoints."""

_OVERLOADED = frozenset({503, 529})
"""Statuses that mean that nothing was done."""

_WAITED_FOR = frozenset({502, 504, 524})
"""Statuses of a proxy that got no answer, or waited for too long: the model may have worked, and charges for that."""

_FILTERED = ("content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation")
_SPENT = ("insufficient_quota", "billing_hard_limit_reached", "insufficient_credits")
_TOO_LONG = ("context_length_exceeded", "string_above_max_length")

_SECRET = re.compile(r"\b(?:sk|pk|rk|gsk|xai|key|Bearer)[-_ ][A-Za-z0-9_*.-]{4,}|https?://\S+|AIza[\w-]{10,}")
"""Matches what looks like a key, or like a private address, in an endpoint's text."""


class Trouble(Exception):
    """One call of the model failed. `ended` is how the task ends if the call is not repeated.

    `again`: another call may succeed, after `after_s` if the endpoint said how long. `elsewhere`: a call of another
    endpoint may succeed, because the trouble is with this one and not with the request. `taken`: the endpoint may have
    worked on the request. `down`: it is away or unwell. `charged`: it may charge for tokens although it answered with
    an error. `why` is for the operator.
    """

    def __init__(
        self,
        ended: Ended,
        *,
        again: bool = False,
        after_s: float | None = None,
        elsewhere: bool | None = None,
        taken: bool = False,
        down: bool = False,
        charged: bool = False,
    ) -> None:
        super().__init__(ended.reason)
        self.ended = ended
        self.again = again
        self.after_s = after_s
        self.elsewhere = again if elsewhere is None else elsewhere
        self.taken = taken
        self.down = down
        self.charged = charged
        self.why = ""

    @property
    def silent(self) -> bool:
        """Whether the endpoint gave no answer, or not all of one, rather than an error."""
        return self.ended.reason in ("model_unreachable", "model_timeout", "model_broken")

    def explain(self, why: str) -> "Trouble":
        """The same, with words for the operator."""
        self.why = " ".join(why.split())
        return self


def failed(text: str, reason: str, retry_after_s: float | None = None) -> Ended:
    """The end of a task that failed, with a text of our own."""
    return Ended(TaskState.FAILED, (Part(text=text),), reason, retry_after_s)


def cut_off() -> Ended:
    """The end of a task whose answer reached its maximum length and is therefore incomplete."""
    text = "The answer is cut off: it has reached its maximum length."
    return Ended(TaskState.COMPLETED, (Part(text=text),), "model_length")


def refused(text: str, policy: str) -> Ended:
    """The end of a task that the model, or a filter of its endpoint, refused."""
    state = TaskState.FAILED if policy == "fail" else TaskState.REJECTED
    return Ended(state, (Part(text=text or "The model refuses to answer."),), "model_refused")


def unsendable(error: Exception) -> Ended:
    """The end of a task whose message holds something that the model cannot be given."""
    return Ended(TaskState.REJECTED, (Part(text=str(error)),), "model_part_unsupported")


def unreachable(name: str, again_s: float | None = AGAIN_S) -> Ended:
    """No call gets through. `again_s` is when one may; None: part of the task has already been done."""
    return failed(f"{name} cannot be reached at present: send again later.", "model_unreachable", again_s)


def lost(name: str, error: EgressError) -> Trouble:
    """No answer arrived, or it was cut off."""
    if isinstance(error, TimedOut):
        late = failed(f"{name} took too long: send again later.", "model_timeout")
        return Trouble(late, again=True, taken=True, down=True)
    return Trouble(_broken(name) if error.sent else unreachable(name), again=True, taken=error.sent, down=True)


def not_let_in(name: str, error: NoToken) -> Trouble:
    """There is no token for the endpoint, so that it was not called."""
    match error:
        case ExchangeRefused():
            text = f"{name} is called in your name, and your token is not accepted for that: send it with another one."
            return Trouble(failed(text, NOT_EXCHANGED))
        case NoToken(permanent=True):
            text = f"{name} does not let this server in: its operator has to check the credentials."
            return Trouble(failed(text, "model_refused_server"), elsewhere=True)
        case _:
            return Trouble(unreachable(name), again=True, down=True)


def _broken(name: str) -> Ended:
    return failed(f"{name} broke off its answer: send again later.", "model_broken")


def cut(name: str) -> Trouble:
    """The stream ended before the answer did."""
    return Trouble(_broken(name), again=True, taken=True, down=True)


def unreadable(name: str, *, begun: bool) -> Trouble:
    """The response is not an answer of this API, or not from some place on if it had `begun` as one."""
    text = f"{name} gave an answer that cannot be read. Its operator finds it in the log."
    return Trouble(failed(text, "model_unreadable"), elsewhere=True, taken=begun, down=True)


def classify_fault(
    name: str, fault: ApiFault, headers: Mapping[str, str], now_s: float, *, on_refusal: str, key: str
) -> Trouble:
    """Classify an error of the endpoint. `fault.status` is 0 for an error within a stream that has no status."""
    status, code = fault.status, fault.code
    if any(word in (code, fault.message) for word in _FILTERED):
        return Trouble(refused("The content filter of the model's endpoint does not let this through.", on_refusal))
    if code in _SPENT or status == 402:
        text = f"{name} takes no tasks: its operator's credit is used up."
        after = after_s(headers, now_s)
        return Trouble(failed(text, "model_spent", SPENT_S if after is None else after), elsewhere=True)
    if status in (401, 403):
        text = f"{name} does not let this server in: its operator has to check the credentials."
        return Trouble(failed(text, "model_refused_server"), elsewhere=True)
    if code in _TOO_LONG or "maximum context length" in fault.message:
        text = f"The conversation is too long for {name}: send less, or begin another context."
        return Trouble(failed(text, "model_context_too_long"))
    if status == 429 or "rate_limit" in code:
        return _busy(name, after_s(headers, now_s))
    if status in _AGAIN or not status or status >= 500:
        after = after_s(headers, now_s)
        down = status != 409
        text = f"{name} failed: the endpoint of its model has a fault of its own. Send again later."
        again_s = AGAIN_S if after is None and status in _OVERLOADED else after
        taken = status != 503 or after is None
        charged = status in _WAITED_FOR
        ended = failed(text, "model_failed", again_s)
        return Trouble(ended, again=True, after_s=after, taken=taken, down=down, charged=charged)
    if status == 404:
        text = f"{name} is set up wrong: its endpoint is elsewhere or has no such model. Its operator can fix it."
        return Trouble(failed(text, "model_not_found"), elsewhere=True)
    if 300 <= status < 400:
        text = f"{name} is set up wrong: its endpoint has moved. Its operator can fix it."
        return Trouble(failed(text, "model_moved"), elsewhere=True)
    return Trouble(failed(_with(f"{name} does not take this request", redact(fault.message, key)), "model_bad_request"))


def _busy(name: str, after: float | None) -> Trouble:
    when = "later" if after is None else f"in {ceil(after)} s"
    ended = failed(
        f"{name} has too much to do at present: send again {when}.", "model_busy", AGAIN_S if after is None else after
    )
    return Trouble(ended, again=True, after_s=after)


def after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Seconds that a response asks to wait (RFC 9110 §10.2.3, or OpenAI's and Azure's milliseconds); else None."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        said = headers.get(name, "").strip()
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", said, re.ASCII):
            return float(said) * unit_s
    return retry_after_s(headers.get("retry-after"), round(now_s * 1000))


def redact(text: str, key: str) -> str:
    """An endpoint's text without secrets, shortened for callers."""
    if key:
        text = text.replace(key, "…")
    text = " ".join(_SECRET.sub("…", text).split())
    return text if len(text) <= SAID_MAX else f"{text[:SAID_MAX]}…"


def _with(text: str, said: str) -> str:
    return f"{text}: {said}" if said else f"{text}."
