"""Token exchange (RFC 8693): a caller's token is exchanged for one that another server accepts, and that names us.

    no token ── needed ──► EXCHANGING ── issued ──► ISSUED ── it or the caller's token expires ──► no token
                             │  ▲                     │
                             │  └── the other server refuses it, and the last one is not a moment old
                             ├── refused ──► REFUSED, for `REFUSED_S`: whoever needs it gets the same refusal
                             └── no answer, or a token that must not be used ──► no token

Invariant: no token is used whose scope is wider than what was asked for, and nothing is asked for that the caller's own
token does not allow. No token is used that is for another audience. Tokens are in memory alone, no longer than the
caller's own token lives, and are found again by that very token: two tokens of one subject have a token each.
"""

import asyncio
import base64
import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import ref

import msgspec
from msgspec import Struct

from dragoman.client.credentials import MARGIN_S, MARGIN_SHARE, RENEW_AGAIN_S, ClientCredentials
from dragoman.client.errors import ExchangeRefused, ExchangeUnusable, NoToken, TokenRefused
from dragoman.client.token_endpoint import LIFE_S, TokenAnswer, TokenEndpoint
from dragoman.model.acting_chain import ACTORS_MAX, ActingLink, cut_name, cut_names
from dragoman.model.ids import Clock, SystemClock, timestamp

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"

TOKEN_TYPE = "urn:ietf:params:oauth:token-type:"
"""The beginning of the types that RFC 8693 §3 names."""

ACCESS_TOKEN = f"{TOKEN_TYPE}access_token"

ISSUED_TYPES = frozenset({"", ACCESS_TOKEN, f"{TOKEN_TYPE}jwt"})
"""The types of tokens that can be shown to a server. Some issuers leave the field out, although §2.2.1 requires it."""

UNSIGNED = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiJkcmFnb21hbi1jaGVjayJ9."
"""A JWT of the subject `dragoman-check` without a signature (RFC 7519 §6), for checks."""

ENTRIES_MAX = 4000
"""Most callers' tokens whose exchange is remembered: about 20 MB."""

REFUSED_S = 10
"""How long a refusal counts. A task that goes on does not ask the issuer again for the same token meanwhile."""

OURS_TO_FIX = frozenset({"invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_target"})
"""The errors of an issuer that no other token of the caller cures (RFC 6749 §5.2, RFC 8693 §2.2.2)."""


class SubjectToken(Struct, frozen=True):
    """A caller's token, and those of its claims that are used. Nobody has verified it here: the issuer will.

    `digest` stands for the token. `expires_ms` is None if it does not say. `actors` act for the subject, the present
    one first.
    """

    token: str
    digest: str
    subject: str
    issuer: str = ""
    scope: frozenset[str] = frozenset()
    expires_ms: float | None = None
    actors: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…, subject={self.subject!r})"


def read_subject_token(headers: Mapping[str, str]) -> SubjectToken | None:
    """The caller's token in the headers of its request; None if there is none, such as with a key of this server.

    It is a JWT (RFC 7519) as a bearer token. A key is never taken for one, so that none is sent to an issuer.
    """
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or (claims := _claims_in(token)) is None:
        return None
    expires_s = _expires_s(claims)
    return SubjectToken(
        token,
        hashlib.sha256(token.encode()).hexdigest(),
        _text(claims, "sub"),
        _text(claims, "iss"),
        _scope_of(claims) or frozenset(),
        None if expires_s is None else expires_s * 1000,
        _actors_of(claims),
    )


present_subject: ContextVar[SubjectToken | None] = ContextVar("dragoman_subject", default=None)
"""The token of the caller in whose name the code at this moment makes calls; None: in nobody's."""


@contextmanager
def in_nobodys_name() -> Iterator[None]:
    """Let the calls in the block be made in nobody's name, and those that go on in its context after it."""
    before = present_subject.set(None)
    try:
        yield
    finally:
        present_subject.reset(before)


class ExchangeTerms(Struct, frozen=True, kw_only=True):
    """The terms of a request: a token for the `audience` or `resource` of another server; one of them is set.

    `scope` is asked for as far as the caller's token has it; None: nothing is asked for, and what the token has is the
    limit. `scopes` names, for scopes of the caller's token, those that they stand for at the other server; with it
    `scope` is None. The token may be for the further `audiences`, too. The types are those of RFC 8693 §3.
    """

    audience: str | None = None
    resource: str | None = None
    scope: tuple[str, ...] | None = None
    scopes: Mapping[str, tuple[str, ...]] = {}
    audiences: frozenset[str] = frozenset()
    subject_type: str = ACCESS_TOKEN
    actor_type: str = ACCESS_TOKEN

    @property
    def target(self) -> str:
        """The audience or the resource, for people."""
        return self.audience or self.resource or ""

    def scope_to_ask(self, subject: SubjectToken) -> tuple[str, ...] | None:
        """The scope to ask for; None: none, as nothing is configured. It is empty if the caller's token lacks all."""
        if self.scopes:
            return tuple(
                dict.fromkeys(each for held in self.scopes if held in subject.scope for each in self.scopes[held])
            )
        return None if self.scope is None else tuple(each for each in self.scope if each in subject.scope)

    def build_probe(self, actor_token: str | None) -> dict[str, str | None]:
        """The fields of a request for the exchange of a token that nobody has signed, and that has all of the scope."""
        every = frozenset(self.scopes or self.scope or ())
        return self.build_form(SubjectToken(UNSIGNED, "", "", scope=every), actor_token)

    def build_form(self, subject: SubjectToken, actor_token: str | None) -> dict[str, str | None]:
        """The fields of the request (RFC 8693 §2.1) beside the client's authentication."""
        asked = self.scope_to_ask(subject)
        return {
            "grant_type": GRANT,
            "subject_token": subject.token,
            "subject_token_type": self.subject_type,
            "actor_token": actor_token,
            "actor_token_type": None if actor_token is None else self.actor_type,
            "requested_token_type": ACCESS_TOKEN,
            "audience": self.audience,
            "resource": self.resource,
            "scope": None if asked is None else " ".join(asked),
        }

    def find_fault(self, answer: TokenAnswer, subject: SubjectToken) -> str:
        """Why the issued token must not be used, for the operator; empty if it may.

        An answer without a scope says that it is the one that was asked for (RFC 8693 §2.2.1). A JWT tells its own.
        """
        if answer.issued_token_type not in ISSUED_TYPES:
            return f"the issuer gives {cut_name(answer.issued_token_type)}, not an access token"
        asked = self.scope_to_ask(subject)
        allowed = subject.scope if asked is None else frozenset(asked)
        claims = _claims_in(answer.access_token) or {}
        issued = frozenset((answer.scope or "").split()) | (_scope_of(claims) or frozenset())
        if wider := sorted(issued - allowed):
            told = cut_name(" ".join(wider))
            return f"the issued token has a wider scope than was asked for: {told}: name it in `scope` if it is meant"
        wanted = {each for each in (self.audience, self.resource) if each}
        if not claims:
            return ""
        given = _audiences_of(claims)
        if not given & wanted:
            told = cut_name(", ".join(sorted(given))) or "nobody in particular"
            return f"the issued token is not for {self.target}, but for {told}"
        if further := sorted(given - wanted - self.audiences):
            told = cut_name(", ".join(further))
            return (
                f"the issued token is for another audience, too: {told}: name it in `exchange.audiences` if it is meant"
            )
        return ""


class ExchangedToken(Struct, frozen=True, weakref=True):
    """A token with which the server acts for its caller. `until_ms` is when it is used last."""

    token: str
    from_ms: int
    until_ms: float
    link: ActingLink

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…, {self.link!r})"

    @property
    def headers(self) -> dict[str, str]:
        """The header of a request that shows it."""
        return {"Authorization": f"Bearer {self.token}"}


class _Entry:
    """The exchange of one caller's token: what was issued, or why not. One request is under way at a time."""

    __slots__ = ("asking", "failed", "issued", "refused", "refused_ms", "renewed_ms", "turn")

    def __init__(self) -> None:
        self.asking = asyncio.Lock()
        self.turn = 0
        """How many requests have been made."""
        self.failed: NoToken | None = None
        """Why the last request brought no token; None if it did."""
        self.issued: ExchangedToken | None = None
        self.refused = ""
        """Why the issuer refused; empty if it did not."""
        self.refused_ms = 0
        self.renewed_ms: int | None = None

    def issued_at(self, now_ms: int) -> ExchangedToken | None:
        """The token that may be used now, if there is one. A clock that was set back makes a new one."""
        issued = self.issued
        return issued if issued is not None and issued.from_ms <= now_ms < issued.until_ms else None


class TokenExchange:
    """Credentials that stand for the present caller: its token is exchanged at `endpoint` on the `terms`.

    With `actor` its token is sent along as that of the acting party; else the issuer knows this server by its
    authentication as a client. Belongs to one event loop.
    """

    def __init__(
        self,
        endpoint: TokenEndpoint,
        terms: ExchangeTerms,
        *,
        actor: ClientCredentials | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.terms = terms
        self._endpoint = endpoint
        self._actor = actor
        self._clock = clock or SystemClock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets of this server that must not be shown. Those of callers are told with each token."""
        actor = () if self._actor is None else self._actor.secrets
        return (*self._endpoint.secrets, *actor)

    @property
    def place(self) -> str:
        """The URL of the token endpoint, for people."""
        return self._endpoint.shown

    @property
    def safe(self) -> bool:
        """Whether callers' tokens are sent over TLS, or stay on this machine."""
        return self._endpoint.safe

    async def probe(self) -> TokenRefused | None:
        """Ask for the exchange of a token that nobody has signed. Returns the refusal; None if there was none.

        Raises NoToken if there is no answer that can be read.
        """
        try:
            actor_token = None if self._actor is None else await self._actor.token()
            await self._endpoint.request_token(self.terms.build_probe(actor_token))
        except TokenRefused as refused:
            return refused
        return None

    def shown_for(self, subject: SubjectToken | None) -> tuple[str, ...]:
        """The secrets that are shown to others for a subject: this server's own, the subject's token, and what it was
        exchanged for last."""
        if subject is None:
            return self.secrets
        entry = self._entries.get(subject.digest)
        issued = () if entry is None or entry.issued is None else (entry.issued.token,)
        return (*self.secrets, subject.token, *issued)

    async def headers(self) -> Mapping[str, str]:
        """Return the header with a token for the present caller; none in nobody's name. Raises as `token_for`."""
        subject = present_subject.get()
        return {} if subject is None else (await self.token_for(subject)).headers

    async def renewed(self, refused: Mapping[str, str]) -> Mapping[str, str] | None:
        """Return a header with another token for the present caller, in place of one that the other server has refused;
        None if that was fetched a moment ago after a refusal. Raises as `token_for`."""
        subject = present_subject.get()
        if subject is None:
            return None
        entry = self._entry_of(subject)
        async with entry.asking:
            now_ms = self._check_alive(subject)
            issued = entry.issued_at(now_ms)
            if issued is not None and issued.headers != refused:
                return issued.headers
            if entry.renewed_ms is not None and 0 <= now_ms - entry.renewed_ms < RENEW_AGAIN_S * 1000:
                return None
            entry.renewed_ms = now_ms
            return (await self._exchange(entry, subject)).headers

    async def token_for(self, subject: SubjectToken) -> ExchangedToken:
        """Return a token for the subject. Those who need one at the same time share it.

        Raises ExchangeRefused if another token of the caller may help, ExchangeUnusable if the configuration has to
        change, NoToken if the issuer gives no answer.
        """
        now_ms = self._check_alive(subject)
        entry = self._entry_of(subject)
        if (issued := entry.issued_at(now_ms)) is not None:
            return issued
        turn = entry.turn
        async with entry.asking:
            now_ms = self._check_alive(subject)
            if (issued := entry.issued_at(now_ms)) is not None:
                return issued
            if entry.turn != turn and entry.failed is not None:  # an issuer that hangs is not waited for in turns
                raise _copy(entry.failed)
            if entry.refused and 0 <= now_ms - entry.refused_ms < REFUSED_S * 1000:
                raise ExchangeRefused(self._endpoint.shown, entry.refused)
            return await self._exchange(entry, subject)

    def _check_alive(self, subject: SubjectToken) -> int:
        """Return the time in milliseconds. Raises ExchangeRefused if the caller's token has expired by then."""
        now_ms = self._clock.now_ms()
        if subject.expires_ms is not None and subject.expires_ms <= now_ms:
            raise ExchangeRefused(self._endpoint.shown, "the caller's token has expired")
        return now_ms

    def _entry_of(self, subject: SubjectToken) -> _Entry:
        entry = self._entries.get(subject.digest)
        if entry is None:
            entry = self._entries[subject.digest] = _Entry()
            while len(self._entries) > ENTRIES_MAX:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(subject.digest)
        return entry

    async def _exchange(self, entry: _Entry, subject: SubjectToken) -> ExchangedToken:
        """Ask the issuer, and remember what came of it. For the one who asks in this entry."""
        asked_ms = self._clock.now_ms()
        entry.issued, entry.failed, entry.refused = None, None, ""
        try:
            entry.issued = issued = await self._fetch(subject, asked_ms)
        except NoToken as failed:
            entry.failed = failed
            if isinstance(failed, ExchangeRefused):
                entry.refused, entry.refused_ms = _words_of(failed), asked_ms
            raise
        finally:
            entry.turn += 1
        left_s = (issued.until_ms - self._clock.now_ms()) / 1000
        asyncio.get_running_loop().call_later(max(left_s, 0.0), self._forget, subject.digest, ref(issued))
        return issued

    async def _fetch(self, subject: SubjectToken, asked_ms: int) -> ExchangedToken:
        shown, terms = self._endpoint.shown, self.terms
        if terms.scope_to_ask(subject) == ():
            lacks = " ".join(terms.scopes or terms.scope or ())
            raise ExchangeRefused(shown, f"the caller's token has none of the scopes {lacks}")
        actor_token = None if self._actor is None else await self._actor.token()
        answer = await self._request(terms.build_form(subject, actor_token))
        if fault := terms.find_fault(answer, subject):
            raise ExchangeUnusable(shown, fault)
        return self._take(answer, subject, asked_ms)

    def _forget(self, digest: str, over: "ref[ExchangedToken]") -> None:
        """Forget a token that is not used any more."""
        entry, issued = self._entries.get(digest), over()
        if entry is not None and issued is not None and entry.issued is issued and not entry.asking.locked():
            del self._entries[digest]

    async def _request(self, form: Mapping[str, str | None]) -> TokenAnswer:
        try:
            return await self._endpoint.request_token(form)
        except TokenRefused as refused:
            if refused.status == 429 or refused.status >= 500:
                raise
            unnamed = refused.status == 401 and not refused.code  # that of a client (RFC 6749 §5.2)
            ours = refused.code in OURS_TO_FIX or refused.status not in (400, 401, 403) or unnamed
            raise (ExchangeUnusable if ours else ExchangeRefused)(refused.url, _words_of(refused)) from refused

    def _take(self, answer: TokenAnswer, subject: SubjectToken, asked_ms: int) -> ExchangedToken:
        claims = _claims_in(answer.access_token) or {}
        life_s, expires_s = answer.life_s, _expires_s(claims)
        if expires_s is not None:
            own_s = expires_s - asked_ms / 1000
            life_s = own_s if life_s is None else min(life_s, own_s)
        life_s = LIFE_S if life_s is None else life_s
        until_ms = asked_ms + min(life_s - min(MARGIN_S, max(life_s, 0.0) * MARGIN_SHARE), 1e9) * 1000
        if subject.expires_ms is not None:
            until_ms = min(until_ms, subject.expires_ms)
        asked = self.terms.scope_to_ask(subject)
        said = sorted(_scope_of(claims) or ()) or (answer.scope or "").split() or list(asked or ())
        link = ActingLink(
            subject=subject.subject,
            actors=_actors_of(claims) or cut_names((self._endpoint.client_id, *subject.actors)),
            client=self._endpoint.client_id,
            issuer=cut_name(_text(claims, "iss") or self._endpoint.shown),
            audience=self.terms.target,
            scope=cut_name(" ".join(said)),
            at=timestamp(asked_ms),
        )
        return ExchangedToken(answer.access_token, asked_ms, until_ms, link)


def _copy(error: NoToken) -> NoToken:
    """An error like another one, without its traceback."""
    if isinstance(error, ExchangeRefused | ExchangeUnusable):
        return type(error)(error.url, _words_of(error))
    return NoToken(error.url, _words_of(error), permanent=error.permanent)


def _words_of(error: NoToken) -> str:
    return str(error).removeprefix(f"{error.url}: ")


# -- claims ------------------------------------------------------------------------------------------------------------


def _claims_in(token: str) -> dict[str, Any] | None:
    """The claims of a JWT, which are not verified; None if it is none that can be read."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        header, claims = (
            msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=dict[str, Any])
            for part in parts[:2]
        )
    except (ValueError, RecursionError):
        return None
    return claims if "alg" in header else None


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    return cut_name(value) if isinstance(value, str) else ""


def _expires_s(claims: Mapping[str, Any]) -> float | None:
    """When a token expires, in seconds since the epoch; None if it does not say, or names no moment that there is."""
    value = claims.get("exp")
    try:
        seconds = float(value) if isinstance(value, int | float) else math.inf
    except OverflowError:  # an integer may have any number of digits
        return None
    return seconds if math.isfinite(seconds) else None


def _scope_of(claims: Mapping[str, Any]) -> frozenset[str] | None:
    """The scope of a token: `scope` (RFC 8693 §4.2), or `scp`, as Entra and Okta spell it; None if it has neither."""
    for name in ("scope", "scp"):
        value = claims.get(name)
        if isinstance(value, str):
            return frozenset(value.split())
        if isinstance(value, list):
            return frozenset(each for each in value if isinstance(each, str))
    return None


def _audiences_of(claims: Mapping[str, Any]) -> set[str]:
    value = claims.get("aud")
    return {value} if isinstance(value, str) else {str(each) for each in value} if isinstance(value, list) else set()


def _actors_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The actors of a token, the present one first; earlier ones are nested in it (RFC 8693 §4.1)."""
    found: list[str] = []
    act = claims.get("act")
    while isinstance(act, dict) and len(found) < ACTORS_MAX:
        if name := _text(act, "sub") or _text(act, "client_id"):
            found.append(name)
        act = act.get("act")
    return tuple(found)
