"""What Dragoman shows another agent, or another Dragoman, to say who it is: a key, a token, or one that it fetches.

Invariant: a secret is in a request's headers, or in the body of the request for a token, and nowhere else: not in a
repr, a message or a log.
"""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Protocol
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from dragoman.client.errors import NoToken
from dragoman.client.wire import Way
from dragoman.model.ids import Clock, SystemClock
from dragoman.net.egress import Egress, Reply, checked
from dragoman.net.errors import Broken, EgressError
from dragoman.net.flow import Flow
from dragoman.net.target import Target

TOKEN_TIMEOUT_S = 10.0

MARGIN_S, MARGIN_SHARE = 30.0, 0.1
"""How long before a token expires another is fetched; of a short-lived one that share of its life."""

LIFE_S = 300.0
"""How long a token is used whose life the answer does not say (RFC 6749 §5.1: RECOMMENDED)."""

RENEW_AGAIN_S = 30
"""Shortest time between two tokens that are fetched because the upstream refused one."""

_TOKEN = re.compile(r"[!-~]{1,16384}", re.ASCII)
_ERROR = re.compile(r"[a-z_]{1,40}", re.ASCII)


class Credentials(Protocol):
    """Says who is calling, in headers."""

    async def headers(self) -> Mapping[str, str]:
        """What goes with a request. Raises NoToken."""
        ...

    async def renewed(self, refused: Mapping[str, str]) -> Mapping[str, str] | None:
        """Others, after an answer of 401 to those; None if there are none. Raises NoToken."""
        ...


class Authorized:
    """Makes requests with credentials. Whoever holds it asks one peer only: it does not look where a request goes."""

    def __init__(self, egress: Way, credentials: Credentials) -> None:
        self._egress = egress
        self._credentials = credentials

    async def request(
        self,
        method: str,
        url: str | Target,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        """See `Egress.request`. After a 401 it is made once more if there are other credentials: nothing was done.

        Getting a token has time of its own. Raises NoToken, too.
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
        """See `Egress.stream`; after a 401 as `request`."""

        def opening(shown: Mapping[str, str]) -> AbstractAsyncContextManager[Flow]:
            return self._egress.stream(
                method,
                url,
                head_timeout_s=head_timeout_s,
                idle_timeout_s=idle_timeout_s,
                headers={**(headers or {}), **shown},
                body=body,
            )

        shown = await self._credentials.headers()
        async with opening(shown) as flow:
            others = await self._credentials.renewed(shown) if flow.status == 401 else None
            if others is None:
                yield flow
                return
        async with opening(others) as flow:
            yield flow


class ApiKey:
    """A key in a header of its own."""

    def __init__(self, value: str, header: str = "x-api-key") -> None:
        self._headers = {header: value}

    async def headers(self) -> Mapping[str, str]:
        """The key."""
        return self._headers

    async def renewed(self, refused: Mapping[str, str]) -> None:
        """There is only this one."""
        return None


class BearerToken(ApiKey):
    """A token that is given and does not change (RFC 6750 §2.1)."""

    def __init__(self, value: str) -> None:
        super().__init__(f"Bearer {value}", "Authorization")


class _Answer(Struct, frozen=True):
    """What is looked at of an answer of the token endpoint (RFC 6749 §5.1)."""

    access_token: str
    token_type: str
    expires_in: float | str | None = None


class ClientCredentials:
    """Tokens by OAuth 2.0 client credentials (RFC 6749 §4.4), each used until shortly before it expires.

    `audience` is for servers that want to know what the token is for (Auth0). The secret goes into a header
    (`client_secret_basic`), or into the body where a server asks for that (`client_secret_post`). Without `egress` each
    token is fetched over a connection of its own. Belongs to one event loop. Raises BadUrl.
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
        method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic",
        clock: Clock | None = None,
        timeout_s: float = TOKEN_TIMEOUT_S,
    ) -> None:
        self._shown = checked(token_url)
        self._url = token_url
        self._egress = egress
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        form = {"grant_type": "client_credentials", "scope": scope, "audience": audience}
        self._headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if method == "client_secret_basic":
            # §2.3.1: both are form-encoded first
            pair = base64.b64encode(f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
            self._secrets: tuple[str, ...] = (client_secret, pair)
        else:
            form |= {"client_id": client_id, "client_secret": client_secret}
            self._secrets = (client_secret,)
        self._body = urlencode({name: value for name, value in form.items() if value is not None}).encode()
        self._token = ""
        self._from_ms = self._until_ms = 0
        self._renewed_ms: int | None = None
        self._fetching = asyncio.Lock()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be told, beside the tokens: an issuer, or who shares its log, may repeat it."""
        return self._secrets

    async def headers(self) -> Mapping[str, str]:
        """The token, fetched if there is none that is good for a while."""
        if not self._good:
            async with self._fetching:
                if not self._good:
                    await self._fetch()
        return self._bearer

    async def renewed(self, refused: Mapping[str, str]) -> Mapping[str, str] | None:
        """A new token; None if the last one that was refused was replaced only a moment ago."""
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

    async def _ask(self) -> Reply:
        """The endpoint's answer."""
        if self._egress is not None:
            return await self._ask_over(self._egress)
        own = Egress()
        try:
            return await self._ask_over(own)
        finally:
            await own.close()

    async def _ask_over(self, egress: Egress) -> Reply:
        """A connection that was kept may have ended meanwhile; to ask twice does no harm."""
        try:
            return await egress.request(
                "POST", self._url, timeout_s=self._timeout_s, headers=self._headers, body=self._body
            )
        except Broken:
            return await egress.request(
                "POST", self._url, timeout_s=self._timeout_s, headers=self._headers, body=self._body
            )

    async def _fetch(self) -> None:
        asked_ms = self._clock.now_ms()
        try:
            reply = await self._ask()
        except EgressError as error:
            raise NoToken(self._shown, "no token: " + str(error).removeprefix(f"{self._shown}: ")) from error
        if not reply.ok:
            raise NoToken(self._shown, f"no token: {_refusal(reply)}", permanent=reply.status in (400, 401, 403))
        try:
            answer = msgspec.json.decode(reply.body, type=_Answer)
            life_s = LIFE_S if answer.expires_in is None else float(answer.expires_in)
        except (ValueError, RecursionError):
            raise NoToken(self._shown, "no token: expected access_token, token_type and expires_in") from None
        if answer.token_type.lower() != "bearer" or not _TOKEN.fullmatch(answer.access_token) or not life_s > 0:
            raise NoToken(self._shown, "no token: expected a bearer token that has not expired")
        margin_s = min(MARGIN_S, life_s * MARGIN_SHARE)
        self._token = answer.access_token
        self._from_ms, self._until_ms = asked_ms, asked_ms + int(min(life_s - margin_s, 1e9) * 1000)


def _refusal(reply: Reply) -> str:
    """What a token endpoint says (RFC 6749 §5.2): its status and the code of the error, and none of its own words."""
    try:
        code = msgspec.json.decode(reply.body, type=dict[str, msgspec.Raw]).get("error")
        error = "" if code is None else msgspec.json.decode(code, type=str)
    except (ValueError, RecursionError):
        error = ""
    return f"HTTP status {reply.status}" + (f", {error}" if _ERROR.fullmatch(error) else "")
