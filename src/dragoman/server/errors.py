"""Errors of starting and reloading a server.

Invariant: the message names what to change.
"""


class StartError(Exception):
    """The server cannot start. The message names what to change."""


class ReloadError(Exception):
    """The new configuration cannot be served, so nothing changes. The message names what to change."""
