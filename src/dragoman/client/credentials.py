"""The credentials that Dragoman shows to another agent or another Dragoman: a key, a token, or a token that it fetches.

Invariant: a secret appears in the headers of a request, or in the body of a token request, and nowhere else: not in a
repr, a message or a log.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

from dragoman.client.http import HttpClient
from dragoman.client.token_endpoint import LIFE_S, TOKEN_TIMEOUT_S, ClientMethod, TokenEndpoint
from dragoman.model.ids import Clock, SystemClock
from dragoman.net.egress import ClaimedConnection, Egress, Flow, HttpReply
from dragoman.net.target import Target

MARGIN_S, MARGIN_SHARE = 30.0, 0.1
"""How long before a token expires the next one is fetched; for a short-lived token, this share of its life."""

RENEW_AGAIN_S = 30
"""Shortest time between two fetches of a token that a refusal by the upstream triggered."""


class Credentials(Protocol):
    """Identifies the caller in request headers."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers for a request. Raises NoToken."""
        ...

    async def renewed(self, refused: Mapping[str, str]) -> Mapping[str, str] | None:
        """Return new headers after a 401 to the refused ones; None if there are none. Raises NoToken."""
        ...


@runtime_checkable
class MayBeAbsent(Protocol):
    """Credentials that may turn out to be none."""

    @property
    def absent(self) -> bool:
        """Whether a request that is made now has none."""
        ...


CredentialsFactory = Callable[[Egress], Credentials | None]
"""Creates the credentials, given the egress by which tokens are fetched."""


def check_credentials(credentials: object) -> None:
    """Check that a caller's `credentials` are Credentials or None. Raises TypeError, which does not show them."""
    methods = (getattr(credentials, name, None) for name in ("headers", "renewed"))
    if credentials is None or (not isinstance(credentials, type) and all(map(callable, methods))):
        return
    what = f"the class {credentials.__name__}" if isinstance(credentials, type) else f"a {type(credentials).__name__}"
    raise TypeError(
        f"`credentials` is {what}: pass ApiKey(key), BearerToken(token) or ClientCredentials(token_url, id, secret) "
        "of dragoman.client"
    )


class Authorized:
    """Adds credentials to requests. Use one per peer: it does not check where a request goes.

    Raises TypeError if `credentials` are not Credentials.
    """

    def __init__(self, egress: HttpClient, credentials: Credentials) -> None:
        check_credentials(credentials)
        self._egress = egress
        self._credentials = credentials
        self._may_be_absent = credentials if isinstance(credentials, MayBeAbsent) else None

    def claim(self, url: str | Target) -> ClaimedConnection | None:
        """Claim a connection as `Egress.claim` does; None if a request needs credentials."""
        optional = self._may_be_absent
        return self._egress.claim(url) if optional is not None and optional.absent else None

    async def request(
        self,
        method: str,
        url: str | Target,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpReply:
        """Send a request as `Egress.request` does, with credentials. After a 401, when nothing was done, it is repeated
        once if there are new credentials.

        Fetching a token is not part of `timeout_s`. Raises NoToken, too.
        """
        shown = await self._credentials.headers()
        reply = await self._egress.request(
            method, url, timeout_s=timeout_s, headers={**(headers or {}), **shown}, body=body
        )
        if reply.status != 401 or (others := await self._credentials.renewed(shown)) is None:
            return reply
        return await self._egress.request(
            method, url, timeout_s=timeout_s, headers={**(headers or {}), **others}, body=body
        )

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str | Target,
        *,
        head_timeout_s: float,
        idle_timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> AsyncIterator[Flow]:
        """Open an answer as `Egress.stream` does, with credentials; a 401 is handled as in `request`."""
        flow = await self.open(
            method, url, head_timeout_s=head_timeout_s, idle_timeout_s=idle_timeout_s, headers=headers, body=body
        )
        try:
            yield flow
        finally:
            flow.release()

    async def open(
        self,
        method: str,
        url: str | Target,
        *,
        head_timeout_s: float,
        idle_timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Flow:
        """Open an answer as `Egress.open` does, with credentials; a 401 is handled as in `request`."""
        shown, renewed = await self._credentials.headers(), False
        while True:
            flow = await self._egress.open(
                method,
                url,
                head_timeout_s=head_timeout_s,
                idle_timeout_s=idle_timeout_s,
                headers={**(headers or {}), **shown},
                body=body,
            )
            if flow.status != 401 or renewed:
                return flow
            try:
                others = await self._credentials.renewed(shown)
            except BaseException:
                flow.release()
                raise
            if others is None:
                return flow
            flow.release()
            shown, renewed = others, True


class ApiKey:
    """An API key in its own header."""

    def __init__(self, value: str, header: str = "x-api-key") -> None:
        self._headers = {header: value}

    async def headers(self) -> Mapping[str, str]:
        """Return the header with the key."""
        return self._headers

    async def renewed(self, refused: Mapping[str, str]) -> None:
        """Return None: there is only one key."""
        return None


class BearerToken(ApiKey):
    """A fixed bearer token (RFC 6750 §2.1)."""

    def __init__(self, value: str) -> None:
        super().__init__(f"Bearer {value}", "Authorization")
        self.token = value


class ClientCredentials:
    """Tokens by OAuth 2.0 client credentials (RFC 6749 §4.4), each used until shortly before it expires.

    `audience` is for servers that require the token's purpose (Auth0). The secret goes into a header
    (`client_secret_basic`), or into the body for servers that want it there (`client_secret_post`). Without `egress`
    each token is fetched over a new connection. Belongs to one event loop. Raises BadUrl.
    """

    def __init__(
        self,
        token_url: str,
        client_id: str,
        client_secret: str,
        *,
        egress: Egress | None = None,
        scope: str | None = None,
        audience: str | None = None,
        method: ClientMethod = "client_secret_basic",
        clock: Clock | None = None,
        timeout_s: float = TOKEN_TIMEOUT_S,
    ) -> None:
        self._endpoint = TokenEndpoint(
            token_url, client_id, client_secret, egress=egress, method=method, timeout_s=timeout_s
        )
        self._clock = clock or SystemClock()
        self._form = {"grant_type": "client_credentials", "scope": scope, "audience": audience}
        self._token = ""
        self._fetched = 0
        self._from_ms = self._until_ms = 0
        self._renewed_ms: int | None = None
        self._fetching = asyncio.Lock()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets besides the tokens that must not be shown: an issuer, or a party with its log, may repeat them."""
        return self._endpoint.secrets

    async def headers(self) -> Mapping[str, str]:
        """Return the token header; fetch a token first if none is valid for a while."""
        await self.token()
        return self._bearer

    async def token(self) -> str:
        """Return the token itself; fetch one first if none is valid for a while. Raises NoToken.

        A call that has waited for the token of another takes that one, even if the clock was set meanwhile, or the
        token took as long to come as it lives.
        """
        if not self._good:
            fetched = self._fetched
            async with self._fetching:
                if self._fetched == fetched:
                    await self._fetch()
        return self._token

    async def renewed(self, refused: Mapping[str, str]) -> Mapping[str, str] | None:
        """Return a header with a new token; None if the refused one was itself fetched a moment ago after a refusal."""
        async with self._fetching:
            if self._bearer == refused:
                now_ms = self._clock.now_ms()
                if self._renewed_ms is not None and 0 <= now_ms - self._renewed_ms < RENEW_AGAIN_S * 1000:
                    return None
                self._renewed_ms = now_ms
                await self._fetch()
        return None if self._bearer == refused else self._bearer

    @property
    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    @property
    def _good(self) -> bool:
        return bool(self._token) and self._from_ms <= self._clock.now_ms() < self._until_ms

    async def _fetch(self) -> None:
        asked_ms = self._clock.now_ms()
        answer = await self._endpoint.request_token(self._form)
        life_s = LIFE_S if answer.life_s is None else answer.life_s
        margin_s = min(MARGIN_S, life_s * MARGIN_SHARE)
        self._token = answer.access_token
        self._fetched += 1
        self._from_ms, self._until_ms = asked_ms, asked_ms + int(min(life_s - margin_s, 1e9) * 1000)


REDACTED = "[redacted]"

SECRET_LENGTH_MIN = 4
"""Shorter values are not searched for: they occur in everything."""


def redact(text: str, secrets: Sequence[str]) -> str:
    """Return a text without these secrets. Those that are too short to be told from other words stay."""
    for secret in secrets:
        if len(secret) >= SECRET_LENGTH_MIN:
            text = text.replace(secret, REDACTED)
    return text
