"""An issuer of another make, idpyoidc: its keys, and a token endpoint that exchanges tokens (RFC 8693).

A person would sign in for a first token. Here `POST /subject` has the issuer make one of its own for whoever is named.
It runs in an environment of its own, prints its URL, and ends when its standard input does.
"""

import json
import logging
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from cryptojwt.exception import JWKESTException
from idpyoidc.message.oidc import AuthorizationRequest
from idpyoidc.server import Server
from idpyoidc.server.authn_event import create_authn_event
from idpyoidc.server.authz import AuthzHandling
from idpyoidc.server.client_authn import verify_client
from idpyoidc.server.configure import ASConfiguration
from idpyoidc.server.exception import ClientAuthenticationError, UnAuthorizedClient
from idpyoidc.server.user_info import UserInfo

CLIENT, SECRET = "gateway", "the-secret-of-the-gateway"
AUDIENCES = ["https://front.example", "https://back.example", "https://far.example"]
SCOPES = ["read", "write", "list"]

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
POLICY = {
    "": {
        "function": "idpyoidc.server.oauth2.token_helper.validate_token_exchange_policy",
        "kwargs": {"audience": AUDIENCES},
    }
}
OCT = [{"type": "OCT", "use": ["enc"], "kid": "password"}, {"type": "OCT", "use": ["enc"], "kid": "salt"}]


def make(url: str) -> Server:
    """The issuer, with one client, which may exchange tokens for each of the audiences."""
    helper = {
        "class": "idpyoidc.server.oauth2.token_helper.token_exchange.TokenExchangeHelper",
        "kwargs": {
            "requested_token_types_supported": ["urn:ietf:params:oauth:token-type:access_token"],
            "policy": POLICY,
        },
    }
    conf = {
        "issuer": url,
        "httpc_params": {"verify": False},
        "preference": {"subject_types_supported": ["public"]},
        "keys": {"uri_path": "jwks.json", "key_defs": [{"type": "EC", "crv": "P-256", "use": ["sig"]}]},
        "endpoint": {
            "token": {
                "path": "token",
                "class": "idpyoidc.server.oidc.token.Token",
                "kwargs": {
                    "client_authn_method": ["client_secret_basic", "client_secret_post"],
                    "grant_types_helpers": {EXCHANGE: helper},
                },
            }
        },
        "authentication": {
            "anon": {"acr": "none", "class": "idpyoidc.server.user_authn.user.NoAuthn", "kwargs": {"user": "alice"}}
        },
        "userinfo": {"class": UserInfo, "kwargs": {"db": {}}},
        "client_authn": verify_client,
        "template_dir": "template",
        "authz": {
            "class": AuthzHandling,
            "kwargs": {
                "grant_config": {
                    "usage_rules": {"access_token": {"supports_minting": ["access_token"], "expires_in": 600}},
                    "expires_in": 43200,
                }
            },
        },
        "token_handler_args": {
            "token": {"class": "idpyoidc.server.token.jwt_token.JWTToken", "kwargs": {"lifetime": 600}}
        },
        "session_params": {"encrypter": {"kwargs": {"keys": {"key_defs": OCT}}}},
    }
    server = Server(ASConfiguration(conf=conf, base_path="."), cwd=".")
    server.context.map_supported_to_preferred()
    server.context.cdb[CLIENT] = {
        "client_secret": SECRET,
        "redirect_uris": [("https://gateway.example/cb", None)],
        "client_salt": "salted",
        "token_endpoint_auth_method": "client_secret_basic",
        "grant_types_supported": [EXCHANGE],
        "response_types": ["code"],
        "allowed_scopes": SCOPES,
    }
    return server


def make_subject(server: Server, name: str, scope: list[str], audience: str) -> str:
    """A token of somebody, as if they had signed in."""
    context, sessions = server.context, server.context.session_manager
    request = AuthorizationRequest(
        client_id=CLIENT, redirect_uri="https://gateway.example/cb", scope=scope, state="s", response_type="code"
    )
    session = sessions.create_session(create_authn_event(name), request, name, client_id=CLIENT, sub_type="public")
    grant = context.authz(session, request)
    token = grant.mint_token(
        session_id=session,
        context=context,
        token_class="access_token",
        token_handler=sessions.token_handler["access_token"],
        usage_rules=grant.usage_rules["access_token"],
        scope=scope,
        resources=[audience],
    )
    sessions.set(sessions.unpack_session_key(session), grant)
    return str(token.value)


class Door(BaseHTTPRequestHandler):
    """HTTP in front of the issuer, one request at a time."""

    issuer: Server
    url: str

    def do_GET(self) -> None:
        """Discovery, and the keys."""
        if self.path == "/.well-known/openid-configuration":
            self._say({"issuer": self.url, "jwks_uri": f"{self.url}/jwks.json", "token_endpoint": f"{self.url}/token"})
        elif self.path == "/jwks.json":
            self._say(self.issuer.keyjar.export_jwks())
        else:
            self._say({}, 404)

    def do_POST(self) -> None:
        """A token for somebody, or in exchange for another one."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/subject":
            self._say({"token": make_subject(self.issuer, **json.loads(body))})
            return
        endpoint = self.issuer.get_endpoint("token")
        shown = {"headers": {"authorization": self.headers.get("Authorization", "")}}
        try:
            request = endpoint.parse_request(body, shown)
        except (ClientAuthenticationError, UnAuthorizedClient):
            self._say({"error": "invalid_client"}, 401)
            return
        except JWKESTException:  # a signature that is none
            self._say({"error": "invalid_request"}, 400)
            return
        if "error" in request:
            self._say(request.to_dict(), 400)
            return
        answer = endpoint.process_request(request=request)
        if "error" in answer:
            self._say(answer if isinstance(answer, dict) else answer.to_dict(), 400)
            return
        self._say(json.loads(endpoint.do_response(request=request, **answer)["response"]))

    def log_message(self, *said: Any) -> None:
        """Say nothing of requests."""

    def _say(self, content: Any, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve until the end of standard input."""
    logging.disable(logging.CRITICAL)
    with HTTPServer(("127.0.0.1", 0), Door) as server:
        Door.url = f"http://127.0.0.1:{server.server_address[1]}"
        Door.issuer = make(Door.url)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write(Door.url + "\n")
        sys.stdout.flush()
        while os.read(0, 1024):
            pass
        server.shutdown()


if __name__ == "__main__":
    main()
