"""A proxy in front of a live agent, which keeps the requests as they came and can spoil the answers."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.client.proxy import Proxy


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    """A proxy in front of a server, on a thread of its own."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy(parts.hostname, parts.port)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(proxy.serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield proxy
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()
