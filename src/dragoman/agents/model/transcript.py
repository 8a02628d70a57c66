"""The transcript of a conversation with tools: what of it a later run of the same task must not do, or ask, again.

Invariant: a round is noted before its first call is made, a call before it is made, and a result before the model reads
it. So a run that is taken up again says the same to the model, and calls nothing twice.
"""

from typing import Any

import msgspec
from msgspec import Struct

from dragoman.agents.model.completion import Called
from dragoman.engine.api import Run
from dragoman.model.message import Message, Part
from dragoman.model.task import Usage

YES = frozenset({"yes", "y", "ok", "okay", "true", "approve", "approved", "allow", "go ahead"})
"""What approves of a call; all else does not."""


class Round(Struct, frozen=True):
    """An answer of the model that calls tools: what it said, what it calls, and what it cost."""

    text: str
    calls: tuple[Called, ...]
    usage: Usage | None = None


class Outcome(Struct, frozen=True):
    """What the model is told of a call."""

    text: str
    error: bool = False


class Transcript:
    """The rounds of a run's task, those of runs before it included."""

    __slots__ = ("_noted", "_run")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._noted: dict[str, str] = dict(run.record.note or {})

    def round(self, number: int) -> Round | None:
        """What the model said in that round, if it did."""
        noted = self._noted.get(f"round-{number}")
        return None if noted is None else msgspec.json.decode(noted, type=Round)

    def keep_round(self, number: int, round_: Round) -> None:
        """The model has spoken."""
        self._keep(f"round-{number}", round_)

    def outcome(self, call: str) -> Outcome | None:
        """What a call came to, if it did."""
        noted = self._noted.get(f"result-{call}")
        return None if noted is None else msgspec.json.decode(noted, type=Outcome)

    def keep_outcome(self, call: str, outcome: Outcome) -> None:
        """A call is over."""
        self._keep(f"result-{call}", outcome)

    def begun(self, call: str) -> bool:
        """Whether a call was made, or was about to be when the run died."""
        return f"begun-{call}" in self._noted

    async def begin(self, call: str) -> None:
        """A call is about to be made. Returns when that is committed."""
        self._keep(f"begun-{call}", True)
        await self._run.written()

    def asked(self, call: str) -> bool:
        """Whether the caller was asked about a call: then it is asked again, and the recorded answer is found."""
        return f"asked-{call}" in self._noted

    async def approved(self, call: str, called: Called, arguments: dict[str, Any]) -> tuple[bool, str]:
        """Whether the caller approves of a call, and what it said."""
        if not self.asked(call):
            self._keep(f"asked-{call}", True)
        answer = await self._run.ask((question(called, arguments),))
        said = _said(answer)
        return said.strip().strip(".!").lower() in YES, said

    def _keep(self, name: str, value: object) -> None:
        text = msgspec.json.encode(value).decode()
        self._noted[name] = text
        self._run.note(**{name: text})


def question(called: Called, arguments: dict[str, Any]) -> Part:
    """What the caller is asked; programs find the call in the metadata."""
    shown = msgspec.json.encode(arguments).decode()
    return Part(
        text=f"May I call {called.name} with {shown}? Answer yes or no.",
        metadata={"toolCallId": called.id, "name": called.name, "args": arguments},
    )


def _said(answer: Message) -> str:
    """The caller's answer in words; data like `{"approved": true}` is as good as one."""
    for part in answer.parts:
        if isinstance(part.data, dict) and isinstance(approved := part.data.get("approved"), bool):
            return "yes" if approved else "no"
        if isinstance(part.data, bool):
            return "yes" if part.data else "no"
    return answer.text
