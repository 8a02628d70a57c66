"""The failures of client commands: the code, the hint and the exit status of each (a2a-cli §9.4, §9.6, Appendix E).

Invariant: an error that the agent reported keeps A2A's name for it, whatever the binding; only a failure of the command
itself has a code that begins with `A2ACLI_ERR_`. The exit status follows from the code.
"""

import ssl

from dragoman.cli.a2a.settings import SettingsError
from dragoman.cli.endings import Code, status_of
from dragoman.client import CallTimedOut, HttpRefusal, NoAnswer, NoCard, NoInterface, NoToken, NotReached, PeerError
from dragoman.dialects.v1 import errors as v1_errors
from dragoman.model.errors import (
    A2AError,
    AgentNotFound,
    AgentOffline,
    Forbidden,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    ParseError,
    Unauthorized,
    Unavailable,
)
from dragoman.net.errors import BadUrl, CertificateWanted, EgressError

_NAMES: dict[type[A2AError], str] = {ParseError: "JSONParseError", InvalidRequest: "InvalidRequestError"}
"""A2A's names that are not the class's name with `Error` after it (A2A 1.0 §5.4)."""

_NOBODY_THERE = (AgentNotFound, NotFound, MethodNotAllowed, AgentOffline, Unavailable)
"""Errors for which A2A has no name, and which say that nobody serves the agent now."""


class Failure(Exception):
    """A command that could not do its job. `hint` is the next step; `a2a_code` is the code that the agent sent."""

    def __init__(self, code: str, message: str, *, hint: str = "", a2a_code: str | int | None = None) -> None:
        super().__init__(message)
        self.code = str(code)
        self.message = message
        self.hint = hint
        self.a2a_code = a2a_code

    @property
    def status(self) -> int:
        """The exit status of the command."""
        return status_of(self.code)


def failure_of(error: BaseException, *, credentials_given: bool, withheld: bool = False) -> Failure:
    """Translate what the client raised. Errors that nobody foresaw become A2ACLI_ERR_INTERNAL.

    `withheld`: the user gave credentials that the agent was not shown, which a warning has explained.
    """
    match error:
        case Failure():
            return error
        case SettingsError():
            return Failure(Code.USAGE, str(error))
        case Unauthorized() | Forbidden():
            status = 401 if isinstance(error, Unauthorized) else 403
            return _refused(error.message, status, credentials_given=credentials_given, withheld=withheld)
        case A2AError() if isinstance(error, _NOBODY_THERE):
            return Failure(Code.UNREACHABLE, error.message, hint=_retry_hint(error.retry_after_s))
        case A2AError():
            return Failure(error_name(error), error.message, a2a_code=v1_errors.row(error).code)
        case HttpRefusal() if error.status in (401, 403):
            return _refused(str(error), error.status, credentials_given=credentials_given, withheld=withheld)
        case HttpRefusal():
            code = Code.UNREACHABLE if error.status in (404, 405, 410, 502, 503, 504) else Code.INTERNAL
            return Failure(code, str(error), hint=_retry_hint(error.retry_after_s), a2a_code=error.status)
        case NoToken():
            return Failure(Code.AUTH_FAILED, str(error), hint="check the client id and secret, or log in again")
        case NoCard():
            tried = "; ".join(f"{each.url}: {each.answer}" for each in error.tried)
            hint = "give the URL of the agent or of its card with --agent-card; an agent without one needs --dialect"
            if others := [each.url for each in error.tried if each.other]:
                root = "/".join(others[0].split("/", 3)[:3])
                hint = (
                    f"the agent at the root of the host is another one, and --agent-card {root} would name it; {hint}"
                )
            return Failure(Code.CARD_NOT_FOUND, f"no agent card: {tried}", hint=hint)
        case NoInterface():
            return Failure(Code.CARD_INVALID, str(error))
        case CallTimedOut() | NotReached() | NoAnswer():
            return Failure(Code.UNREACHABLE, str(error), hint=_tls_hint(error))
        case BadUrl():
            return Failure(Code.USAGE, str(error))
        case PeerError() | EgressError():
            return Failure(Code.UNREACHABLE, str(error), hint=_tls_hint(error))
        case _:
            return Failure(Code.INTERNAL, f"{type(error).__name__}: {error}", hint="run it again with --debug")


def error_name(error: A2AError) -> str:
    """Return A2A's name of an error, such as `TaskNotFoundError` (A2A 1.0 §3.3.2)."""
    name = _NAMES.get(type(error))
    if name is not None:
        return name
    plain = type(error).__name__
    return plain if plain.endswith("Error") else f"{plain}Error"


def _refused(message: str, status: int, *, credentials_given: bool, withheld: bool) -> Failure:
    if credentials_given:
        return Failure(Code.AUTH_FAILED, message, hint="the credentials were sent and refused", a2a_code=status)
    if withheld:
        hint = "your credentials were not sent, for the reason above; --svc-param NAME:VALUE sends any header"
        return Failure(Code.CREDENTIALS_MISSING, message, hint=hint, a2a_code=status)
    hint = "give --api-key or --bearer, or run `auth login`; `card get` shows what the agent asks for"
    return Failure(Code.CREDENTIALS_MISSING, message, hint=hint, a2a_code=status)


def _retry_hint(after_s: float | None) -> str:
    return "" if after_s is None else f"try again in {after_s:g} s"


def _tls_hint(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "the certificate is not trusted: name its authority with --ca-cert"
        if isinstance(cause, CertificateWanted):
            return "show one with --client-cert and --client-key"
        cause = cause.__cause__
    return ""
