"""Logging in to agents: tokens by OAuth 2.0, from the issuer that the agent's card or the user names (a2a-cli §10.2).

Invariant: a token is stored for the origin of the agent's card, and is never printed. Endpoints that only a card names
are called at public addresses alone, unless the user trusts their origin.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from dragoman.cli.a2a.credentials import permitted, refusal
from dragoman.cli.a2a.failures import Failure, failure_of
from dragoman.cli.a2a.oauth import (
    Client,
    DevicePrompt,
    Endpoints,
    discover,
    fetch_by_client_credentials,
    fetch_by_device_code,
)
from dragoman.cli.a2a.output import Output, warn
from dragoman.cli.a2a.reference import origin_of, resolve_card
from dragoman.cli.a2a.session import make_tls, named_agent, read_agent_card
from dragoman.cli.a2a.settings import Settings, SettingsError
from dragoman.cli.a2a.text import field
from dragoman.cli.a2a.tokens import StoredLogin, load_logins, save_login
from dragoman.cli.arguments import with_scheme
from dragoman.cli.endings import Code
from dragoman.model.ids import timestamp
from dragoman.net.address import Guard, Resolver
from dragoman.net.egress import Egress

Reach = Callable[[str], Egress]
"""The egress that may call a URL of an issuer."""


async def log_in(
    settings: Settings, output: Output, flow: str | None, device_url: str, scopes: tuple[str, ...]
) -> None:
    """Obtain a token by a flow, `device-code` or `client-credentials`, and store it. Raises Failure, SettingsError."""
    agent = named_agent(settings)
    client = _client(settings, agent)
    chosen = flow or ("client-credentials" if client.secret else "device-code")
    if chosen == "client-credentials" and not client.secret:
        raise Failure(Code.USAGE, "client credentials need a secret", hint="set A2ACLI_CLIENT_SECRET")
    egress = Egress(tls=await make_tls(settings, agent))
    try:
        resolved = await resolve_card(agent, egress=egress, headers={})
        schemes = read_agent_card(resolved).security_schemes or {}
        origin = origin_of(resolved.found.url)
        token_url, device_url = map(_url_of, (permitted(settings, "token-url", agent), device_url))
        async with _issuers(settings, origin, token_url, egress) as reach:
            named = Endpoints(token_url=token_url, device_url=device_url, scopes=scopes)
            endpoints = await _find_endpoints(named, schemes, chosen, reach)
            if chosen == "client-credentials":
                grant = await fetch_by_client_credentials(endpoints, client, reach(endpoints.token_url))
            else:
                issuer = reach(endpoints.token_url)
                grant = await fetch_by_device_code(endpoints, client, issuer, _tell_user)
    except (Failure, SettingsError):
        raise
    except Exception as error:  # a command reports every error in the form that was asked for
        raise failure_of(error, credentials_given=True) from error
    finally:
        await egress.close()
    by_client = chosen == "client-credentials"
    kept = client if by_client else replace(client, secret="")
    login = StoredLogin(grant=grant, endpoints=endpoints, client=kept, by_client_credentials=by_client)
    await asyncio.to_thread(save_login, origin, login)
    expires = timestamp(int(grant.expires_s * 1000))
    output.value({"origin": origin, "expires": expires}, [field("Logged in", origin), field("Expires", expires)])


async def log_out(settings: Settings, output: Output) -> None:
    """Delete the token of the agent that the settings name. Raises Failure."""
    origin = origin_of(named_agent(settings))
    await asyncio.to_thread(save_login, origin, None)
    output.value({"origin": origin}, [field("Logged out", origin)])


async def show_logins(output: Output) -> None:
    """Print the origins with a stored token, and when each expires."""
    logins = await asyncio.to_thread(load_logins)
    rows = [
        {
            "origin": origin,
            "expires": timestamp(int(stored.grant.expires_s * 1000)),
            "renewed": stored.by_client_credentials or bool(stored.grant.refresh_token),
        }
        for origin, stored in sorted(logins.items())
    ]
    lines = [
        field(str(row["origin"]), f"expires {row['expires']}, {'renewed by itself' if row['renewed'] else 'once'}")
        for row in rows
    ]
    output.value({"logins": rows}, lines or ["Logins: none"])


def _url_of(given: str) -> str:
    return with_scheme(given) if given else ""


def _client(settings: Settings, agent: str) -> Client:
    for name in ("client-id", "client-secret", "token-url"):
        if unsent := refusal(settings, name, agent):
            warn(unsent)
    client_id = permitted(settings, "client-id", agent)
    if not client_id:
        raise Failure(
            Code.USAGE, "no OAuth client is named", hint="give --client-id, which whoever runs the agent hands out"
        )
    return Client(id=client_id, secret=permitted(settings, "client-secret", agent))


@asynccontextmanager
async def _issuers(settings: Settings, origin: str, token_url: str, egress: Egress) -> AsyncGenerator[Reach, None]:
    """Find the egress for an issuer as long as the block runs. `token_url` is the one that the user names, or empty."""
    trusted = {origin, *map(origin_of, settings["trust-origin"].values)}
    if token_url:
        trusted.add(origin_of(token_url))
    resolver = Resolver()
    guarded = Egress(Guard(), resolver=resolver)
    try:
        yield lambda url: egress if origin_of(url) in trusted else guarded
    finally:
        await guarded.close()
        await resolver.close()


async def _find_endpoints(found: Endpoints, schemes: dict[str, Any], flow: str, reach: Reach) -> Endpoints:
    """Find the issuer: what the user names is `found`, else an OAuth 2 flow of the card, else its OpenID provider."""
    for scheme in schemes.values():
        if not isinstance(scheme, dict):
            continue
        named = _flow_endpoints(scheme, flow)
        if named is None and isinstance(oidc := scheme.get("openIdConnectSecurityScheme"), dict):
            url = str(oidc.get("openIdConnectUrl", ""))
            named = await discover(url, reach(url))
        if named is not None:
            found = replace(
                found,
                token_url=found.token_url or named.token_url,
                device_url=found.device_url or named.device_url,
                scopes=found.scopes or named.scopes,
            )
            break
    if not found.token_url or (flow == "device-code" and not found.device_url):
        what = "--token-url" if flow == "client-credentials" else "--token-url and --device-url"
        raise Failure(
            Code.AUTH_FAILED,
            f"the agent's card names no {flow.replace('-', ' ')} flow",
            hint=f"give {what}, or another --flow; `card get` shows the card's schemes",
        )
    return found


def _flow_endpoints(scheme: dict[str, Any], flow: str) -> Endpoints | None:
    """Read a flow of an OAuth 2 scheme (A2A 1.0 §4.5.4)."""
    name = "deviceCode" if flow == "device-code" else "clientCredentials"
    match scheme:
        case {"oauth2SecurityScheme": {"flows": dict(flows)}} if isinstance(flows.get(name), dict):
            given = flows[name]
            scopes = given.get("scopes")
            return Endpoints(
                token_url=str(given.get("tokenUrl", "")),
                device_url=str(given.get("deviceAuthorizationUrl", "")),
                scopes=tuple(map(str, scopes)) if isinstance(scopes, dict) else (),
            )
    return None


def _tell_user(prompt: DevicePrompt) -> None:
    if prompt.complete_url:
        warn(f"open {prompt.complete_url} and check that it shows the code {prompt.code}")
    else:
        warn(f"open {prompt.url} and enter the code {prompt.code}")
