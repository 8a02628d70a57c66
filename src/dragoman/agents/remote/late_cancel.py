"""Cancels a task whose upstream has not named it yet: the cancel is sent as soon as the name is known.

Invariant: a stream whose run is canceled before its first update is read on, for a bounded time, and then closed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator

from dragoman.agents.remote.route import UpstreamWay
from dragoman.client import Connection
from dragoman.client.errors import NoAnswer, PeerError
from dragoman.client.following import Following
from dragoman.engine.api import Run
from dragoman.model.errors import A2AError
from dragoman.model.updates import Update

log = logging.getLogger("dragoman.upstreams")

STOP_S = 5.0
"""Seconds that an upstream may take to name, or to cancel, a task that nobody here runs any more."""


async def first_of(
    batches: AsyncGenerator[list[Update], None],
    following: Following,
    connection: Connection,
    run: Run,
    way: UpstreamWay,
) -> list[Update] | None:
    """Return the first batch of a stream, None if there is none.

    If the run is canceled before that, the upstream's task is canceled once the upstream names it. Raises what the
    stream raises.
    """
    first = asyncio.get_running_loop().create_task(_next(batches))
    try:
        return await asyncio.shield(first)
    except asyncio.CancelledError:
        if not (run.canceled and way.beside(_stop(first, batches, following, connection, way))):
            first.cancel()
            await asyncio.wait((first,))
            await batches.aclose()
        raise


async def _next(batches: AsyncGenerator[list[Update], None]) -> list[Update] | None:
    return await anext(batches, None)


async def _stop(
    first: "asyncio.Task[list[Update] | None]",
    batches: AsyncGenerator[list[Update], None],
    following: Following,
    connection: Connection,
    way: UpstreamWay,
) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            batch = await first
            while batch is not None and not following.folding.task_id:
                batch = await anext(batches, None)
            if task_id := following.folding.task_id:
                await batches.aclose()
                await connection.cancel(task_id)
    except TimeoutError:
        log.info("upstream %s: a task that was canceled here was not canceled there in time", way.name)
    except (A2AError, NoAnswer, PeerError) as error:
        log.info("upstream %s: a task that was canceled here: %s", way.name, way.words(error))
    finally:
        await asyncio.shield(batches.aclose())
