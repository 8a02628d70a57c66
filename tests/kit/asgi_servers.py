"""Servers that nobody here wrote, in this process: uvicorn, hypercorn and granian run any ASGI application."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from tests.kit.waiting import DEADLINE_S, until
from tests.ports import kept_port

STOP_S = 1
"""How long a server waits for answers under way when it stops."""


@asynccontextmanager
async def uvicorn_server(app: Any, **options: Any) -> AsyncIterator[str]:
    """The application under uvicorn; its URL."""
    import uvicorn

    port = kept_port()
    config = uvicorn.Config(
        app, port=port, lifespan="on", log_config=None, timeout_graceful_shutdown=STOP_S, ws="none", **options
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started or running.done())
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def hypercorn_server(app: Any, **options: Any) -> AsyncIterator[str]:
    """The application under hypercorn; its URL."""
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config, port, stopped = Config(), kept_port(), asyncio.Event()
    config.bind, config.graceful_timeout = [f"127.0.0.1:{port}"], STOP_S
    for name, value in options.items():
        setattr(config, name, value)
    running = asyncio.create_task(serve(app, config, shutdown_trigger=stopped.wait, mode="asgi"))
    try:
        await until(lambda: running.done() or accepts(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        stopped.set()
        await running


@asynccontextmanager
async def granian_server(app: Any, **options: Any) -> AsyncIterator[str]:
    """The application under granian; its URL."""
    from granian.constants import Interfaces
    from granian.server.embed import Server

    port = kept_port()
    server = Server(app, port=port, interface=Interfaces.ASGI, log_enabled=False, **options)
    running = asyncio.create_task(server.serve())
    try:
        await until(lambda: running.done() or accepts(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()
        async with asyncio.timeout(DEADLINE_S):
            await running


def accepts(port: int) -> bool:
    """Whether somebody listens on the port of this machine."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


ASGI_SERVERS: dict[str, Callable[..., AbstractAsyncContextManager[str]]] = {
    "uvicorn": uvicorn_server,
    "hypercorn": hypercorn_server,
    "granian": granian_server,
}
