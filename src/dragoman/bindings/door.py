"""Door: where requests come in, whichever application answers them at the time.

Invariant: one request is answered by one application, from its first byte to its last.
"""

from collections.abc import Coroutine
from typing import Any

from dragoman.bindings.app import App
from dragoman.bindings.http import Receive, Scope, Send


class Door:
    """An ASGI application: `app`, which may be replaced at any time for the requests to come."""

    __slots__ = ("app",)

    def __init__(self, app: App) -> None:
        self.app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """ASGI 3.0."""
        return self.app(scope, receive, send)
