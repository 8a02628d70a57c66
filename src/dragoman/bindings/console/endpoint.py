"""The endpoint of the console: its pages for everybody, and the sessions of operators.

Invariant: a session is known by a cookie that no script can read and that no other site can make a browser send. A
request of a session that changes something must also repeat the session's proof, which only the console's pages know.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec import UNSET, Struct, UnsetType

from dragoman.auth.authenticator import AUTHORIZATION, KEY_HEADERS
from dragoman.auth.operator_token import PREFIX as TOKEN_PREFIX
from dragoman.auth.sessions import OperatorSessions, SignedIn
from dragoman.bindings.callers import Callers
from dragoman.bindings.console.cookies import ConsoleCookie
from dragoman.bindings.console.pages import InstalledPages
from dragoman.bindings.console.provider import ProviderDoor, ProviderOffer
from dragoman.bindings.cors import READS
from dragoman.bindings.endpoints import Endpoints, public
from dragoman.bindings.http import HttpRequest, HttpResponse, json_response, read_json
from dragoman.bindings.limits import Limits
from dragoman.bindings.request import Header, Request
from dragoman.dialects import json_fields
from dragoman.model.errors import Forbidden, InvalidParams, MethodNotAllowed, Unauthorized
from dragoman.model.ids import timestamp
from dragoman.model.principal import Principal

COOKIE = "dragoman-console"

PROOF = b"x-dragoman-proof"
"""The header in which a page repeats the proof of its session. Requests to agents belong to a session only with it."""

PROVIDER = ("oidc",)
NO_STORE: Header = (b"cache-control", b"no-store")

SIGN_IN = "sign in: the session has ended"

TOKEN_OLD = (
    "this is not the token of the server that runs now, which has a new token since it started: follow the newest link "
    "that it printed, or send what the file beside its store holds"
)
TOKEN_VOID = "the server asks callers for keys now, so that its token counts no more: send an operator's key"


class Credential(Struct, frozen=True, forbid_unknown_fields=True):
    """An operator's key, or the token of a server without authentication."""

    secret: str


class SessionAnswer(Struct, frozen=True):
    """The operator that signed in. Each request that changes something has `proof` in the header `x-dragoman-proof`.

    `team` is that of an operator of one team, and left out for operators of the server.
    """

    principal: str
    proof: str
    ends_at: str
    team: str | UnsetType = UNSET


class SignedOut(Struct, frozen=True):
    """The session has ended. That at the OpenID provider ends at the URL `provider`."""

    provider: str


class Console:
    """Serves the console, and tells the admin API which operator a browser's session is of."""

    proof = PROOF

    def __init__(
        self,
        pages: InstalledPages,
        sessions: OperatorSessions,
        callers: Callers,
        limits: Limits,
        public_url: str | None,
        provider: ProviderDoor | None = None,
    ) -> None:
        """`provider` signs operators in by an OpenID provider; None: there is none."""
        self._pages = pages
        self._sessions = sessions
        self._callers = callers
        self._limits = limits
        self._cookie = ConsoleCookie(COOKIE, "Strict", public_url)
        self._provider = provider

    @property
    def endpoints(self) -> Endpoints:
        """Its endpoint: the pages are for everybody, and the sessions ask by themselves."""
        return {"console": public(self.answer)}

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer one request below `/console`. Raises A2AError."""
        self._callers.check_host(request)
        segments = request.route.segments
        if segments[:1] == PROVIDER and self._provider is not None:
            return await self._provider.answer(request, self._cookie)
        answers = ROUTES.get(segments, PAGES)
        answer = answers.get("GET" if request.method == "HEAD" else request.method)
        if answer is None:
            reads, *changes = answers
            raise MethodNotAllowed([reads, "HEAD", *changes], "")
        return await answer(self, request)

    async def identify(self, request: Request) -> Principal:
        """The operator of the session that the request belongs to, else the caller by other credentials.

        Raises A2AError.
        """
        if (secret := self._cookie.read(request)) is None or _has_credentials(request):
            return self._callers.known(request) or await self._callers.identify(request)
        session = await self._sessions.find(secret)
        if session is None:
            raise Unauthorized(SIGN_IN, missing=True)
        if request.method not in READS or PROOF in request.headers:
            self._check_proof(request, session)
        return session.principal

    async def _show_page(self, request: HttpRequest) -> HttpResponse:
        return self._pages.answer(request)

    async def _show_offer(self, _: HttpRequest) -> HttpResponse:
        offer = ProviderOffer(None) if self._provider is None else self._provider.offer
        return json_response(200, msgspec.json.encode(offer), NO_STORE)

    async def _show_session(self, request: HttpRequest) -> HttpResponse:
        secret = self._cookie.read(request)
        session = None if secret is None else await self._sessions.find(secret)
        if session is None:
            raise Unauthorized(SIGN_IN, missing=True)
        return json_response(200, _encode(session), NO_STORE)

    async def _sign_in(self, request: HttpRequest) -> HttpResponse:
        body = await read_json(request, self._limits)
        try:
            given = msgspec.json.decode(body, type=Credential)
            sent = given.secret.strip().encode("latin-1")
        except msgspec.ValidationError as error:
            raise InvalidParams(*json_fields.violation(error)) from None
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise InvalidParams("secret", "must be a key, as text: send it in a JSON object") from None
        headers = {KEY_HEADERS[0]: sent, b"host": request.headers.get(b"host", b"")}
        asking = Request("POST", headers, (), request.peer, route=request.route)
        try:
            asking.principal = await self._callers.identify(asking)
            self._callers.admit_operator(asking)
        except Unauthorized as refused:
            if not sent.startswith(TOKEN_PREFIX.encode()):
                raise
            raise Unauthorized(TOKEN_VOID if self._callers.required else TOKEN_OLD, missing=True) from refused
        if (earlier := self._cookie.read(request)) is not None:
            await self._sessions.end(earlier)  # the browser forgets its secret now
        secret, session = await self._sessions.begin(asking.principal, given.secret.strip())
        request.principal = asking.principal
        return json_response(200, _encode(session), NO_STORE, self._cookie.set(request, secret))

    async def _sign_out(self, request: HttpRequest) -> HttpResponse:
        secret = self._cookie.read(request)
        elsewhere: tuple[str, Header] | None = None
        if secret is not None and (session := await self._sessions.find(secret)) is not None:
            self._check_proof(request, session)
            await self._sessions.end(secret)
            if session.vouched and self._provider is not None:
                elsewhere = await self._provider.sign_out(request)
        headers = [NO_STORE, self._cookie.set(request, "")]
        if elsewhere is None:
            return HttpResponse(204, headers, b"")
        url, forget = elsewhere
        return json_response(200, msgspec.json.encode(SignedOut(url)), *headers, forget)

    def _check_proof(self, request: Request, session: SignedIn) -> None:
        sent = request.headers.get(PROOF, b"")
        if not hmac.compare_digest(sent, session.proof.encode()):
            raise Forbidden(f"a request of a session must repeat its proof in the header {PROOF.decode()}")


Answer = Callable[[Console, HttpRequest], Awaitable[HttpResponse]]

PAGES: Mapping[str, Answer] = {"GET": Console._show_page}
"""The methods of all other paths."""

ROUTES: Mapping[tuple[str, ...], Mapping[str, Answer]] = {
    ("session",): {"GET": Console._show_session, "POST": Console._sign_in, "DELETE": Console._sign_out},
    ("sign-in",): {"GET": Console._show_offer},
}
"""The answers below `/console` beside the pages, by path and method. GET comes first, and answers HEAD, too.

`provider.ROUTES` has the ways to an OpenID provider and back.
"""


def _has_credentials(request: Request) -> bool:
    return any(name in request.headers for name in (*KEY_HEADERS, AUTHORIZATION))


def _encode(session: SignedIn) -> bytes:
    principal = session.principal
    answer = SessionAnswer(principal.id, session.proof, timestamp(session.ends_ms), principal.team or UNSET)
    return msgspec.json.encode(answer)
