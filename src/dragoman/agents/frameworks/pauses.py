"""Runs of a framework that wait for their caller, and continue after a restart where they were.

Invariant: what a framework has done before a pause is not repeated as long as its state can be restored: the state is
noted with the question, and a later run of the task begins with it.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from dragoman.agents.frameworks.gathering import gathered
from dragoman.agents.python.context import Answer, Context
from dragoman.agents.text_windows import Windows
from dragoman.model.message import Part

NOTE = "pause"
"""The name under which pauses are noted."""

REPLAYED = " "
"""Stands for the output before a pause: it keeps the count of artifacts, and is dropped like all output of a replay."""


class Question(Struct, frozen=True):
    """A question to the caller: a text for people and, unless None, the same as data for programs.

    With `auth`, the caller is asked to authenticate (`auth-required`).
    """

    text: str
    data: Any = None
    auth: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        """The question as parts."""
        text = Part(text=self.text)
        return (text,) if self.data is None else (text, Part(data=self.data))


class Pause(Struct, frozen=True):
    """The last item of a run that waits: its questions, and the state from which it continues, as text."""

    questions: tuple[Question, ...]
    state: str = ""


class Pausing(Protocol):
    """One task's run of a framework. The caller gets the items of `begin` and `resume`; a Pause comes last."""

    async def holds(self, state: str) -> bool:
        """Whether a run can continue from a noted state. If not, it begins again, and repeats its questions."""
        ...

    def begin(self) -> AsyncGenerator[object, None]:
        """Run from the start."""
        ...

    def resume(self, state: str, answers: Sequence[Answer]) -> AsyncGenerator[object, None]:
        """Continue from a state with the answers to its questions, in their order."""
        ...

    async def close(self) -> None:
        """Release what the run holds: it is over, or given up."""
        return


class _Past(Struct):
    """A noted pause of this task. `said`: whether there was output since the one before."""

    said: bool
    questions: tuple[Question, ...]


class _Noted(Struct):
    """All pauses of this task so far, and the state at the last."""

    pasts: list[_Past]
    state: str


async def run_through(ctx: Context, pausing: Pausing, windows: Windows) -> AsyncGenerator[object, None]:
    """The items of a run, through its pauses to its end. Texts are gathered in `windows`."""
    try:
        async with aclosing(_run_through(ctx, pausing, windows)) as pieces:
            async for piece in pieces:
                yield piece
    finally:
        await pausing.close()


async def _run_through(ctx: Context, pausing: Pausing, windows: Windows) -> AsyncGenerator[object, None]:
    noted = _load(ctx)
    if noted is not None and await pausing.holds(noted.state):
        answers: list[Answer] = []
        for past in noted.pasts:
            if past.said:
                yield REPLAYED
            answers = [await _ask(ctx, question) for question in past.questions]
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
        answers = [await _ask(ctx, question) for question in pause.questions]
        pieces = pausing.resume(pause.state, answers)


async def _ask(ctx: Context, question: Question) -> Answer:
    return await (ctx.require_auth(question.parts) if question.auth else ctx.ask(question.parts))


def _load(ctx: Context) -> _Noted | None:
    text = ctx.noted(NOTE)
    return msgspec.json.decode(text, type=_Noted) if text else None
