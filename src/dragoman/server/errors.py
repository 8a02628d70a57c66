"""Why a server cannot start, or cannot take new agents.

Invariant: the message names what to change.
"""


class StartError(Exception):
    """The server cannot start. The message names what to change."""


class ReloadError(Exception):
    """What is configured cannot be served: all stays as it is. The message names what to change."""
