"""Completion of the names that operators give: agents, tasks, keys and hosts, as servers and stores know them.

Invariant: it changes nothing, and makes no store.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from dragoman.cli.completion import ASK_S, NAMES_MAX, Name, offer, quietly

if TYPE_CHECKING:
    from dragoman.cli.admin.server import Desk, TaskPlace


def _place(ctx: click.Context) -> "TaskPlace":
    """The server or store that the words before name. Raises UsageError."""
    from dragoman.cli.admin.server import TaskPlace
    from dragoman.cli.store_commands import read_config

    return TaskPlace(read_config(ctx.params.get("settings_file"), ctx.params.get("store")), ctx.params.get("server"))


def _ask(
    place: "TaskPlace", names: "Callable[[Desk], Awaitable[Iterable[Name]]]", *, stored: bool = True
) -> Iterable[Name]:
    async def within_time(desk: "Desk") -> Iterable[Name]:
        import asyncio

        async with asyncio.timeout(ASK_S):
            return await names(desk)

    return place.at_desk(within_time, stored=stored)


async def _served(desk: "Desk") -> Iterable[Name]:
    from dragoman.admin.overview import LIST_AGENTS

    return [(agent.id, agent.name) for agent in (await desk.answer(LIST_AGENTS, None)).agents]


def complete_tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the ids of the newest tasks of all callers, with their states and titles."""

    async def names(desk: "Desk") -> Iterable[Name]:
        from dragoman.admin.tasks import LIST_TASKS, TaskQuery

        found = await desk.answer(LIST_TASKS, TaskQuery(limit=NAMES_MAX))
        return [(task.id, f"{task.state}: {task.title}") for task in found.tasks]

    return offer(quietly(lambda: _ask(_place(ctx), names)), incomplete)


def complete_agents(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the ids of agents: those of the server's file, and those that the server serves."""

    declared = quietly(lambda: [(entry.id, entry.name or "") for entry in _place(ctx).config.agents])
    served = quietly(lambda: _ask(_place(ctx), _served, stored=False))
    return offer([*declared, *served], incomplete)


def complete_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the ids of keys, with their names and roles."""

    async def names(desk: "Desk") -> Iterable[Name]:
        from dragoman.admin.keys import LIST_KEYS, KeyQuery

        found = await desk.answer(LIST_KEYS, KeyQuery())
        return [(key.id, f"{key.name}, {key.role}, {key.state}") for key in found.keys]

    return offer(quietly(lambda: _ask(_place(ctx), names)), incomplete)


def complete_hosts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the hosts of webhooks: the paused ones, and those of pending and dead deliveries."""

    async def names(desk: "Desk") -> Iterable[Name]:
        from urllib.parse import urlsplit

        from dragoman.admin.webhooks import LIST_PAUSED_HOSTS, LIST_WEBHOOKS, DeliveryQuery

        paused = [(line.host, "paused") for line in (await desk.answer(LIST_PAUSED_HOSTS, None)).hosts]
        found = await desk.answer(LIST_WEBHOOKS, DeliveryQuery(limit=NAMES_MAX))
        return [*paused, *((urlsplit(line.host).netloc or line.host, line.state) for line in found.deliveries)]

    return offer(quietly(lambda: _ask(_place(ctx), names)), incomplete)


def complete_declared(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer files, and the ids of the agents in the file of `--config`."""

    def names() -> Iterable[Name]:
        from dragoman.cli.store_commands import read_config

        return [(entry.id, entry.name or "") for entry in read_config(ctx.params.get("file"), None).agents]

    return [CompletionItem(incomplete, type="file"), *offer(quietly(names), incomplete)]
