"""What a client meets instead of a result.

    PeerError                the peer was asked, and has not done it
    ├── HttpRefusal          a status that is not 2xx, with nothing that explains it
    └── NoToken              no token for it: it was not asked
    NoAnswer                 nothing was heard; `sent` False: nor did the peer see anything of it
    ├── NoCard               no card wherever one may be; `tried` says where and what was answered
    ├── NoInterface          the card names no endpoint that can be spoken to
    ├── NotReached           no connection, or an address that may not be dialled
    ├── CallTimedOut         too long; `timeout` is the name of the one of Timeouts that was up
    │   └── StreamLost       a stream broke, and could not be taken up again; says where it stood
    └── CallBroken           the connection ended before the answer did, or the answer is too large

What the agent itself answers is an `A2AError`, whatever its dialect; an answer that is none is `InvalidAgentResponse`.
What goes wrong below is an `EgressError`, of which a NoAnswer is made.

Invariant: a PeerError means that the peer has not done what was asked.
"""

from collections.abc import Sequence

from msgspec import Struct

from dragoman.net.errors import AddressRefused, BadUrl, EgressError, TimedOut

SHOWN_BYTES = 200
"""As much as an error shows of an answer that nothing explains."""


def shown(body: bytes) -> str:
    """The first bytes of an answer."""
    return f"{body[:SHOWN_BYTES]!r}{'…' if len(body) > SHOWN_BYTES else ''}"


class PeerError(Exception):
    """The peer refused. `url` is where."""

    def __init__(self, url: str, message: str) -> None:
        super().__init__(f"{url}: {message}")
        self.url = url


class HttpRefusal(PeerError):
    """The peer answered with an HTTP status that is not 2xx; redirects are not followed. `body` is shown in part.

    `retry_after_s` is how long it asks to wait, if it does.
    """

    retry_after_s: float | None = None

    def __init__(self, url: str, status: int, body: bytes = b"") -> None:
        came = f", got {shown(body)}" if body else ""
        super().__init__(url, f"answered with HTTP status {status}, expected 200{came}")
        self.status = status


class NoToken(PeerError):
    """No token was to be had, so that nothing was asked of the peer. `permanent`: nor will it be another time."""

    def __init__(self, url: str, message: str, *, permanent: bool = False) -> None:
        super().__init__(url, message)
        self.permanent = permanent


class NoAnswer(Exception):
    """Nothing was heard of an agent. `sent`: it may have done what it was asked nonetheless.

    `message_id` is that of the message whose fate is unknown, empty if there is none.
    """

    message_id = ""

    def __init__(self, url: str, message: str, *, sent: bool = False) -> None:
        super().__init__(f"{url}: {message}")
        self.url = url
        self.sent = sent


class Tried(Struct, frozen=True):
    """Where a card was looked for, and what came instead."""

    url: str
    answer: str


class NoCard(NoAnswer):
    """There is no card where one may be."""

    def __init__(self, url: str, tried: Sequence[Tried]) -> None:
        told = "".join(f"\n  {each.url}: {each.answer}" for each in tried)
        super().__init__(url, f"no agent card; give `path=`, or `dialect=` to do without one. Tried:{told}")
        self.tried = tuple(tried)


class NoInterface(NoAnswer):
    """The card names no endpoint that can be spoken to."""


class NotReached(NoAnswer):
    """There was no connection. `permanent`: nor will there be one another time."""

    def __init__(self, url: str, message: str, *, permanent: bool = False) -> None:
        super().__init__(url, message)
        self.permanent = permanent


class CallTimedOut(NoAnswer):
    """A wait was too long. `timeout` is its name in Timeouts."""

    def __init__(self, url: str, message: str, timeout: str, *, sent: bool) -> None:
        super().__init__(url, f"{message} ({timeout})", sent=sent)
        self.timeout = timeout


class StreamLost(CallTimedOut):
    """A stream broke, and for `mend_s` could not be taken up again.

    `task_id` and `event_id` are what to subscribe with later; either is empty if it is not known.
    """

    def __init__(self, url: str, message: str, task_id: str, event_id: str) -> None:
        super().__init__(url, f"the stream broke, and could not be taken up again: {message}", "mend_s", sent=True)
        self.task_id = task_id
        self.event_id = event_id


class CallBroken(NoAnswer):
    """The request went out, and no whole answer came back."""


def fate_unknown(error: NoAnswer, message_id: str) -> NoAnswer:
    """The error, which also says that nobody knows whether a message has arrived."""
    error.message_id = message_id
    error.args = (
        f"{error}; whether the agent has taken message {message_id} is not known. An agent that knows repeated "
        "messages takes it once if it is sent again with this id; Retries(dedupes=True) does so where no card says it",
    )
    return error


def no_answer(error: EgressError, waiting: str) -> NoAnswer:
    """What an error on the way out is to a client; `waiting` is the name in Timeouts of what it waited for."""
    told = str(error).removeprefix(f"{error.url}: ")
    if isinstance(error, TimedOut):
        return CallTimedOut(error.url, told, waiting, sent=True)
    if error.sent:
        return CallBroken(error.url, told, sent=True)
    if isinstance(error.__cause__, TimeoutError):
        return CallTimedOut(error.url, told, "connect_s", sent=False)
    if isinstance(error, AddressRefused):
        told += "; an origin that only a card names is allowed with `origins=`"
    return NotReached(error.url, told, permanent=isinstance(error, AddressRefused | BadUrl))
