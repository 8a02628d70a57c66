"""Runs of a framework that wait for their caller in between, and go on after a restart where they stood.

Invariant: what a framework has done before a pause is not done again as long as its state is to be had: it is noted
with the question, and a later run of the task begins with it.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from dragoman.agents.frameworks.gathering import gathered
from dragoman.agents.python.context import Context
from dragoman.agents.python.facts import Answer
from dragoman.agents.text_windows import Windows
from dragoman.model.message import Part

NOTE = "pause"
"""The name under which pauses are noted."""

REPLAYED = " "
"""Stands for what was said before a pause: it counts the artifacts, and is dropped like all that a replay says."""


class Question(Struct, frozen=True):
    """What the caller is asked: a text for people, and, unless None, the same as data for programs.

    With `auth` it is asked to authenticate (`auth-required`).
    """

    text: str
    data: Any = None
    auth: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        """The question as it is put."""
        text = Part(text=self.text)
        return (text,) if self.data is None else (text, Part(data=self.data))


class Pause(Struct, frozen=True):
    """The last thing that a run gives when it waits: what it asks, and the state by which it goes on, as text."""

    questions: tuple[Question, ...]
    state: str = ""


class Pausing(Protocol):
    """One task's run of a framework. What `begin` and `resume` give is yielded to the caller; a Pause comes last."""

    async def holds(self, state: str) -> bool:
        """Whether a run can go on from a state that was noted; else it begins anew, and asks again."""
        ...

    def begin(self) -> AsyncGenerator[object, None]:
        """Run from the start."""
        ...

    def resume(self, state: str, answers: Sequence[Answer]) -> AsyncGenerator[object, None]:
        """Go on from a state with the answers to its questions, in their order."""
        ...

    async def close(self) -> None:
        """The run is over, or given up."""
        return


class _Past(Struct):
    """A pause of this task as it is noted. `said`: whether anything had been said since the one before."""

    said: bool
    questions: tuple[Question, ...]


class _Noted(Struct):
    """All pauses of this task so far, and the state at the last."""

    pasts: list[_Past]
    state: str


async def run_through(ctx: Context, pausing: Pausing, windows: Windows) -> AsyncGenerator[object, None]:
    """All that a run gives, through its pauses, to its end; its texts are gathered in `windows`."""
    try:
        async with aclosing(_run_through(ctx, pausing, windows)) as pieces:
            async for piece in pieces:
                yield piece
    finally:
        await pausing.close()


async def _run_through(ctx: Context, pausing: Pausing, windows: Windows) -> AsyncGenerator[object, None]:
    noted = _noted(ctx)
    if noted is not None and await pausing.holds(noted.state):
        answers: list[Answer] = []
        for past in noted.pasts:
            if past.said:
                yield REPLAYED
            answers = [await _asked(ctx, question) for question in past.questions]
        pieces = pausing.resume(noted.state, answers)
    else:
        noted, pieces = _Noted([], ""), pausing.begin()
    while True:
        pause, said = None, False
        async with aclosing(gathered(pieces, windows)) as gatherings:
            async for piece in gatherings:
                if isinstance(piece, Pause):
                    pause = piece
                else:
                    said = True
                    yield piece
        if pause is None:
            return
        noted = _Noted([*noted.pasts, _Past(said, pause.questions)], pause.state)
        ctx.note(NOTE, msgspec.json.encode(noted).decode())
        answers = [await _asked(ctx, question) for question in pause.questions]
        pieces = pausing.resume(pause.state, answers)


async def _asked(ctx: Context, question: Question) -> Answer:
    return await (ctx.require_auth(question.parts) if question.auth else ctx.ask(question.parts))


def _noted(ctx: Context) -> _Noted | None:
    text = ctx.noted(NOTE)
    return msgspec.json.decode(text, type=_Noted) if text else None
