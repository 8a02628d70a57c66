"""`dragoman card get`: fetch, check and show an agent card (a2a-cli §8.1).

Invariant: a card is never called verified unless one of the keys that the user named has signed it, or a key that the
card's own origin serves.
"""

from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.a2a.options import POLLING, client_command
from dragoman.cli.command import Group

if TYPE_CHECKING:
    from dragoman.cli.a2a.output import Output
    from dragoman.cli.a2a.reference import ResolvedCard
    from dragoman.cli.a2a.session import CommandSession
    from dragoman.cli.a2a.settings import Settings


@click.group(cls=Group)
def card() -> None:
    """Read agent cards.

    Examples:
      dragoman card get -a agent.example
      dragoman card get -a ./card.json --validate
    """


@client_command(card, connects=False, idle=(POLLING,))
@click.option("--validate", is_flag=True, help="Check the card against A2A 1.0, and list all faults.")
@click.option("--extended", is_flag=True, help="Fetch the extended card, which authenticated callers see.")
@click.option(
    "--card-keys", metavar="FILE|URL", help="JWK Set with keys that may have signed the card.  [A2ACLI_CARD_KEYS]"
)
@click.option("--stream", is_flag=True, help="With -o json, print the card on one line.")
async def get(settings: "Settings", output: "Output", validate: bool, extended: bool) -> None:
    """Show an agent's card: who it is, what it offers, and where.

    The card also says how callers authenticate, and whether it is signed.

    Examples:
      dragoman card get -a agent.example
      dragoman card get -a localhost:7870/agents/echo --validate -o json
    """
    from dragoman.cli.a2a.session import KnownTask, with_session

    if extended:
        await with_session(settings, output, KnownTask(), _show_extended)
    else:
        await _show(settings, output, validate)


async def _show(settings: "Settings", output: "Output", validate: bool) -> None:
    from dragoman.cli.a2a.failures import Failure
    from dragoman.cli.a2a.reference import resolve_card
    from dragoman.cli.a2a.session import make_tls, named_agent, read_agent_card, say_root
    from dragoman.cli.a2a.wire import DebugLog
    from dragoman.cli.endings import Code
    from dragoman.doctor.card_check import card_faults
    from dragoman.net.egress import Egress

    agent = named_agent(settings)
    egress = Egress(tls=await make_tls(settings, agent))
    try:
        resolved = await resolve_card(agent, egress=egress, headers={})
        say_root(agent, resolved)
        if settings.flag("debug"):
            DebugLog().card(resolved.place, resolved.found.card)
        signature = await describe_signature(resolved, settings, egress)
    finally:
        await egress.close()
    if validate and (faults := card_faults(resolved.found.card)):
        raise Failure(Code.CARD_INVALID, f"{resolved.place}: " + "; ".join(faults), hint="A2A 1.0 §4.4 has the fields")
    more = [f"Card: {resolved.place}", f"Signature: {signature}"]
    if validate:
        more.append("Valid: yes")
    output.card(resolved.found.card, read_agent_card(resolved), more)


async def _show_extended(session: "CommandSession") -> None:
    import msgspec

    from dragoman.cli.a2a.failures import Failure
    from dragoman.cli.endings import Code

    card = session.card
    session.require("extended", card is not None and card.capabilities.extended_agent_card)
    if not session.shown.given:
        raise Failure(
            Code.CREDENTIALS_MISSING,
            "the extended card is for authenticated callers",
            hint="give --api-key or --bearer, as the agent's public card asks",
        )
    found = await session.connection.extended_card()
    session.output.card(msgspec.to_builtins(found), found)


async def describe_signature(resolved: "ResolvedCard", settings: "Settings", egress: Any) -> str:
    """Say whether a card's signature is verified, unverifiable or absent (A2A 1.0 §8.4.3). Raises SettingsError."""
    from dragoman.cli.a2a.settings import SettingsError
    from dragoman.doctor.signature import describe_signature as describe
    from dragoman.doctor.signature import fetch_served_keys

    if not resolved.found.card.get("signatures"):
        return "absent"
    place = settings.text("card-keys")
    keys = await _read_keys(place, egress) if place else await fetch_served_keys(resolved.found, egress)
    if place and keys is None:
        raise SettingsError(f"{settings.describe('card-keys')}: {place} has no JWK Set: name a file or an https URL")
    if keys is None:
        return "unverifiable (no key is known: give --card-keys)"
    return await describe(resolved.found, keys)


async def _read_keys(place: str, egress: Any) -> dict[str, Any] | None:
    import asyncio

    import msgspec

    from dragoman.doctor.signature import fetch_keys

    if place.startswith("https://"):
        return await fetch_keys(place, egress)
    try:
        return msgspec.json.decode(await asyncio.to_thread(_read_file, place), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return None


def _read_file(place: str) -> bytes:
    from pathlib import Path

    return Path(place).expanduser().read_bytes()
