"""The errors that a client raises.

    PeerError                the peer did not do what was asked
    ├── HttpRefusal          a status other than 2xx, without an explanation
    └── NoToken              there is no token for the call, so it was not made
        ├── TokenRefused     the issuer refused; `code` is its error code
        ├── ExchangeRefused  the caller's token is not exchanged: another one of the caller may be
        └── ExchangeUnusable the configuration of the exchange has to change, here or at the issuer
    NoAnswer                 no answer came; `sent` False: the peer did not see the request either
    ├── NoCard               no card at any of the usual places; `tried` lists them and what each answered
    ├── NoInterface          the card names no endpoint that this client supports
    │   └── NotInstalled     it names one over gRPC, and the package for that is missing
    ├── NotReached           no connection, or an address that may not be dialled
    ├── CallTimedOut         took too long; `timeout` is the field of Timeouts that ran out
    │   └── StreamLost       a stream broke and could not be resumed; says how far it got
    └── CallBroken           the connection ended before the answer did, or the answer is too large

An error that the agent itself answers is an `A2AError`, whatever its dialect; an unreadable answer is an
`InvalidAgentResponse`. An `EgressError` from the network layer is translated to a NoAnswer.

Invariant: a PeerError means that the peer has not done what was asked of it.
"""

from collections.abc import Sequence

from msgspec import Struct

from dragoman.model.errors import A2AError
from dragoman.model.extras import install_command
from dragoman.net.errors import AddressRefused, BadUrl, EgressError, TimedOut

SHOWN_BYTES = 200
"""How many bytes an error shows of an unexplained answer."""


def shown(body: bytes) -> str:
    """Return the first bytes of an answer, quoted."""
    return f"{body[:SHOWN_BYTES]!r}{'…' if len(body) > SHOWN_BYTES else ''}"


class PeerError(Exception):
    """The peer refused. `url` is the URL that was called.

    `untaken`: its answer says that it has done nothing and may do it later (429, or 503 with `Retry-After`).
    `repeated` as in `A2AError`.
    """

    untaken = False
    repeated = False

    def __init__(self, url: str, message: str) -> None:
        super().__init__(f"{url}: {message}")
        self.url = url


class HttpRefusal(PeerError):
    """The peer answered with a status other than 2xx. Redirects are not followed. The message shows part of `body`.

    `retry_after_s` is how long the peer asks to wait, None if it does not.
    """

    retry_after_s: float | None = None

    def __init__(self, url: str, status: int, body: bytes = b"") -> None:
        came = f", got {shown(body)}" if body else ""
        super().__init__(url, f"answered with HTTP status {status}, expected 200{came}")
        self.status = status


class NoToken(PeerError):
    """No token could be obtained, so no request was sent to the peer. `permanent`: a later attempt will fail too."""

    untaken = True

    def __init__(self, url: str, message: str, *, permanent: bool = False) -> None:
        super().__init__(url, message)
        self.permanent = permanent


class TokenRefused(NoToken):
    """The token endpoint answered with an error. `code` is that of RFC 6749 §5.2; empty if it gave no proper one."""

    def __init__(self, url: str, message: str, *, status: int, code: str) -> None:
        super().__init__(url, message, permanent=status in (400, 401, 403))
        self.status = status
        self.code = code


class ExchangeRefused(NoToken):
    """A caller's token was not exchanged. Another token of that caller may be."""

    def __init__(self, url: str, message: str) -> None:
        super().__init__(url, message, permanent=True)


class ExchangeUnusable(NoToken):
    """A token cannot be exchanged, or must not be used once it is, whoever asks: somebody has to change the setup."""

    def __init__(self, url: str, message: str) -> None:
        super().__init__(url, message, permanent=True)


class NoAnswer(Exception):
    """An agent did not answer. `sent`: it may nonetheless have done what was asked.

    `message_id` is the id of the message whose fate is unknown, empty if there is none.
    """

    message_id = ""

    def __init__(self, url: str, message: str, *, sent: bool = False) -> None:
        super().__init__(f"{url}: {message}")
        self.url = url
        self.sent = sent


class Tried(Struct, frozen=True):
    """A URL that was tried for a card, and what it answered instead. `other`: the card of another agent."""

    url: str
    answer: str
    other: bool = False


class NoCard(NoAnswer):
    """None of the tried URLs has a card."""

    def __init__(self, url: str, tried: Sequence[Tried]) -> None:
        told = "".join(f"\n  {each.url}: {each.answer}" for each in tried)
        super().__init__(url, f"no agent card; give `path=`, or `dialect=` to connect without one. Tried:{told}")
        self.tried = tuple(tried)


class NoInterface(NoAnswer):
    """The card names no endpoint that this client supports."""


class NotInstalled(NoInterface):
    """The endpoint is called over gRPC, and the package for that is missing."""

    def __init__(self, url: str) -> None:
        super().__init__(
            url,
            f"it is called over gRPC, which is not installed here: run {install_command('grpc')}",
        )


class NotReached(NoAnswer):
    """No connection could be made. `permanent`: a later attempt will fail too."""

    def __init__(self, url: str, message: str, *, permanent: bool = False) -> None:
        super().__init__(url, message)
        self.permanent = permanent


class CallTimedOut(NoAnswer):
    """A wait took too long. `timeout` is its name in Timeouts."""

    def __init__(self, url: str, message: str, timeout: str, *, sent: bool) -> None:
        super().__init__(url, f"{message} ({timeout})", sent=sent)
        self.timeout = timeout


class StreamLost(CallTimedOut):
    """A stream broke and could not be resumed within `mend_s`.

    A later subscription needs `task_id` and `event_id`; each is empty if it is not known.
    """

    def __init__(self, url: str, message: str, task_id: str, event_id: str) -> None:
        super().__init__(url, f"the stream broke and could not be resumed: {message}", "mend_s", sent=True)
        self.task_id = task_id
        self.event_id = event_id


class CallBroken(NoAnswer):
    """The request was sent, and no complete answer came back."""


def is_untaken(error: Exception) -> bool:
    """Whether the peer has certainly not taken the call: nothing of it was written, or the peer's answer says so."""
    if isinstance(error, NoAnswer):
        return not error.sent
    return isinstance(error, A2AError | PeerError) and error.untaken


def note_earlier_send(error: Exception) -> None:
    """Have the error say that the peer may have taken the call: an earlier attempt was sent and got no answer."""
    if isinstance(error, NoAnswer):
        error.sent = True
    elif isinstance(error, A2AError | PeerError):
        error.untaken, error.repeated = False, True


def fate_unknown(error: NoAnswer, message_id: str) -> NoAnswer:
    """Add to the error that the fate of a message is unknown, and return it."""
    error.message_id = message_id
    error.args = (
        f"{error}; it is not known whether the agent has received message {message_id}. An agent that recognises "
        "repeated messages handles it once if it is sent again with this id; Retries(dedupes=True) does so even if no "
        "card says that the agent recognises them",
    )
    return error


def no_answer(error: EgressError, waiting: str) -> NoAnswer:
    """Translate a network error to a NoAnswer; `waiting` is the name in Timeouts of the wait that it ended."""
    told = str(error).removeprefix(f"{error.url}: ")
    if isinstance(error, TimedOut):
        return CallTimedOut(error.url, told, waiting, sent=True)
    if error.sent:
        return CallBroken(error.url, told, sent=True)
    if isinstance(error.__cause__, TimeoutError):
        return CallTimedOut(error.url, told, "connect_s", sent=False)
    if isinstance(error, AddressRefused):
        told += "; give `origins=` to allow an origin that only a card names"
    return NotReached(error.url, told, permanent=isinstance(error, AddressRefused | BadUrl))
