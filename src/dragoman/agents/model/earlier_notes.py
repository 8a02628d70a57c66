"""Earlier notes: the answers and calls that a server of version 0.1.0 noted, of a task that it left unfinished.

Invariant: what is noted is not asked and not called again. Version 0.1.0 knew no steps: it noted each answer that
called tools, that a call was about to be made, and its outcome. A call that had begun was not made again.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from dragoman.agents.model.completion import Called
from dragoman.model.task import Usage


class NotedAnswer(Struct, frozen=True):
    """An answer of the model that called tools, and its cost."""

    text: str
    calls: tuple[Called, ...]
    usage: Usage | None = None


class NotedOutcome(Struct, frozen=True):
    """The outcome of a call, as the model read it."""

    text: str
    error: bool = False


class EarlierNotes:
    """The `notes` of a task. Calls are named by the numbers of their round and their own: `1.0`."""

    __slots__ = ("_noted",)

    def __init__(self, notes: Mapping[str, str]) -> None:
        self._noted = notes

    def answer(self, number: int) -> NotedAnswer | None:
        """The model's answer in that round, if it is noted."""
        noted = self._noted.get(f"round-{number}")
        return None if noted is None else msgspec.json.decode(noted, type=NotedAnswer)

    def outcome(self, call: str) -> NotedOutcome | None:
        """The outcome of a call, if it is noted."""
        noted = self._noted.get(f"result-{call}")
        return None if noted is None else msgspec.json.decode(noted, type=NotedOutcome)

    def begun(self, call: str) -> bool:
        """Whether a call was made, or was about to be made when the run died."""
        return f"begun-{call}" in self._noted or f"result-{call}" in self._noted

    def asked(self, call: str) -> bool:
        """Whether the caller was asked about a call: asking again finds the recorded answer."""
        return f"asked-{call}" in self._noted
