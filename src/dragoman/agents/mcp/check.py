"""Whether a server of MCP is as the configuration has it.

Invariant: no tool is called; the session that is opened to look is closed again.
"""

import asyncio
from functools import partial

from dragoman.agents.checks import Finding
from dragoman.agents.mcp.link import Away
from dragoman.agents.mcp.reach import Grant
from dragoman.agents.mcp.server import McpServer
from dragoman.dialects.mcp.hearing import Offer

CHECK_S = 6.0
"""How long is looked for a server and its tools, together; to end a program takes up to three more."""

FIX = "start it, or mend `run` of this tool; run a program once by itself: it may have to download something first"


async def looked_at(grant: Grant) -> list[Finding]:
    """What is found of a server: whether it can be reached, its tools, and whether those named are among them."""
    what = f"mcp server {grant.name} ({grant.reach.place})"
    try:
        async with asyncio.timeout(CHECK_S), asyncio.TaskGroup() as group:
            server = McpServer(
                grant.name, partial(grant.reach.link, group), start_s=min(grant.start_s, CHECK_S), call_s=grant.call_s
            )
            try:
                offers, says = await server.offers(), server.says
            except Away as error:
                why = str(error).removeprefix(f"{grant.reach.place}: ")
                return [Finding(False, f"{what}: {why}", FIX)]
            finally:
                await server.close()
    except TimeoutError:
        return [Finding(False, f"{what}: no answer within {CHECK_S:g} s", FIX)]
    return [_listed(f"{what}: {says}" if says else what, grant, offers), *_missing(grant, offers)]


def _listed(what: str, grant: Grant, offers: tuple[Offer, ...]) -> Finding:
    allowed = [offer.name for offer in offers if grant.allows(offer.name)]
    if not allowed:
        fix = "mend `allow`" if offers else "it needs tools to be of use"
        return Finding(False, f"{what}: no tools", fix)
    return Finding(True, f"{what}: tools {', '.join(allowed)}")


def _missing(grant: Grant, offers: tuple[Offer, ...]) -> list[Finding]:
    """Tools that the configuration names and the server does not have."""
    there = {offer.name for offer in offers}
    return [
        Finding(
            False, f"mcp server {grant.name} has no tool {tool!r}", f"mend `{key}`: it has {', '.join(sorted(there))}"
        )
        for key, tool in grant.missing(there)
    ]
