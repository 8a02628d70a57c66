"""Where connections of an Egress come from. Loads aiohttp, and is imported when the first request goes out.

Invariant: a task that waits for a connection is in `waiting`, and has sent nothing.
"""

import asyncio
from typing import Any

import aiohttp

from dragoman.net.resolver import Resolver


class Dialer(aiohttp.TCPConnector):
    """aiohttp's pool of connections, which also says who still waits for one.

    Its own tracing says the same, at a quarter of the price of a request. An answer of DNS is used for one connection.
    """

    def __init__(self, *, resolver: Resolver | None, **settings: Any) -> None:
        found: Any = resolver or aiohttp.ThreadedResolver()  # which takes what aiohttp's own do
        super().__init__(resolver=found, use_dns_cache=False, **settings)
        self.waiting: set[asyncio.Task[Any] | None] = set()
        """Requests put themselves in, and out when they are over; in between, a connection takes them out."""

    async def connect(self, *request: Any, **more: Any) -> Any:
        """A connection for the request of this task: one that was kept, or a new one."""
        connection = await super().connect(*request, **more)
        self.waiting.discard(asyncio.current_task())
        return connection
