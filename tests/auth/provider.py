"""An OpenID provider on loopback, with real keys: it asks nobody, and sends every browser back at once."""

import base64
import hashlib
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.auth.issuer import RSA, jwk, token, unsigned

CLIENT, SECRET = "the console", "s3cret: of the client"


class OpenIdProvider:
    """Its answers can be changed. `claims` are added to every ID token; None leaves one out.

    `takes` is how the client shows its secret: `basic`, `post` or `none`.
    `begun` are the queries with which browsers came, `spent` the codes that were exchanged.
    """

    def __init__(self) -> None:
        self.url = ""
        self.claims: dict[str, Any] = {"groups": ["staff", "operators"]}
        self.metadata: dict[str, Any] = {}
        self.answer: dict[str, str | None] = {}
        self.alg = "RS256"
        self.takes = "basic"
        self.begun: list[dict[str, str]] = []
        self.spent: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._discover)
        app.router.add_get("/keys", self._keys)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        return app

    async def _discover(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                "authorization_response_iss_parameter_supported": True,
                **self.metadata,
            }
        )

    async def _keys(self, request: web.Request) -> web.Response:
        return web.json_response({"keys": [jwk(RSA, "r1")]})

    async def _authorize(self, request: web.Request) -> web.Response:
        asked = dict(request.query)
        self.begun.append(asked)
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        sent = {"code": code, "state": asked["state"], "iss": self.url, **self.answer}
        query = urlencode({name: value for name, value in sent.items() if value is not None})
        raise web.HTTPFound(f"{asked['redirect_uri']}?{query}")

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        asked = self._codes.pop(str(form["code"]), None)
        verifier = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        pair = f"{CLIENT.replace(' ', '+')}:s3cret%3A+of+the+client"
        shown = {
            "basic": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "post": None,
            "none": None,
        }[self.takes]
        if (
            asked is None
            or request.headers.get("Authorization") != shown
            or form.get("client_secret") != (SECRET if self.takes == "post" else None)
            or form["client_id"] != CLIENT
            or asked["code_challenge"] != challenge
            or asked["code_challenge_method"] != "S256"
            or form["redirect_uri"] != asked["redirect_uri"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.spent.append(str(form["code"]))
        now_s = int(time.time())
        claims = {
            "iss": self.url,
            "sub": "ann",
            "aud": CLIENT,
            "exp": now_s + 3600,
            "iat": now_s,
            "nonce": asked["nonce"],
            **self.claims,
        }
        given = {name: value for name, value in claims.items() if value is not None}
        signed = f"{unsigned({'alg': 'none'}, given)}." if self.alg == "none" else token(given, alg=self.alg).decode()
        return web.json_response({"access_token": "unused", "token_type": "Bearer", "id_token": signed})


@asynccontextmanager
async def providing() -> AsyncIterator[OpenIdProvider]:
    """A provider on a free port."""
    provider = OpenIdProvider()
    async with TestServer(provider.app()) as server:
        provider.url = str(server.make_url("")).rstrip("/")
        yield provider
