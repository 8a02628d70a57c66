"""The keys of a local store, or of a server elsewhere, for the same commands.

Invariant: wrong input ends a command with status 2, wherever the keys are.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from dragoman.cli.admin.server import Desk, ServerRefusal, TaskPlace

if TYPE_CHECKING:
    from dragoman.admin.keys import KeyLine

PAGE = 1000

T = TypeVar("T")


async def all_keys(desk: Desk) -> "tuple[KeyLine, ...]":
    """Every key, oldest first."""
    from dragoman.admin.keys import LIST_KEYS, KeyQuery

    found: tuple[KeyLine, ...] = ()
    query: KeyQuery | None = KeyQuery(limit=PAGE)
    while query is not None:
        page = await desk.answer(LIST_KEYS, query)
        found += page.keys
        query = LIST_KEYS.next_page(query, page)
    return found


def at_keys(place: TaskPlace, work: Callable[[Desk], Awaitable[T]], key_id: str = "", *, make: bool = False) -> T:
    """Run `work` with the keys of the server that is named, else of the local store, and return its result.

    With `make` a missing store is created. Ends the command if that fails, with status 2 for wrong input, such as a
    `key_id` that does not exist.
    """
    from dragoman.model.errors import A2AError, NotFound
    from dragoman.store.path import hide_password

    try:
        return place.at_desk(work, make=make)
    except (NotFound, ServerRefusal) as error:
        if isinstance(error, ServerRefusal) and error.status != 404:
            if error.status != 400:
                raise
            raise click.UsageError(error.message) from None
        where = place.server or hide_password(place.config.store)
        raise click.UsageError(
            f"there is no key {key_id!r} in {where}: `dragoman keys list` shows their ids"
        ) from error
    except A2AError as error:
        raise click.UsageError(error.message) from error
