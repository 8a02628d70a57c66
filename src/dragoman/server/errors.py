"""Why a server cannot start.

Invariant: the message names what to change.
"""


class StartError(Exception):
    """The server cannot start. The message names what to change."""
