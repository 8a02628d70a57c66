"""Describes why an exchange with an agent elsewhere failed, for the operator who made it.

Invariant: a failure of the agent is no failure of the server's own call: it is part of the answer. The value of a
credential is in no description, whatever the agent repeats.
"""

import re

from dragoman.bindings.remote.values import RemoteCredential, RemoteFailure
from dragoman.client import NoAnswer, PeerError
from dragoman.model.errors import A2AError
from dragoman.net.errors import AddressRefused, EgressError


class CredentialWithheld(Exception):
    """A credential was given, and the endpoint is at another origin than the card."""

    def __init__(self, home: str, elsewhere: str) -> None:
        super().__init__(
            f"the credential is for {home}, the origin of the card, and is not sent to {elsewhere}: leave it out, or "
            "choose an endpoint at the origin of the card"
        )


FAILURES = (A2AError, PeerError, NoAnswer, EgressError, CredentialWithheld, TimeoutError)
"""The errors by which an exchange fails."""

SHOWN_MAX = 2000
"""Most characters of a description: an agent may answer with a long text."""

SUBJECT_MAX = 200

_PLACE_END = re.compile(r"[/?#]")
_QUERY = re.compile(r"[?#]")
_PORT = re.compile(r"(:[0-9]*|\])$", re.ASCII)
"""The end of a host that has a port, or is an IPv6 address."""

ALLOW = "name its host in console_allowed_hosts if operators may call it"


def describe_failure(error: Exception, credential: RemoteCredential | None) -> RemoteFailure:
    """The failure, in words for people."""
    match error:
        case A2AError():
            name, message = type(error).__name__, error.message
        case TimeoutError():
            name, message = "CallTimedOut", "the exchange took too long, and was left"
        case _ if (refused := _refused(error)) is not None:
            name, message = AddressRefused.__name__, f"{refused}: {ALLOW}"
        case _:
            name, message = type(error).__name__, str(error)
    if credential is not None:
        message = message.replace(credential.value, "$KEY")
    return RemoteFailure(name, message[:SHOWN_MAX])


def is_refused_here(error: Exception) -> bool:
    """Whether the server's own rules refused the exchange."""
    return isinstance(error, CredentialWithheld) or _refused(error) is not None


def audited_url(url: str) -> str:
    """A URL for the audit trail: without its query, a user and a password, which may be secret.

    A password that is not encoded may contain `/`, `?` or `#`. The text before that character ends in no port then.
    """
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    while "@" in rest:
        place = _PLACE_END.split(rest, maxsplit=1)[0]
        if "@" not in place and (":" not in place or _PORT.search(place)):
            break
        rest = rest.partition("@")[2]
    return f"{scheme}{separator}{_QUERY.split(rest, maxsplit=1)[0]}"[:SUBJECT_MAX]


def _refused(error: BaseException) -> AddressRefused | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AddressRefused):
            return cause
        cause = cause.__cause__
    return None
