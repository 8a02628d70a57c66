"""Stopping: how far the stop of this process has come.

Invariant: it only goes on: neither fact is taken back.
"""


class Stopping:
    """The progress of a stop: after `begun` the server takes no new work, after `done` its runs are over."""

    def __init__(self) -> None:
        self.begun = False
        self.done = False

    def begin(self) -> None:
        """The server takes no new work from now on."""
        self.begun = True

    def end(self) -> None:
        """The runs are over."""
        self.done = True
