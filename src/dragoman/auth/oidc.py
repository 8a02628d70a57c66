"""Sign-in of operators by an OpenID provider: authorization code with PKCE (OpenID Connect Core 1.0 §3.1, RFC 7636,
RFC 9700).

Invariant: a code is exchanged only for the browser that began, at the provider that it began with, and an ID token
counts once, for this client, for that very beginning. Nobody is an operator whose token does not say so in the claim
that the settings name.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import math
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from dragoman.auth.issuers import IssuerEgress
from dragoman.auth.sessions import LONGEST_MS
from dragoman.auth.tokens import (
    DISCOVERY_PATH,
    FETCH_S,
    SUBJECT_MAX,
    IssuerFault,
    Jwks,
    SignedTokens,
    TokenTeam,
    get_json,
    has_claim,
    read_document,
    same_issuer,
)
from dragoman.model.errors import Forbidden, TooManyRequests, Unauthorized, Unavailable
from dragoman.model.ids import Clock
from dragoman.net.errors import BadUrl, EgressError
from dragoman.net.target import Target, target
from dragoman.store.api import StoreError
from dragoman.store.shared import Shared

log = logging.getLogger(__name__)

EXCHANGE_MS = 10 * 60 * 1000
"""How long a sign-in may take, from the first page of the provider to the return."""

AT_ONCE_MAX = 8
"""Most codes that are exchanged at once: anybody can make the server ask the provider."""

FRESH_MS = 3600 * 1000
"""How long the provider's metadata are used."""

RETRY_MS = 5 * 1000
"""How long a provider that failed is not asked again: anybody can make the server ask."""

UNUSABLE = "the provider cannot be reached, or is not set up: try again"

NEXT_MAX = 1000

USED = "console-oidc:"

_NEXT = re.compile(r"/console(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?(\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?", re.ASCII)
_ERROR = re.compile(r"[a-z_]{1,60}", re.ASCII)
_CODE = re.compile(r"[ -~]{1,4096}", re.ASCII)


class Provider(Struct, frozen=True, kw_only=True):
    """The settings of a sign-in. `claim` must be `value`, or a list that has it; dots in it lead into objects.

    `session_ms` is how long a session lasts; None: as long as its ID token. An operator whose ID token is in one of the
    `teams` is an operator of that one.
    """

    issuer: str
    client_id: str
    client_secret: str | None
    redirect_url: str
    scope: str
    claim: str
    value: str
    session_ms: int | None
    teams: tuple[TokenTeam, ...] = ()

    @property
    def digest(self) -> str:
        """A name of all that makes somebody an operator: sessions of another one do not count."""
        parts: tuple[object, ...] = (self.issuer, self.client_id, self.claim, self.value)
        parts += tuple((each.claim, each.value, each.team.id) for each in self.teams)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()

    def __repr__(self) -> str:
        return f"Provider(issuer={self.issuer!r}, client_id={self.client_id!r})"


class BegunSignIn(Struct, frozen=True, array_like=True):
    """A sign-in that a browser has begun; it alone keeps it."""

    state: str
    nonce: str
    verifier: str
    next: str
    at_ms: int


class Vouched(Struct, frozen=True):
    """An operator, of a team or (empty) of the server, for whom the provider vouches until `ends_ms`, and the page to
    go on with. `id_token` is the provider's word, by which it knows its own session again; empty if that has no end.
    """

    principal: str
    ends_ms: int
    next: str
    team: str = ""
    id_token: str = ""


class _Metadata(Struct, frozen=True):
    """The provider's metadata that are used (OpenID Connect Discovery 1.0 §3, RFC 9207 §3).

    `end_session` is where a browser signs out (OpenID Connect RP-Initiated Logout 1.0 §2.1); empty: nowhere.
    """

    authorization: str
    token: Target
    names_itself: bool
    posts_secret: bool
    end_session: str


class _IdClaims(Struct, frozen=True):
    """The claims of an ID token that are read (OpenID Connect Core 1.0 §2)."""

    iss: str
    sub: str
    aud: str | tuple[str, ...]
    exp: float
    iat: float
    nonce: str
    nbf: float = 0.0
    azp: str | None = None


class _TokenAnswer(Struct, frozen=True):
    id_token: str


class ProviderSignIn:
    """Signs operators in by one provider."""

    def __init__(
        self,
        provider: Provider,
        jwks: Jwks,
        algorithms: Collection[str],
        issuers: IssuerEgress,
        shared: Shared,
        clock: Clock,
        leeway_s: float,
    ) -> None:
        self.provider = provider
        self.lasts_s = EXCHANGE_MS // 1000
        """How long a sign-in may take, in seconds."""
        self._signed = SignedTokens(jwks, algorithms)
        self._issuers = issuers
        self._shared = shared
        self._clock = clock
        self._leeway_s = leeway_s
        self._metadata: _Metadata | None = None
        self._fetched_ms = 0
        self._failed_ms = -RETRY_MS
        self._fetching = asyncio.Lock()
        self._exchanging = 0

    async def begin(self, next_page: str) -> tuple[str, str]:
        """Begin a sign-in. Returns the URL to go to, and the value of the cookie that the browser keeps meanwhile.

        `next_page` is a page of the console; any other is replaced by its first. Raises Unavailable.
        """
        metadata = await self._discover()
        begun = BegunSignIn(
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(48),
            next_page if len(next_page) <= NEXT_MAX and _NEXT.fullmatch(next_page) else "/console",
            self._clock.now_ms(),
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(begun.verifier.encode()).digest()).decode().rstrip("=")
        asked = {
            "response_type": "code",
            "client_id": self.provider.client_id,
            "redirect_uri": self.provider.redirect_url,
            "scope": self.provider.scope,
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in metadata.authorization else "?"
        kept = base64.urlsafe_b64encode(msgspec.json.encode(begun)).decode().rstrip("=")
        return f"{metadata.authorization}{joint}{urlencode(asked)}", kept

    async def finish(self, kept: str | None, returned: Sequence[tuple[str, str]]) -> Vouched:
        """Finish a sign-in with the cookie's value and the query with which the provider sent the browser back.

        Raises Forbidden, Unavailable or TooManyRequests, whose message may be shown to anybody.
        """
        begun = self._read_begun(kept)
        fields = dict(returned)
        if len(fields) != len(returned):  # RFC 6749 §3.1: not more than once
            raise Forbidden("the provider's answer names a field twice: begin again")
        if not hmac.compare_digest(fields.get("state", "").encode(), begun.state.encode()):
            raise Forbidden("this is not the sign-in that this browser began: begin again")
        metadata = await self._discover()
        issuer = fields.get("iss")  # RFC 9207 §2.4
        if (issuer is None and metadata.names_itself) or (issuer is not None and not self._is_issuer(issuer)):
            raise Forbidden("the answer comes from another provider: begin again")
        if (error := fields.get("error")) is not None:
            raise Forbidden(f"the provider refused: {error if _ERROR.fullmatch(error) else 'it did not say why'}")
        code = fields.get("code", "")
        if not _CODE.fullmatch(code):
            raise Forbidden("the provider sent no code: begin again")
        with self._counted():
            token = await self._exchange(metadata, code, begun.verifier)
            try:
                payload, _ = await self._signed.open(token)
            except Unauthorized as refused:
                raise Forbidden("the provider's ID token is not valid here") from refused
        claims = self._read_claims(payload, begun.nonce)
        team = self._read_team(payload)
        try:
            first = await self._shared.put(USED + _digest(begun.nonce), b"", EXCHANGE_MS, version=0)
        except StoreError as error:
            raise Unavailable("sessions cannot be begun at this moment: try again") from error
        if first is None:
            raise Forbidden("this sign-in has been used already: begin again")
        now_ms, life_ms = self._clock.now_ms(), self.provider.session_ms
        ends_ms = int(min(claims.exp * 1000, now_ms + LONGEST_MS)) if life_ms is None else now_ms + life_ms
        id_token = token.decode() if metadata.end_session else ""
        return Vouched(f"oidc:{claims.sub}@{self.provider.issuer}", ends_ms, begun.next, team, id_token)

    async def sign_out(self, id_token: str) -> str:
        """The URL at which a browser ends its session at the provider; empty if the provider has none.

        The provider shows its own page then: it would refuse to lead back to a page that is not registered there.
        Raises Unavailable.
        """
        to = (await self._discover()).end_session
        if not to:
            return ""
        asked = {"client_id": self.provider.client_id, **({"id_token_hint": id_token} if id_token else {})}
        return f"{to}{'&' if '?' in to else '?'}{urlencode(asked)}"

    def _read_begun(self, kept: str | None) -> BegunSignIn:
        try:
            if not kept:
                raise Forbidden("the sign-in took too long, or this browser did not begin it: begin again")
            begun = msgspec.json.decode(base64.urlsafe_b64decode(kept + "=" * (-len(kept) % 4)), type=BegunSignIn)
        except (ValueError, RecursionError):
            raise Forbidden("the browser's cookie of the sign-in is damaged: begin again") from None
        if not 0 <= self._clock.now_ms() - begun.at_ms < EXCHANGE_MS:
            raise Forbidden("the sign-in took too long: begin again")
        if not _NEXT.fullmatch(begun.next):
            raise Forbidden("the browser's cookie of the sign-in is damaged: begin again")
        return begun

    async def _exchange(self, metadata: _Metadata, code: str, verifier: str) -> bytes:
        """Exchange the code for an ID token. Raises Forbidden or Unavailable."""
        provider = self.provider
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": provider.redirect_url,
            "client_id": provider.client_id,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if provider.client_secret is not None and metadata.posts_secret:
            form["client_secret"] = provider.client_secret
        elif provider.client_secret is not None:  # RFC 6749 §2.3.1: both are form-encoded first
            pair = f"{quote_plus(provider.client_id)}:{quote_plus(provider.client_secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        try:
            reply = await self._issuers.to(metadata.token, self.provider.issuer).request(
                "POST", metadata.token, timeout_s=FETCH_S, headers=headers, body=urlencode(form).encode()
            )
        except EgressError as error:
            log.warning("the provider %s cannot be asked for a token: %s", provider.issuer, error)
            raise Unavailable("the provider cannot be reached: try again") from error
        if reply.status >= 500:
            raise Unavailable("the provider fails: try again")
        try:
            if not reply.ok:
                raise ValueError
            return msgspec.json.decode(reply.body, type=_TokenAnswer).id_token.encode()
        except (ValueError, RecursionError):
            log.warning("the provider %s gives no ID token: HTTP status %d", provider.issuer, reply.status)
            raise Forbidden("the provider does not take the code, or has used it already: begin again") from None

    def _read_claims(self, payload: bytes, nonce: str) -> _IdClaims:
        """The claims of an ID token, after the checks of OpenID Connect Core 1.0 §3.1.3.7. Raises Forbidden."""
        try:
            claims = msgspec.json.decode(payload, type=_IdClaims)
        except (ValueError, RecursionError):
            raise Forbidden("the provider's ID token lacks a claim that it must have") from None
        now_s = self._clock.now_ms() / 1000
        own = self.provider.client_id
        audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
        if not self._is_issuer(claims.iss):
            raise Forbidden("the ID token is of another issuer (iss)")
        if own not in audiences or (claims.azp is None and len(audiences) > 1) or claims.azp not in (None, own):
            raise Forbidden("the ID token is for another client (aud, azp)")
        if not hmac.compare_digest(claims.nonce.encode(), nonce.encode()):
            raise Forbidden("the ID token is of another sign-in (nonce)")
        if not math.isfinite(claims.exp) or not claims.exp > now_s - self._leeway_s:
            raise Forbidden("the ID token has expired (exp)")
        if not max(claims.iat, claims.nbf) <= now_s + self._leeway_s:
            raise Forbidden("the ID token is not valid yet (iat, nbf)")
        if not 0 < len(claims.sub) <= SUBJECT_MAX or not claims.sub.isprintable():
            raise Forbidden("the ID token has no proper subject (sub)")
        return claims

    def _read_team(self, payload: bytes) -> str:
        """The team of the operator; empty for one of the server. Raises Forbidden for anybody else."""
        try:
            claims = msgspec.json.decode(payload)
        except (ValueError, RecursionError):  # in a claim that is not read otherwise
            raise Forbidden("the provider's ID token is not valid here") from None
        if not has_claim(claims, self.provider.claim, self.provider.value):
            raise Forbidden("you are signed in at the provider, but are no operator here: ask for that role")
        teams = [each.team.id for each in self.provider.teams if each.has(claims)]
        if len(teams) > 1:
            raise Forbidden(f"your claims put you in the teams {' and '.join(teams)}, and an operator is of one")
        return teams[0] if teams else ""

    async def _discover(self) -> _Metadata:
        """The provider's metadata, fetched once an hour; every few seconds if that fails. Raises Unavailable."""
        async with self._fetching:
            now_ms = self._clock.now_ms()
            if self._metadata is None or not 0 <= now_ms - self._fetched_ms < FRESH_MS:
                if 0 <= now_ms - self._failed_ms < RETRY_MS:
                    raise Unavailable(UNUSABLE)
                try:
                    self._metadata = await self._fetch()
                except (EgressError, IssuerFault) as error:
                    log.warning("the provider %s cannot be used: %s", self.provider.issuer, error)
                    self._failed_ms = self._clock.now_ms()
                    raise Unavailable(UNUSABLE) from error
                self._fetched_ms = now_ms
            return self._metadata

    async def _fetch(self) -> _Metadata:
        issuer = self.provider.issuer
        url = issuer + DISCOVERY_PATH
        document = read_document(await get_json(self._issuers.named, url), url)
        said = document.get("issuer")
        if not isinstance(said, str) or not same_issuer(said, issuer):  # Discovery §4.3: MUST be identical
            raise IssuerFault(f"its discovery document is that of another issuer, {said!r:.200}")
        found: dict[str, Target] = {}
        for name in ("authorization_endpoint", "token_endpoint"):
            given = document.get(name)
            if not isinstance(given, str):
                raise IssuerFault(f"its discovery document has no `{name}`")
            found[name] = target(given)
            if issuer.startswith("https:") and found[name].scheme != "https":
                raise IssuerFault(f"its discovery document has a `{name}` without TLS")
        methods = document.get("token_endpoint_auth_methods_supported")
        return _Metadata(
            authorization=found["authorization_endpoint"].url,
            token=found["token_endpoint"],
            names_itself=document.get("authorization_response_iss_parameter_supported") is True,
            posts_secret=isinstance(methods, list)
            and "client_secret_basic" not in methods
            and "client_secret_post" in methods,
            end_session=_read_end_session(document.get("end_session_endpoint"), issuer),
        )

    def _is_issuer(self, said: str) -> bool:
        return same_issuer(said, self.provider.issuer)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._exchanging >= AT_ONCE_MAX:
            raise TooManyRequests("oidc_issuer", "too many sign-ins are under way: try again", 5)
        self._exchanging += 1
        try:
            yield
        finally:
            self._exchanging -= 1


def _read_end_session(given: object, issuer: str) -> str:
    """The URL, if a browser may be sent there: nobody is kept from signing in by a wrong one."""
    try:
        to = target(given) if isinstance(given, str) else None
    except BadUrl:
        return ""
    return "" if to is None or (issuer.startswith("https:") and to.scheme != "https") else to.url


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
