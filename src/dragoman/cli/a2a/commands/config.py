"""`dragoman config show`: every setting of the client commands, its source, and stored logins (a2a-cli §6.4).

Invariant: nothing is changed, and no secret is shown.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli.a2a.options import client_command
from dragoman.cli.command import Group

if TYPE_CHECKING:
    from dragoman.cli.a2a.output import Output
    from dragoman.cli.a2a.settings import Settings


@click.group(cls=Group)
def config() -> None:
    """Show the settings of the client commands.

    Examples:
      dragoman config show
      dragoman config show -o json
    """


@client_command(config, connects=False)
async def show(settings: "Settings", output: "Output") -> None:
    """Show each setting, its value and its source; then stored logins.

    The source is a flag, a variable, a file or the default. Settings are changed in the environment or in a file: a
    .env in the working directory or above it, the file of --config, or ~/.config/a2a-cli/.env. Options of this command
    are shown with the source `flag`.

    Examples:
      dragoman config show
      dragoman config show --config staging.env -o json
    """
    import asyncio

    await asyncio.to_thread(_show, settings, output)


def _show(settings: "Settings", output: "Output") -> None:
    from dragoman.cli.a2a.settings import SETTINGS, Level
    from dragoman.cli.a2a.text import field
    from dragoman.cli.a2a.tokens import TOKENS_FILE, load_logins
    from dragoman.client.credentials import REDACTED

    rows = []
    for setting in SETTINGS:
        value = settings[setting.name]
        text = ", ".join(value.values) if value.values else setting.default
        shown = REDACTED if setting.secret and value.values else text
        source = "default" if value.level is Level.DEFAULT else value.place
        rows.append({"name": setting.name, "variable": setting.variable, "value": shown or None, "source": source})
    lines = [field(row["name"] or "", f"{row['value'] or '-'} ({row['source']})") for row in rows]
    place = str(Path.home() / TOKENS_FILE)
    logins = [{"origin": origin, "token": REDACTED, "source": place} for origin in sorted(load_logins())]
    lines += [field("login", f"{login['origin']} {login['token']} ({place})") for login in logins]
    output.value({"settings": rows, "logins": logins}, lines)
