"""`dragoman auth`: obtain a token for an agent, and forget it (a2a-cli §10.2, §10.3)."""

from typing import TYPE_CHECKING

import click

from dragoman.cli.a2a.options import LOGIN_IDLE, OFFLINE_IDLE, client_command
from dragoman.cli.arguments import EXPOSED
from dragoman.cli.command import Group

if TYPE_CHECKING:
    from dragoman.cli.a2a.output import Output
    from dragoman.cli.a2a.settings import Settings


@click.group(cls=Group)
def auth() -> None:
    """Log in to agents.

    Examples:
      dragoman auth login -a agent.example --client-id my-tool
      dragoman auth status
    """


@client_command(auth, connects=False, idle=LOGIN_IDLE)
@click.option(
    "--flow",
    type=click.Choice(["device-code", "client-credentials"]),
    help="OAuth flow.  [default: client-credentials if there is a secret, else device-code]",
)
@click.option("--client-id", metavar="ID", help="Id of the OAuth client.  [A2ACLI_CLIENT_ID]")
@click.option(
    "--client-secret", metavar="SECRET", help=f"Secret of the OAuth client.  [A2ACLI_CLIENT_SECRET] {EXPOSED}."
)
@click.option("--token-url", metavar="URL", help="Token endpoint.  [A2ACLI_TOKEN_URL; default: that of the card]")
@click.option(
    "--device-url", default="", metavar="URL", help="Device authorization endpoint.  [default: that of the card]"
)
@click.option(
    "--scope", multiple=True, metavar="SCOPE", help="Scope to request; repeatable.  [default: those of the card]"
)
async def login(
    settings: "Settings", output: "Output", flow: str | None, device_url: str, scope: tuple[str, ...]
) -> None:
    """Obtain a token for an agent, and store it.

    Later commands send the token to that agent. The agent's card must declare an OAuth 2 scheme with a device code or
    client credentials flow, or an OpenID provider. The device code flow prints a link, which you open in a browser on
    any device.

    Examples:
      dragoman auth login -a agent.example --client-id my-tool
      A2ACLI_CLIENT_SECRET=… dragoman auth login -a agent.example --client-id my-service
    """
    from dragoman.cli.a2a.login import log_in

    await log_in(settings, output, flow, device_url, scope)


@client_command(auth, connects=False, idle=OFFLINE_IDLE)
async def logout(settings: "Settings", output: "Output") -> None:
    """Delete the stored token of an agent.

    Examples:
      dragoman auth logout -a agent.example
      dragoman auth logout -a agent.example -o json
    """
    from dragoman.cli.a2a.login import log_out

    await log_out(settings, output)


@client_command(auth, connects=False, idle=(*OFFLINE_IDLE, "agent_card"))
async def status(settings: "Settings", output: "Output") -> None:
    """List the agents with a stored token, and when each expires.

    Examples:
      dragoman auth status
      dragoman auth status -o json
    """
    from dragoman.cli.a2a.login import show_logins

    await show_logins(output)
