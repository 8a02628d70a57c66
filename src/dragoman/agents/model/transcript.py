"""The transcript of a conversation with tools: what a later run of the same task must not do, or ask, again.

Invariant: a round is noted before its first call is made, a call before it is made, and a result before the model reads
it. So a resumed run says the same to the model, and calls nothing twice.
"""

from typing import Any

import msgspec
from msgspec import Struct

from dragoman.agents.model.completion import Called
from dragoman.engine.api import Run
from dragoman.model.message import Message, Part
from dragoman.model.task import Usage

YES = frozenset({"yes", "y", "ok", "okay", "true", "approve", "approved", "allow", "go ahead"})
"""The answers that approve a call; any other answer does not."""


class Round(Struct, frozen=True):
    """An answer of the model that calls tools: its text, its calls, and its cost."""

    text: str
    calls: tuple[Called, ...]
    usage: Usage | None = None


class Outcome(Struct, frozen=True):
    """The result of a call, as the model reads it."""

    text: str
    error: bool = False


class Transcript:
    """The rounds of a run's task, including those of earlier runs."""

    __slots__ = ("_noted", "_run")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._noted: dict[str, str] = dict(run.record.note or {})

    def round(self, number: int) -> Round | None:
        """The model's answer in that round, if there was one."""
        noted = self._noted.get(f"round-{number}")
        return None if noted is None else msgspec.json.decode(noted, type=Round)

    def keep_round(self, number: int, round_: Round) -> None:
        """Record the model's answer of a round."""
        self._keep(f"round-{number}", round_)

    def outcome(self, call: str) -> Outcome | None:
        """The outcome of a call, if it has one."""
        noted = self._noted.get(f"result-{call}")
        return None if noted is None else msgspec.json.decode(noted, type=Outcome)

    def keep_outcome(self, call: str, outcome: Outcome) -> None:
        """Record the outcome of a call."""
        self._keep(f"result-{call}", outcome)

    def begun(self, call: str) -> bool:
        """Whether a call was made, or was about to be made when the run died."""
        return f"begun-{call}" in self._noted

    async def begin(self, call: str) -> None:
        """Record that a call is about to be made. Returns when that is committed."""
        self._keep(f"begun-{call}", True)
        await self._run.written()

    def asked(self, call: str) -> bool:
        """Whether the caller was asked about a call. If so, asking again finds the recorded answer."""
        return f"asked-{call}" in self._noted

    async def approved(self, call: str, called: Called, arguments: dict[str, Any]) -> tuple[bool, str]:
        """Ask the caller to approve a call. Returns whether it does, and its words."""
        if not self.asked(call):
            self._keep(f"asked-{call}", True)
        answer = await self._run.ask((question(called, arguments),))
        said = _words_of(answer)
        return said.strip().strip(".!").lower() in YES, said

    def _keep(self, name: str, value: object) -> None:
        text = msgspec.json.encode(value).decode()
        self._noted[name] = text
        self._run.note(**{name: text})


def question(called: Called, arguments: dict[str, Any]) -> Part:
    """The question for the caller. Programs find the call in the metadata."""
    shown = msgspec.json.encode(arguments).decode()
    return Part(
        text=f"May I call {called.name} with {shown}? Answer yes or no.",
        metadata={"toolCallId": called.id, "name": called.name, "args": arguments},
    )


def _words_of(answer: Message) -> str:
    """The caller's answer in words. Data like `{"approved": true}` counts as an answer, too."""
    for part in answer.parts:
        if isinstance(part.data, dict) and isinstance(approved := part.data.get("approved"), bool):
            return "yes" if approved else "no"
        if isinstance(part.data, bool):
            return "yes" if part.data else "no"
    return answer.text
