"""The token endpoint of an issuer (RFC 6749 §3.2): this client's authentication there, its requests, and the answers.

Invariant: the client's secret goes to that endpoint alone, and no error repeats it, nor the endpoint's own words.
"""

import base64
import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from dragoman.client.errors import NoToken, TokenRefused
from dragoman.net.egress import Egress, HttpReply, checked
from dragoman.net.errors import Broken, EgressError
from dragoman.net.target import target

TOKEN_TIMEOUT_S = 10.0

LIFE_S = 300.0
"""How long a token is used if the answer does not state its life (RFC 6749 §5.1: RECOMMENDED)."""

ClientMethod = Literal["client_secret_basic", "client_secret_post"]
"""Where the client's secret goes: into a header, or into the body, for servers that want it there."""

_TOKEN = re.compile(r"[!-~]{1,16384}", re.ASCII)
_ERROR = re.compile(r"[a-z_]{1,40}", re.ASCII)


class TokenAnswer(Struct, frozen=True):
    """The fields of an answer that are used (RFC 6749 §5.1, RFC 8693 §2.2.1)."""

    access_token: str
    token_type: str
    expires_in: float | str | None = None
    scope: str | None = None
    issued_token_type: str = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…, scope={self.scope!r})"

    @property
    def life_s(self) -> float | None:
        """The life of the token in seconds; None if the answer does not state it."""
        return None if self.expires_in is None else float(self.expires_in)


class TokenEndpoint:
    """The endpoint at `url`, for the client `client_id`. Without `egress` each request has a new connection.

    `shown` is the URL as errors name it. Raises BadUrl.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        *,
        egress: Egress | None = None,
        method: ClientMethod = "client_secret_basic",
        timeout_s: float = TOKEN_TIMEOUT_S,
    ) -> None:
        self.shown = checked(url)
        self.client_id = client_id
        self._url = url
        self._egress = egress
        self._timeout_s = timeout_s
        self._form: dict[str, str] = {}
        self._headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if method == "client_secret_basic":
            # §2.3.1: both are form-encoded first
            pair = base64.b64encode(f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
            self.secrets: tuple[str, ...] = (client_secret, pair)
            """The secrets that must not be shown: an issuer, or a party with its log, may repeat them."""
        else:
            self._form = {"client_id": client_id, "client_secret": client_secret}
            self.secrets = (client_secret,)

    @property
    def safe(self) -> bool:
        """Whether requests go over TLS, or stay on this machine."""
        to = target(self._url)
        return to.scheme == "https" or to.host in ("127.0.0.1", "::1", "localhost")

    async def request_token(self, form: Mapping[str, str | None]) -> TokenAnswer:
        """Request a token with the fields of `form` that are set. It is a bearer token that has not expired.

        Raises TokenRefused if the endpoint refuses, NoToken if there is no answer, or one that cannot be used.
        """
        fields = {**{name: value for name, value in form.items() if value is not None}, **self._form}
        try:
            reply = await self._send(urlencode(fields).encode())
        except EgressError as error:
            raise NoToken(self.shown, "no token: " + str(error).removeprefix(f"{self.shown}: ")) from error
        if not reply.ok:
            code = _error_code(reply)
            words = f"HTTP status {reply.status}" + (f", {code}" if code else "")
            raise TokenRefused(self.shown, f"no token: {words}", status=reply.status, code=code)
        try:
            answer = msgspec.json.decode(reply.body, type=TokenAnswer)
            life_s = LIFE_S if answer.life_s is None else answer.life_s
        except (ValueError, RecursionError):
            raise NoToken(self.shown, "no token: expected access_token, token_type and expires_in") from None
        if answer.token_type.lower() != "bearer" or not _TOKEN.fullmatch(answer.access_token) or not life_s > 0:
            raise NoToken(self.shown, "no token: expected a bearer token that has not expired")
        return answer

    async def _send(self, body: bytes) -> HttpReply:
        """Send the request, over a new connection if there is no `egress`."""
        if self._egress is not None:
            return await self._send_over(self._egress, body)
        own = Egress()
        try:
            return await self._send_over(own, body)
        finally:
            await own.close()

    async def _send_over(self, egress: Egress, body: bytes) -> HttpReply:
        """Send the request, and repeat it once if a kept connection broke; a repeat does no harm."""
        try:
            return await egress.request("POST", self._url, timeout_s=self._timeout_s, headers=self._headers, body=body)
        except Broken:
            return await egress.request("POST", self._url, timeout_s=self._timeout_s, headers=self._headers, body=body)


def _error_code(reply: HttpReply) -> str:
    """The error code of a refusal (RFC 6749 §5.2), if it has a proper one; the endpoint's own words are left out."""
    try:
        code = msgspec.json.decode(reply.body, type=dict[str, msgspec.Raw]).get("error")
        error = "" if code is None else msgspec.json.decode(code, type=str)
    except (ValueError, RecursionError):
        return ""
    return error if _ERROR.fullmatch(error) else ""
