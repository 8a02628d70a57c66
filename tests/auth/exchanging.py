"""An issuer that exchanges tokens (RFC 8693), so that each server in a row accepts those that are for itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from joserfc.util import urlsafe_b64decode

from dragoman.config import UpstreamCredentials
from dragoman.model.ids import SystemClock
from tests.auth.issuer import Issuer, token
from tests.net.peer import Asked, listening, says

TOKEN_PATH = "POST /realms/x/token"


class ExchangingIssuer(Issuer):
    """`asked` has the forms of the exchanges. `refusal` is the error with which it refuses, `more` changes the claims
    of the tokens that it issues, and `answer` the fields of the answers."""

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self.clock.ms = SystemClock().now_ms()
        self.asked: list[dict[str, str]] = []
        self.refusal: tuple[int, str] | None = None
        self.more: dict[str, Any] = {}
        self.answer: dict[str, Any] = {}
        self.issued: list[str] = []
        peer.scripts[TOKEN_PATH] = self._exchange

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def caller(self, audience: str, **claims: Any) -> str:
        """A token of a caller for that audience."""
        return token(self.claims(aud=audience, **claims)).decode()

    def exchange_for(self, audience: str, **more: Any) -> UpstreamCredentials:
        """The table of an exchange for that audience."""
        given: dict[str, Any] = {"client_id": "front", "env": "SECRET", "audience": audience, "exchange": True, **more}
        return UpstreamCredentials(token_url=self.token_url, **given)

    async def _exchange(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        form = dict(parse_qsl(asked.body.decode()))
        self.asked.append(form)
        if self.refusal is not None:
            code, error = self.refusal
            await says({"error": error, "error_description": form.get("subject_token", "")}, code)(asked, writer)
            return
        if form["grant_type"] == "client_credentials":
            own = {"sub": "server", "aud": form.get("audience")}
            await says({"access_token": token(self.claims(**own)).decode(), "token_type": "Bearer"})(asked, writer)
            return
        subject = claims_of(form["subject_token"])
        actor = claims_of(form["actor_token"])["sub"] if "actor_token" in form else "front"
        act = {"sub": actor, **({"act": subject["act"]} if "act" in subject else {})}
        said = {"sub": subject["sub"], "aud": form.get("audience") or form.get("resource"), "act": act}
        if scope := form.get("scope"):
            said["scope"] = scope
        self.issued.append(token(self.claims(**{**said, **self.more})).decode())
        answer = {
            "access_token": self.issued[-1],
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "token_type": "Bearer",
            "expires_in": 600,
            **self.answer,
        }
        await says(answer)(asked, writer)


def claims_of(sent: str) -> dict[str, Any]:
    """The claims of a token."""
    claims: dict[str, Any] = msgspec.json.decode(urlsafe_b64decode(sent.split(".")[1].encode()))
    return claims


@asynccontextmanager
async def exchanging() -> AsyncIterator[ExchangingIssuer]:
    """An issuer on a free port."""
    async with listening() as peer:
        yield ExchangingIssuer(peer)
