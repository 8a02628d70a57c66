"""`dragoman auth`: obtain a token for an agent, and forget it (a2a-cli §10.2, §10.3)."""

from typing import TYPE_CHECKING

import click

from dragoman.cli.a2a.options import client_command
from dragoman.cli.arguments import EXPOSED

if TYPE_CHECKING:
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
    from dragoman.cli.a2a.login import log_in

    await log_in(settings, output, flow, device_url, scope)


@client_command(auth, connects=False)
async def logout(settings: "Settings", output: "Output") -> None:
    """Delete the stored token of an agent."""
    from dragoman.cli.a2a.login import log_out

    await log_out(settings, output)


@client_command(auth, connects=False)
async def status(settings: "Settings", output: "Output") -> None:
    """List the agents with a stored token, and when each expires."""
    from dragoman.cli.a2a.login import show_logins

    await show_logins(output)
