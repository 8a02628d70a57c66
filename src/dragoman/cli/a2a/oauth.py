"""OAuth 2.1 as a command line needs it: device code (RFC 8628), client credentials and refresh (RFC 6749).

Invariant: secrets go to the token endpoint and nowhere else. An endpoint must be https, except on this machine. The
answer of an issuer is shown only as an error code.
"""

import asyncio
import base64
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec
from msgspec import Struct

from dragoman.cli.a2a.failures import Failure
from dragoman.cli.endings import Code
from dragoman.net.egress import Egress, HttpReply
from dragoman.net.errors import EgressError

CONFIGURATION_PATH = "/.well-known/openid-configuration"

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"

REQUEST_TIMEOUT_S = 30.0

INTERVAL_S, SLOWER_S = 5.0, 5.0
"""How often a token is asked for by default, and how much more rarely after `slow_down` (RFC 8628 §3.5)."""

LIFE_S = 300.0
"""How long a token is used if its issuer does not say."""

_CODE = re.compile(r"[a-z_]{1,40}", re.ASCII)


class Endpoints(Struct, frozen=True, kw_only=True):
    """The endpoints of an issuer. `device_url` is empty if it has no device flow."""

    token_url: str
    device_url: str = ""
    scopes: tuple[str, ...] = ()


class Client(Struct, frozen=True, kw_only=True):
    """The registered client. A public client has no secret."""

    id: str
    secret: str = ""


class Grant(Struct, frozen=True, kw_only=True):
    """A token as an issuer granted it. `expires_s` is a time of the wall clock, in seconds."""

    access_token: str
    expires_s: float
    refresh_token: str = ""


class _Token(Struct, frozen=True):
    """An answer of a token endpoint (RFC 6749 §5.1)."""

    access_token: str
    token_type: str
    expires_in: float | str | None = None
    refresh_token: str | None = None


class _Device(Struct, frozen=True):
    """An answer of a device authorization endpoint (RFC 8628 §3.2)."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None = None
    expires_in: float = 600.0
    interval: float = INTERVAL_S


class DevicePrompt(Struct, frozen=True):
    """The user opens `url` and enters `code`. `complete_url` has the code in it, if the issuer has such a URL."""

    url: str
    code: str
    complete_url: str | None


async def discover(url: str, egress: Egress) -> Endpoints:
    """Read the endpoints from an OpenID provider's configuration (OpenID Connect Discovery 1.0). Raises Failure.

    `url` is that of the configuration; some cards name the issuer instead, which has it below (§4).
    """
    found = await _read_configuration(url, egress)
    if "token_endpoint" not in found and not url.endswith(CONFIGURATION_PATH):
        found = await _read_configuration(url.rstrip("/") + CONFIGURATION_PATH, egress)
    token_url, device_url = found.get("token_endpoint"), found.get("device_authorization_endpoint")
    if not isinstance(token_url, str):
        raise Failure(Code.AUTH_FAILED, f"{url} has no token_endpoint", hint="give --token-url")
    return Endpoints(token_url=token_url, device_url=device_url if isinstance(device_url, str) else "")


async def _read_configuration(url: str, egress: Egress) -> dict[str, Any]:
    """Read a provider's configuration; empty if there is none at the URL. Raises Failure."""
    check_endpoint(url)
    try:
        reply = await egress.request("GET", url, timeout_s=REQUEST_TIMEOUT_S, headers={"Accept": "application/json"})
        return msgspec.json.decode(reply.body, type=dict[str, Any]) if reply.ok else {}
    except EgressError as error:
        raise Failure(Code.UNREACHABLE, f"the OpenID provider: {error}") from error
    except (ValueError, RecursionError):
        return {}


async def fetch_by_client_credentials(endpoints: Endpoints, client: Client, egress: Egress) -> Grant:
    """Obtain a token for the client itself (RFC 6749 §4.4). Raises Failure."""
    form = {"grant_type": "client_credentials", **_scope(endpoints)}
    return _read_grant(await _post(endpoints.token_url, form, client, egress))


async def fetch_by_device_code(
    endpoints: Endpoints,
    client: Client,
    egress: Egress,
    prompt: Callable[[DevicePrompt], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Grant:
    """Obtain a token for a user, who agrees in a browser on any device (RFC 8628). `prompt` tells them how.

    Raises Failure if they refuse, or do not agree in time.
    """
    reply = await _post(endpoints.device_url, {"client_id": client.id, **_scope(endpoints)}, client, egress)
    if not reply.ok:
        raise _refused(reply)
    try:
        device = msgspec.json.decode(reply.body, type=_Device, strict=False)
    except (ValueError, RecursionError):
        raise Failure(Code.AUTH_FAILED, f"{endpoints.device_url} did not answer as RFC 8628 says") from None
    prompt(DevicePrompt(device.verification_uri, device.user_code, device.verification_uri_complete))
    form = {"grant_type": DEVICE_GRANT, "device_code": device.device_code, "client_id": client.id}
    interval_s, left_s = max(device.interval, 0.0), device.expires_in
    while left_s > 0:
        await sleep(interval_s)
        left_s -= max(interval_s, 0.1)
        reply = await _post(endpoints.token_url, form, client, egress)
        match error_code(reply):
            case "authorization_pending":
                continue
            case "slow_down":
                interval_s += SLOWER_S
            case "":
                return _read_grant(reply)
            case _:
                raise _refused(reply)
    raise Failure(Code.AUTH_FAILED, "nobody agreed in time", hint="run `dragoman auth login` again")


async def refresh(grant: Grant, endpoints: Endpoints, client: Client, egress: Egress) -> Grant:
    """Obtain a new token for an expired one (RFC 6749 §6). Raises Failure."""
    form = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token, "client_id": client.id}
    fresh = _read_grant(await _post(endpoints.token_url, form, client, egress))
    return fresh if fresh.refresh_token else msgspec.structs.replace(fresh, refresh_token=grant.refresh_token)


def check_endpoint(url: str) -> None:
    """Check that secrets may be sent to this URL. Raises Failure."""
    parts = urlsplit(url)
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme == "https" or (parts.scheme == "http" and local):
        return
    raise Failure(Code.AUTH_FAILED, f"{url} is not https, so no secret is sent to it", hint="name an https --token-url")


def error_code(reply: HttpReply) -> str:
    """Return the error code of a refusal (RFC 6749 §5.2), empty for a success, `unknown` for anything else."""
    if reply.ok:
        return ""
    try:
        code = msgspec.json.decode(reply.body, type=dict[str, Any]).get("error")
    except (ValueError, RecursionError):
        code = None
    return code if isinstance(code, str) and _CODE.fullmatch(code) else "unknown"


async def _post(url: str, form: Mapping[str, str], client: Client, egress: Egress) -> HttpReply:
    check_endpoint(url)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if client.secret:
        pair = f"{quote_plus(client.id)}:{quote_plus(client.secret)}"  # RFC 6749 §2.3.1
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        form = {name: value for name, value in form.items() if name != "client_id"}
    try:
        return await egress.request(
            "POST", url, timeout_s=REQUEST_TIMEOUT_S, headers=headers, body=urlencode(form).encode()
        )
    except EgressError as error:
        raise Failure(Code.UNREACHABLE, f"no token: {error}") from error


def _read_grant(reply: HttpReply) -> Grant:
    if not reply.ok:
        raise _refused(reply)
    try:
        token = msgspec.json.decode(reply.body, type=_Token, strict=False)
        life_s = LIFE_S if token.expires_in is None else float(token.expires_in)
    except (ValueError, RecursionError):
        raise Failure(Code.AUTH_FAILED, "the token endpoint did not answer with a token") from None
    if token.token_type.lower() != "bearer" or not token.access_token.isascii() or not token.access_token.isprintable():
        raise Failure(Code.AUTH_FAILED, "the token endpoint did not answer with a bearer token")
    return Grant(
        access_token=token.access_token,
        expires_s=time.time() + min(life_s, 1e9),
        refresh_token=token.refresh_token or "",
    )


def _refused(reply: HttpReply) -> Failure:
    code = error_code(reply)
    hints = {
        "access_denied": "the user refused",
        "expired_token": "nobody agreed in time; run `dragoman auth login` again",
        "invalid_client": "check --client-id and --client-secret",
        "invalid_scope": "check --scope",
    }
    return Failure(
        Code.AUTH_FAILED, f"no token: HTTP status {reply.status}, {code}", hint=hints.get(code, ""), a2a_code=code
    )


def _scope(endpoints: Endpoints) -> dict[str, str]:
    return {"scope": " ".join(endpoints.scopes)} if endpoints.scopes else {}
