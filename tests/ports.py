"""Ports on which nobody listens unless a server of the test does, again and again.

Invariant: the system gives such a port to nobody else. One that was free a moment ago may be another test's now.
"""

import socket

_held: list[socket.socket] = []


def kept_port() -> int:
    """A port of 127.0.0.1 that is kept until this process ends.

    It is bound, but nobody listens, so that a connection is refused. Servers that reuse addresses, as all here do, can
    listen on it all the same.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    port: int = held.getsockname()[1]
    return port
