"""Sign-in by an OpenID provider, over HTTP: the way to the provider, and the way back.

Invariant: the cookie of a sign-in lives for the sign-in alone. A browser that is sent back gets either a session, or a
page that says why not. It is never sent to a page that the provider or the query names.
"""

from collections.abc import Awaitable, Callable, Mapping
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from msgspec import Struct

from dragoman.auth.sessions import LONGEST_MS, OperatorSessions
from dragoman.bindings.console.cookies import ConsoleCookie
from dragoman.bindings.console.pages import SAFETY
from dragoman.bindings.http import HttpRequest, HttpResponse
from dragoman.bindings.request import QUERY_FIELDS_MAX, Header
from dragoman.dialects.v1.errors import http_status
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.model.errors import A2AError, Forbidden, MethodNotAllowed, NotFound
from dragoman.model.principal import ANONYMOUS

if TYPE_CHECKING:  # its library takes longer to import than a server may take to start
    from dragoman.auth.oidc import ProviderSignIn

ACTION = "console.sign-in"

CALLBACK = "/console/oidc/callback"
"""The path of the redirect URI that is registered at the provider."""

NO_STORE: Header = (b"cache-control", b"no-store")

ID_TOKEN_BYTES_MAX = 3_500
"""The longest ID token that is kept for the sign-out: browsers refuse cookies above 4,096 bytes (RFC 6265bis §5.6)."""

NO_ID_TOKEN = "-"
"""The value that stands for a longer one: the provider asks the browser's user then."""

PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Not signed in - Dragoman</title></head>
<body>
<h1>You are not signed in</h1>
<p>{reason}</p>
<p><a href="/console">Back to the sign-in</a></p>
</body>
</html>
"""


class ProviderOffer(Struct, frozen=True):
    """The way to sign in that the page offers beside keys: the provider's name, null if there is none."""

    provider: str | None


class ProviderDoor:
    """Answers the requests below `/console/oidc`."""

    def __init__(
        self, sign_in: "ProviderSignIn", sessions: OperatorSessions, notes: AccessNotes, public_url: str | None
    ) -> None:
        self._sign_in = sign_in
        self._sessions = sessions
        self._notes = notes
        self._cookie = ConsoleCookie("dragoman-sign-in", "Lax", public_url, sign_in.lasts_s)
        self._id_token = ConsoleCookie("dragoman-provider", "Strict", public_url, LONGEST_MS // 1000)

    @property
    def offer(self) -> ProviderOffer:
        """The provider, for the sign-in page."""
        return ProviderOffer(self._sign_in.provider.issuer.partition("://")[2])

    async def answer(self, request: HttpRequest, session: ConsoleCookie) -> HttpResponse:
        """Answer a request; `session` is the cookie of sessions. Raises NotFound or MethodNotAllowed."""
        if request.method != "GET":
            raise MethodNotAllowed(["GET"], "")
        answer = ROUTES.get(request.route.segments)
        if answer is None:
            raise NotFound("no such path of the console")
        return await answer(self, request, session)

    async def sign_out(self, request: HttpRequest) -> tuple[str, Header] | None:
        """Where the browser ends its session at the provider, and the header that makes it forget that session.

        None if it has none there, or the provider cannot say where.
        """
        kept = self._id_token.read(request)
        if kept is None:
            return None
        try:
            url = await self._sign_in.sign_out("" if kept == NO_ID_TOKEN else kept)
        except A2AError:
            return None
        return (url, self._id_token.set(request, "")) if url else None

    async def _begin(self, request: HttpRequest, _: ConsoleCookie) -> HttpResponse:
        try:
            url, kept = await self._sign_in.begin(request.query_fields().get("next", ""))
        except A2AError as error:
            return self._refuse(request, error)
        return _redirect(url, self._cookie.set(request, kept))

    async def _finish(self, request: HttpRequest, session: ConsoleCookie) -> HttpResponse:
        try:
            vouched = await self._sign_in.finish(self._cookie.read(request), _pairs(request))
            if (earlier := session.read(request)) is not None:
                await self._sessions.end(earlier)  # the browser forgets its secret now
            secret, signed_in = await self._sessions.begin_vouched(vouched.principal, vouched.ends_ms, vouched.team)
        except A2AError as error:
            return self._refuse(request, error)
        request.principal = signed_in.principal
        self._notes.note(Operator(signed_in.principal.id, request.peer), ACTION)
        cookies = [session.set(request, secret), self._cookie.set(request, "")]
        if vouched.id_token:
            kept = vouched.id_token if len(vouched.id_token) <= ID_TOKEN_BYTES_MAX else NO_ID_TOKEN
            cookies.append(self._id_token.set(request, kept))
        return _redirect(vouched.next, *cookies)

    def _refuse(self, request: HttpRequest, error: A2AError) -> HttpResponse:
        """A page that says why nobody is signed in; the browser forgets the sign-in that it had begun."""
        self._notes.note(Operator(ANONYMOUS.id, request.peer), ACTION, reason=type(error).__name__)
        request.refusal = type(error)
        body = PAGE.format(reason=escape(error.message)).encode()
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            NO_STORE,
            self._cookie.set(request, ""),
            *SAFETY,
        ]
        return HttpResponse(http_status(error), headers, body)


ROUTES: Mapping[tuple[str, ...], Callable[[ProviderDoor, HttpRequest, ConsoleCookie], Awaitable[HttpResponse]]] = {
    ("oidc", "begin"): ProviderDoor._begin,
    ("oidc", "callback"): ProviderDoor._finish,
}
"""The requests below `/console/oidc`. All are GET."""


def _pairs(request: HttpRequest) -> list[tuple[str, str]]:
    try:
        return parse_qsl(request.query.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
    except ValueError as error:
        raise Forbidden("the provider's answer has too many fields: begin again") from error


def _redirect(to: str, *more: Header) -> HttpResponse:
    headers = [(b"location", to.encode()), (b"content-length", b"0"), (b"referrer-policy", b"no-referrer"), NO_STORE]
    return HttpResponse(302, [*headers, *more], b"")
