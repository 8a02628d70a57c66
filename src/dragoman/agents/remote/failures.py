"""Why a call to an upstream failed: the end of the task, in words for its caller; the fault, in words for the operator.

Invariant: pure. The caller reads the upstream's name and the upstream's own words. It reads no address and no text of a
connection's exception. The operator reads which key of the configuration to change.
"""

from collections.abc import Iterable
from math import ceil

from dragoman.agents.acting_party import NOT_EXCHANGED
from dragoman.agents.remote.card import NoKeys
from dragoman.auth.signatures import CardNotVerified
from dragoman.client.errors import (
    CallTimedOut,
    ExchangeRefused,
    HttpRefusal,
    NoAnswer,
    NoCard,
    NotInstalled,
    NoToken,
    NotReached,
    PeerError,
)
from dragoman.engine.api import Ended
from dragoman.engine.upstream_notes import CONVERSATION_AWAY, MEMBER_AWAY
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
from dragoman.model.extras import install_command
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.net.errors import AddressRefused, EgressError

CallFailure = A2AError | NoAnswer | PeerError | EgressError

UNREACHABLE = "upstream_unreachable"
"""The reason code of a task that failed because its upstream did not answer."""

UNREADABLE = "upstream_unreadable"
"""The reason code of a task whose upstream sent what cannot be read."""

NOT_THERE = frozenset({404, 405, 410})
"""The statuses of a server that has no agent at a URL."""

NOT_READ = "its card has not been read yet"
LATE = "its card did not come in time"
NO_CARD = "it has no card where one is expected"
NO_TOKEN = "there is no token for it"
NO_KEYS = "the keys that must have signed its card cannot be read"
NOT_SIGNED = "its card is not signed by a key of `card_keys`"
NOT_INSTALLED = "it is called over gRPC, which is not installed here"
NOT_HAD = "its card cannot be read"
NOT_CALLED = "its card names an address that is not called from here"
NOT_REACHED = "its endpoint does not answer"
NOT_LET_IN = "it does not let this server in"
NO_AGENT_THERE = "there is no agent where it is called"
BUSY = "it takes no tasks at present"
NOT_WELL = "its endpoint does not answer as an agent does"

FIXES = {
    LATE: "see whether it runs, and whether a firewall is in between",
    NO_CARD: "see whether the URL in `run` is right; `card` says where the card is, `dialect` does without one",
    NO_TOKEN: "see whether `credentials` are right: `token_url`, `client_id`, and the secret in the environment",
    NO_KEYS: "see whether `card_keys` names the file, or the URL, of a JWK Set",
    NOT_SIGNED: "see who signed it, and which keys its server publishes",
    NOT_CALLED: "add that server to `origins` if it may be called, or have its operator correct the card",
    NOT_REACHED: "see whether it runs where its card says, and whether a firewall is in between",
    NOT_INSTALLED: f"install it: run {install_command('grpc')}",
    NOT_LET_IN: "see whether `credentials` are right: the variable of the environment, and the `header`",
    NO_AGENT_THERE: "see whether the URL in `run` is right, and the one that its card names",
    BUSY: "try again later; if it stays so, ask its operator",
    NOT_WELL: "see what is there: a proxy, a page, or an agent that is starting",
    NOT_HAD: "see whether it runs and the URL in `run` is right, and whether it wants `credentials`",
}
"""The fix for each of the faults."""

Unfound = NoAnswer | PeerError | CardNotVerified | NoKeys

UNFOUND = (NoAnswer, PeerError, CardNotVerified, NoKeys)
"""The errors of a search for a card that finds no usable one."""

_KEYS = {
    "`path=`": "`card`",
    "`dialect=`": "`dialect`",
    "`origins=`": "`origins`",
    "Retries(dedupes=True)": "`dedupes = true`",
}
"""Arguments in the client's error texts, and the configuration keys that replace them."""


class CallWithheld(NoAnswer):
    """No call was made to one member of a pool. `ended` is how the task ends if no other one can be called."""

    def __init__(self, url: str, message: str, ended: Ended) -> None:
        super().__init__(url, message)
        self.ended = ended


def ended(state: TaskState, text: str, reason: str = "", retry_after_s: float | None = None) -> Ended:
    """The end of a task with a text of our own."""
    return Ended(state, (Part(text=text),), reason, retry_after_s)


def ending(name: str, error: CallFailure, again_s: float | None = None) -> Ended:
    """How the task ends after `error`.

    `again_s` is when a send may be repeated, if the upstream does not say. None: the upstream has already done part of
    the task, so the send must not be repeated.
    """
    match error:
        case CallWithheld():
            return error.ended
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
        case ExchangeRefused():
            return not_exchanged(name)
        case NoToken() | PeerError() | A2AError() if isinstance(error, NoToken) or shuts_out(error):
            text = f"{name} does not let this server in: its operator has to check the credentials."
            return ended(TaskState.FAILED, text, "upstream_refused")
        case TaskTimeout():
            return ended(TaskState.FAILED, f"{name} failed: {error.message}", "upstream_failed")
        case AgentFailed():  # it tried, so a wait that it asks for does not mean that nothing was done
            return ended(TaskState.FAILED, error.details or f"{name} failed.")
        case InvalidAgentResponse():  # something may have been done, whatever it says of coming back
            return unreadable(name)
        case (
            Unavailable() | AgentOffline() | TooManyRequests() | HttpRefusal(status=429 | 503) | A2AError(untaken=True)
        ):
            return busy(name, None if again_s is None else asked_s(error) or again_s)
        case PeerError() | MethodNotFound():
            return unreadable(name)
        case TaskNotFound():
            return forgotten(name)
        case InternalError():
            return ended(TaskState.FAILED, f"{name} failed: {error.message}", "upstream_failed")
        case A2AError():
            return ended(TaskState.REJECTED, error.message, "upstream_rejected")


def unreachable(name: str, again_s: float | None) -> Ended:
    """No attempt got through, and nothing was done. `again_s` as in `ending`."""
    text = f"{name} cannot be reached at present: send again {_when(again_s)}."
    return ended(TaskState.FAILED, text, UNREACHABLE, again_s)


def offline(name: str, again_s: float | None) -> Ended:
    """The member of the pool that has the conversation cannot be reached. `again_s` as in `ending`."""
    text = f"{name} is offline for this conversation: {CONVERSATION_AWAY}. Send again {_when(again_s)}."
    return ended(TaskState.FAILED, text, MEMBER_AWAY, again_s)


def uncertain(name: str) -> Ended:
    """It is unknown whether the upstream has the message, so it is not sent again."""
    return ended(
        TaskState.FAILED,
        f"{name} did not answer in time: it may or may not have done what was asked.",
        "upstream_uncertain",
    )


def not_exchanged(name: str) -> Ended:
    """The caller's token is not accepted for calls in its name."""
    text = f"{name} is called in your name, and your token is not accepted for that: send the message with another one."
    return ended(TaskState.FAILED, text, NOT_EXCHANGED)


def removed(name: str) -> Ended:
    """The member of the pool that has the task is not in the configuration any more."""
    text = f"{name} is not where it was when it took the task: its operator here has to check `pool`."
    return ended(TaskState.FAILED, text, "upstream_removed")


def forgotten(name: str) -> Ended:
    """The upstream no longer knows its task."""
    return ended(TaskState.FAILED, f"{name} does not know the task any more.", "upstream_lost_task")


def unverified(name: str) -> Ended:
    """The upstream's card is not signed as the operator requires, so the upstream is not called."""
    text = f"{name} is not called: its card is not signed as its operator here requires."
    return ended(TaskState.FAILED, text, "upstream_unverified")


def asked_s(error: CallFailure) -> float:
    """Seconds that the upstream asks to wait before the next send, 0 if it does not."""
    return (error.retry_after_s or 0.0) if isinstance(error, A2AError | HttpRefusal) else 0.0


def not_there(error: Exception) -> bool:
    """Whether an error says that there is no agent at the called address."""
    return isinstance(error, AgentNotFound | NotFound) or (isinstance(error, HttpRefusal) and error.status in NOT_THERE)


def shuts_out(error: Exception) -> bool:
    """Whether an error says that the upstream does not let this server in."""
    refused = isinstance(error, HttpRefusal) and error.status in (401, 403)
    return refused or isinstance(error, Unauthorized | Forbidden)


def fault_of(error: Unfound) -> str:
    """Return the fault that an error stands for."""
    match error:
        case NoCard():
            return NO_CARD
        case NoToken():
            return NO_TOKEN
        case NoKeys():
            return NO_KEYS
        case NotInstalled():
            return NOT_INSTALLED
        case CardNotVerified():
            return NOT_SIGNED
        case _:
            return NOT_HAD


def in_words(error: Exception) -> str:
    """An error's text on one line, with configuration keys in place of the client's arguments."""
    head, *tried = str(error).split("\n  ")  # the places where a card was looked for, one a line
    text = f"{head} {'; '.join(tried)}" if tried else head
    for argument, key in _KEYS.items():
        text = text.replace(argument, key)
    return text


def busy(name: str, again_s: float | None) -> Ended:
    """The upstream answered that it takes nothing at present, and nothing was done. `again_s` as in `ending`."""
    text = f"{name} takes no tasks at present: send again {_when(again_s)}."
    return ended(TaskState.FAILED, text, "upstream_busy", again_s)


def _when(again_s: float | None) -> str:
    return "later" if again_s is None else f"in {ceil(again_s)} s"


def left_out(name: str, faults: Iterable[str]) -> Part:
    """The words for the caller of a task whose upstream sent content that could not be passed on."""
    return Part(text=f"{name} sent content that cannot be read, which is left out: {'; '.join(faults)}.")


def unreadable(name: str) -> Ended:
    """It answered, and nobody knows what."""
    return ended(TaskState.FAILED, f"{name} gave an answer that cannot be read.", UNREADABLE)


def absent(name: str) -> Ended:
    """A server answers at the address, but has no agent there."""
    text = f"There is no agent at the address of {name}: its operator here has to check `run`."
    return ended(TaskState.FAILED, text, "upstream_not_found")
