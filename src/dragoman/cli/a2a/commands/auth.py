"""`dragoman auth`: obtain a token for an agent, and forget it (a2a-cli §10.2, §10.3).

Invariant: the token is stored for the origin of the agent's card, and is never printed. Endpoints that only a card
names are called at public addresses alone, unless the user trusts their origin.
"""

from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.a2a.options import client_command
from dragoman.cli.arguments import EXPOSED

if TYPE_CHECKING:
    from dragoman.cli.a2a.oauth import Client, DevicePrompt, Endpoints
    from dragoman.cli.a2a.output import Output
    from dragoman.cli.a2a.settings import Settings


@click.group()
def auth() -> None:
    """Log in to agents."""


@client_command(auth, connects=False)
@click.option(
    "--flow",
    type=click.Choice(["device-code", "client-credentials"]),
    help="How to obtain the token.  [default: client-credentials with a secret, else device-code]",
)
@click.option("--client-id", metavar="ID", help="Id of the OAuth client.  [A2ACLI_CLIENT_ID]")
@click.option("--client-secret", metavar="SECRET", help=f"Its secret.  [A2ACLI_CLIENT_SECRET] {EXPOSED}.")
@click.option("--token-url", metavar="URL", help="Token endpoint.  [default: what the card says]")
@click.option("--device-url", default="", metavar="URL", help="Device authorization endpoint.  [default: likewise]")
@click.option("--scope", multiple=True, metavar="SCOPE", help="Scope to ask for; repeatable.  [default: the card's]")
async def login(
    settings: "Settings", output: "Output", flow: str | None, device_url: str, scope: tuple[str, ...]
) -> None:
    """Obtain a token for an agent, and store it.

    Later commands send it. The agent's card says where: an OAuth 2 scheme with a device code or client credentials
    flow, or an OpenID provider. With a device code you agree in a browser, on any device.
    """
    import asyncio

    from dragoman.cli.a2a.credentials import permitted
    from dragoman.cli.a2a.failures import Failure, failure_of
    from dragoman.cli.a2a.oauth import Endpoints, fetch_by_client_credentials, fetch_by_device_code
    from dragoman.cli.a2a.reference import origin_of, resolve_card
    from dragoman.cli.a2a.session import make_tls, named_agent, read_agent_card
    from dragoman.cli.a2a.settings import SettingsError
    from dragoman.cli.a2a.text import field
    from dragoman.cli.a2a.tokens import StoredLogin, save_login
    from dragoman.cli.endings import Code
    from dragoman.model.ids import timestamp
    from dragoman.net.egress import Egress

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
        token_url = permitted(settings, "token-url", agent)
        async with _issuer_egress(settings, origin, token_url, egress) as reach:
            named = Endpoints(token_url=token_url, device_url=device_url, scopes=scope)
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
    kept = client if by_client else _without_secret(client)
    login = StoredLogin(grant=grant, endpoints=endpoints, client=kept, by_client_credentials=by_client)
    await asyncio.to_thread(save_login, origin, login)
    expires = timestamp(int(grant.expires_s * 1000))
    output.value({"origin": origin, "expires": expires}, [field("Logged in", origin), field("Expires", expires)])


@client_command(auth, connects=False)
async def logout(settings: "Settings", output: "Output") -> None:
    """Delete the stored token of an agent."""
    import asyncio

    from dragoman.cli.a2a.reference import origin_of
    from dragoman.cli.a2a.session import named_agent
    from dragoman.cli.a2a.text import field
    from dragoman.cli.a2a.tokens import save_login

    origin = origin_of(named_agent(settings))
    await asyncio.to_thread(save_login, origin, None)
    output.value({"origin": origin}, [field("Logged out", origin)])


@client_command(auth, connects=False)
async def status(settings: "Settings", output: "Output") -> None:
    """List the agents with a stored token, and when each expires."""
    import asyncio

    from dragoman.cli.a2a.text import field
    from dragoman.cli.a2a.tokens import load_logins
    from dragoman.model.ids import timestamp

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


def _client(settings: "Settings", agent: str) -> "Client":
    from dragoman.cli.a2a.credentials import permitted, refusal
    from dragoman.cli.a2a.failures import Failure
    from dragoman.cli.a2a.oauth import Client
    from dragoman.cli.a2a.output import warn
    from dragoman.cli.endings import Code

    for name in ("client-id", "client-secret", "token-url"):
        if unsent := refusal(settings, name, agent):
            warn(unsent)
    client_id = permitted(settings, "client-id", agent)
    if not client_id:
        raise Failure(
            Code.USAGE, "no OAuth client is named", hint="give --client-id, which whoever runs the agent hands out"
        )
    return Client(id=client_id, secret=permitted(settings, "client-secret", agent))


def _without_secret(client: "Client") -> "Client":
    from msgspec.structs import replace

    return replace(client, secret="")


def _issuer_egress(settings: "Settings", origin: str, token_url: str, egress: Any) -> Any:
    """Return a context whose value maps the URL of an issuer to the egress that may call it.

    `token_url` is the one that the user names, empty for none.
    """
    from contextlib import asynccontextmanager

    from dragoman.cli.a2a.reference import origin_of
    from dragoman.net.address import Guard, Resolver
    from dragoman.net.egress import Egress

    trusted = {origin, *map(origin_of, settings["trust-origin"].values)}
    if token_url:
        trusted.add(origin_of(token_url))

    @asynccontextmanager
    async def open_guarded() -> Any:
        resolver = Resolver()
        guarded = Egress(Guard(), resolver=resolver)
        try:
            yield lambda url: egress if origin_of(url) in trusted else guarded
        finally:
            await guarded.close()
            await resolver.close()

    return open_guarded()


async def _find_endpoints(found: "Endpoints", schemes: dict[str, Any], flow: str, reach: Any) -> "Endpoints":
    """Find the issuer: what the user names is `found`, else an OAuth 2 flow of the card, else its OpenID provider."""
    from msgspec.structs import replace

    from dragoman.cli.a2a.failures import Failure
    from dragoman.cli.a2a.oauth import discover
    from dragoman.cli.endings import Code

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


def _flow_endpoints(scheme: dict[str, Any], flow: str) -> "Endpoints | None":
    """Read a flow of an OAuth 2 scheme (A2A 1.0 §4.5.4)."""
    from dragoman.cli.a2a.oauth import Endpoints

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


def _tell_user(prompt: "DevicePrompt") -> None:
    from dragoman.cli.a2a.output import warn

    if prompt.complete_url:
        warn(f"open {prompt.complete_url} and check that it shows the code {prompt.code}")
    else:
        warn(f"open {prompt.url} and enter the code {prompt.code}")
