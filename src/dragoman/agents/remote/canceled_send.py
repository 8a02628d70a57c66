"""A send whose task was canceled here before the upstream had named its own: that is canceled once it is named.

Invariant: bounded in time, and in how many wait for one upstream.
"""

import asyncio
import logging
from collections.abc import Awaitable

from dragoman.agents.remote.route import UpstreamRoute
from dragoman.client import Connection
from dragoman.client.errors import NoAnswer, PeerError
from dragoman.client.stream import TaskStream
from dragoman.model.errors import A2AError
from dragoman.model.updates import Update

log = logging.getLogger("dragoman.upstreams")

STOP_S = 5.0
"""Seconds that an upstream may take to cancel a task that nobody here runs any more."""

LEFT_MAX = 100
"""The most sends to one upstream whose answer is awaited for long although their task was canceled."""


async def cancel_once_named(
    first: Awaitable[list[Update] | None], stream: TaskStream, connection: Connection, route: UpstreamRoute
) -> None:
    """Cancel the upstream's task once the stream, whose next updates are `first`, names it: within `answer_s` of the
    agent.

    The timeouts of the send have ended with the run, so this one bounds all that is left of it. An upstream at which
    many sends wait gets STOP_S: callers could send and cancel without end.
    """
    patience_s = route.access.timeouts.answer_s if route.left < LEFT_MAX else STOP_S
    route.left += 1
    try:
        async with asyncio.timeout(patience_s):
            batch = await first
            while batch is not None and not stream.fold.task_id:
                batch = await stream.next()
        if task_id := stream.fold.task_id:
            stream.close()
            async with asyncio.timeout(STOP_S):
                await connection.cancel(task_id)
    except TimeoutError:
        log.info("upstream %s: a task that was canceled here was not canceled there in time", route.label)
    except (A2AError, NoAnswer, PeerError) as error:
        log.info("upstream %s: a task that was canceled here: %s", route.label, route.access.describe(error))
    finally:
        route.left -= 1
        stream.close()
