"""Completion of the names that client commands take: references to agents, and ids of their tasks.

Invariant: it changes nothing, and sends credentials only where the command itself would.
"""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from dragoman.cli.completion import ASK_S, NAMES_MAX, Name, offer, quietly

if TYPE_CHECKING:
    from dragoman.cli.a2a.session import CommandSession

CATALOG = "/.well-known/ai-catalog.json"
"""The path of a server's list of agents (AI Catalog), which Dragoman serves, too."""

CARD = "/.well-known/agent-card.json"


def complete_references(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer agents to call: the local server's, those at the address that was begun, stored logins, and files."""
    files: CompletionItem[str] = CompletionItem(incomplete, type="file")
    if incomplete.startswith((".", "/", "~")):
        return [files]
    named = quietly(_named)
    return [files, *offer([*named, *quietly(_local_agents), *quietly(lambda: _agents_beside(incomplete))], incomplete)]


def _named() -> Iterable[Name]:
    from dragoman.cli.a2a.tokens import load_logins

    named = os.environ.get("A2ACLI_AGENT_CARD")
    yield from [(named, "A2ACLI_AGENT_CARD")] if named else []
    yield from ((origin, "logged in") for origin in load_logins())


def _local_agents() -> Iterable[Name]:
    """The agents that the server of this folder serves, while it runs."""
    from dragoman.cli.store_commands import read_config
    from dragoman.store.open import noted_server

    base = noted_server(read_config(None, None).store)
    return () if base is None else [(base, "the default agent"), *_catalog(base)]


def _agents_beside(incomplete: str) -> Iterable[Name]:
    """The agents of the server whose address was begun with a path, as in `localhost:7870/`, spelled as it was."""
    from dragoman.cli.arguments import with_scheme

    scheme, slashes, rest = incomplete.rpartition("://")
    host, slash, _ = rest.partition("/")
    if not (host and slash):
        return ()
    base = with_scheme(f"{scheme}{slashes}{host}")
    given = f"{scheme}{slashes}{host}"
    return [(given + name.removeprefix(base), about) for name, about in _catalog(base)]


def _catalog(base: str) -> Iterable[Name]:
    import asyncio

    import msgspec

    from dragoman.cli.a2a.reference import catalog_entries
    from dragoman.net.egress import Egress

    async def read() -> Iterable[Name]:
        egress = Egress()
        try:
            reply = await egress.request("GET", f"{base}{CATALOG}", timeout_s=ASK_S)
        finally:
            await egress.close()
        entries = catalog_entries(msgspec.json.decode(reply.body))
        return [(entry.url.removesuffix(CARD), entry.names[-1]) for entry in entries if entry.url.startswith(base)]

    return asyncio.run(read())


def complete_agent_tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the ids of your newest tasks at the agent that the words before, the environment or a file names."""
    return offer(quietly(lambda: _own_tasks(ctx.params)), incomplete)


def _own_tasks(options: dict[str, Any]) -> Iterable[Name]:
    import asyncio

    from dragoman.cli.a2a.output import Output
    from dragoman.cli.a2a.session import KnownTask, with_session
    from dragoman.cli.a2a.settings import settings_of

    found: list[Name] = []

    async def read(session: "CommandSession") -> None:
        page = await session.connection.list(page_size=NAMES_MAX)
        found.extend((task.id, str(task.status.state)) for task in page.tasks)

    async def within_time() -> None:
        async with asyncio.timeout(ASK_S):
            await with_session(settings_of(options), Output("json", lines=False, verbose=False), KnownTask(), read)

    asyncio.run(within_time())
    return found
