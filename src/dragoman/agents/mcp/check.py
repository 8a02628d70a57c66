"""Checks whether an MCP server fits its configuration.

Invariant: no tool is called, and the session that the check opens is closed again.
"""

import asyncio
from functools import partial

from dragoman.agents.lifecycle import Finding
from dragoman.agents.mcp.link import Away
from dragoman.agents.mcp.reach import Grant
from dragoman.agents.mcp.server import McpServer
from dragoman.dialects.mcp.hearing import Offer

CHECK_S = 6.0
"""How long a server and its tools are waited for, together; ending a program takes up to three seconds more."""

FIX = "start it, or fix `run` of this tool; run a program once by itself: it may have to download something first"


async def looked_at(grant: Grant) -> list[Finding]:
    """Check a server: whether it can be reached, its tools, and whether it has the configured ones."""
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
    return [_list_tools(f"{what}: {says}" if says else what, grant, offers), *_missing(grant, offers)]


def _list_tools(what: str, grant: Grant, offers: tuple[Offer, ...]) -> Finding:
    allowed = [offer.name for offer in offers if grant.allows(offer.name)]
    if not allowed:
        fix = "fix `allow`" if offers else "it needs tools to be of use"
        return Finding(False, f"{what}: no tools", fix)
    return Finding(True, f"{what}: tools {', '.join(allowed)}")


def _missing(grant: Grant, offers: tuple[Offer, ...]) -> list[Finding]:
    """Findings for tools that the configuration names but the server does not have."""
    there = {offer.name for offer in offers}
    return [
        Finding(
            False, f"mcp server {grant.name} has no tool {tool!r}", f"fix `{key}`: it has {', '.join(sorted(there))}"
        )
        for key, tool in grant.missing(there)
    ]
