"""The end of a task that its upstream did not carry out: its state, and the words for the caller.

Invariant: pure. The caller reads the upstream's name and the upstream's own words. It reads no address and no text of a
connection's exception.
"""

from math import ceil

from dragoman.client.errors import CallTimedOut, HttpRefusal, NoAnswer, NoToken, NotReached, PeerError
from dragoman.engine.api import Ended
from dragoman.model.errors import (
    A2AError,
    AgentFailed,
    AgentNotFound,
    AgentOffline,
    Forbidden,
    InternalError,
    InvalidAgentResponse,
    MethodNotFound,
    NotFound,
    TaskNotFound,
    TaskTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.net.errors import AddressRefused, EgressError

Failure = A2AError | NoAnswer | PeerError | EgressError

UNREACHABLE = "upstream_unreachable"
"""The reason code of a task that failed because its upstream did not answer."""


NOT_THERE = frozenset({404, 405, 410})
"""The statuses of a server that has no agent at a URL."""


def ended(state: TaskState, text: str, reason: str = "", retry_after_s: float | None = None) -> Ended:
    """The end of a task with a text of our own."""
    return Ended(state, (Part(text=text),), reason, retry_after_s)


def unreachable(name: str, again_s: float | None) -> Ended:
    """No attempt got through, and nothing was done. `again_s` as in `ending`."""
    text = f"{name} cannot be reached at present: send again {_when(again_s)}."
    return ended(TaskState.FAILED, text, UNREACHABLE, again_s)


def busy(name: str, again_s: float | None) -> Ended:
    """The upstream answered that it takes nothing at present, and nothing was done. `again_s` as in `ending`."""
    text = f"{name} takes no tasks at present: send again {_when(again_s)}."
    return ended(TaskState.FAILED, text, "upstream_busy", again_s)


def _when(again_s: float | None) -> str:
    return "later" if again_s is None else f"in {ceil(again_s)} s"


def asked_s(error: Failure) -> float:
    """Seconds that the upstream asks to wait before the next send, 0 if it does not."""
    return (error.retry_after_s or 0.0) if isinstance(error, A2AError | HttpRefusal) else 0.0


def unreadable(name: str) -> Ended:
    """It answered, and nobody knows what."""
    return ended(TaskState.FAILED, f"{name} gave an answer that cannot be read.", "upstream_unreadable")


def uncertain(name: str) -> Ended:
    """It is unknown whether the upstream has the message, so it is not sent again."""
    return ended(
        TaskState.FAILED,
        f"{name} did not answer in time: it may or may not have done what was asked.",
        "upstream_uncertain",
    )


def forgotten(name: str) -> Ended:
    """The upstream no longer knows its task."""
    return ended(TaskState.FAILED, f"{name} does not know the task any more.", "upstream_lost_task")


def unverified(name: str) -> Ended:
    """The upstream's card is not signed as the operator requires, so the upstream is not called."""
    text = f"{name} is not called: its card is not signed as its operator here requires."
    return ended(TaskState.FAILED, text, "upstream_unverified")


def not_there(error: Exception) -> bool:
    """Whether an error says that there is no agent at the called address."""
    return isinstance(error, AgentNotFound | NotFound) or (isinstance(error, HttpRefusal) and error.status in NOT_THERE)


def shuts_out(error: Exception) -> bool:
    """Whether an error says that the upstream does not let this server in."""
    refused = isinstance(error, HttpRefusal) and error.status in (401, 403)
    return refused or isinstance(error, Unauthorized | Forbidden)


def absent(name: str) -> Ended:
    """A server answers at the address, but has no agent there."""
    text = f"There is no agent at the address of {name}: its operator here has to check `run`."
    return ended(TaskState.FAILED, text, "upstream_not_found")


def ending(name: str, error: Failure, again_s: float | None = None) -> Ended:
    """How the task ends after `error`.

    `again_s` is when a send may be repeated, if the upstream does not say. None: the upstream has already done part of
    the task, so the send must not be repeated.
    """
    match error:
        case NoAnswer(sent=True) | EgressError(sent=True):
            late = isinstance(error, CallTimedOut)
            return ended(TaskState.FAILED, f"{name} took too long.", "upstream_timeout") if late else uncertain(name)
        case NotReached(permanent=True) | AddressRefused():
            text = f"{name} cannot be called: its operator here has to check its address."
            return ended(TaskState.FAILED, text, UNREACHABLE)
        case NoAnswer() | EgressError():
            return unreachable(name, again_s)
        case _ if not_there(error):
            return absent(name)
        case NoToken() | PeerError() | A2AError() if isinstance(error, NoToken) or shuts_out(error):
            text = f"{name} does not let this server in: its operator has to check the credentials."
            return ended(TaskState.FAILED, text, "upstream_refused")
        case TaskTimeout():
            return ended(TaskState.FAILED, f"{name} failed: {error.message}", "upstream_failed")
        case InvalidAgentResponse():  # something may have been done, whatever it says of coming back
            return unreadable(name)
        case (
            Unavailable()
            | AgentOffline()
            | TooManyRequests()
            | HttpRefusal(status=429 | 503)
            | A2AError(retry_after_s=int())
        ):
            return busy(name, None if again_s is None else asked_s(error) or again_s)
        case PeerError() | MethodNotFound():
            return unreadable(name)
        case TaskNotFound():
            return forgotten(name)
        case AgentFailed():
            return ended(TaskState.FAILED, error.details or f"{name} failed.")
        case InternalError():
            return ended(TaskState.FAILED, f"{name} failed: {error.message}", "upstream_failed")
        case A2AError():
            return ended(TaskState.REJECTED, error.message, "upstream_rejected")
