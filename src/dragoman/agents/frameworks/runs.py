"""The agent of a framework's object, and its runs, which wait for their caller and continue after a restart.

A run gathers its framework's tokens, since a chunk of an artifact costs the server more than the token in it.

Invariant: what a framework has done before a pause is not repeated as long as its state can be restored: the state is
noted with the question, and a later run of the task begins with it. The card says what the object says about itself,
and no more; `[[agents]]` may override it. The first text is emitted at once, and none waits longer than a window. Order
is kept, also between output and reports.

Texts can be yielded like everything else; `text_sink` is the shorter way for a stream of tokens, where every step of
every token counts.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Answer, Context
from dragoman.agents.python.present import running_within
from dragoman.agents.text_windows import Windows
from dragoman.model.message import Part

PIECES_MAX = 1024
"""The most pieces that wait to be emitted; then the framework waits."""


class Gathering:
    """The output on its way from the task in which the framework runs to the task that emits it.

    `_texts` come after `_pieces`, which never hold two texts in a row.
    """

    def __init__(self) -> None:
        self._window: asyncio.Future[None] | None = None
        self._hurries = False
        self._pieces: list[object] = []
        self._texts: list[str] = []
        self._giving = False
        self._news, self._dry = asyncio.Event(), asyncio.Event()

    def say(self, text: str) -> bool:
        """Add a text. Returns whether there is room for another piece."""
        texts = self._texts
        if not texts:
            self._news.set()
        texts.append(text)
        return len(texts) < PIECES_MAX

    def add(self, piece: object) -> bool:
        """Add a piece of any kind. Returns whether there is room for another."""
        if isinstance(piece, str):
            return self.say(piece)
        self._join()
        self._pieces.append(piece)
        self._news.set()
        return len(self._pieces) < PIECES_MAX

    def end(self) -> None:
        """Note that no more pieces come."""
        self._news.set()

    async def drain(self) -> None:
        """Have everything emitted at once, and return when that is done."""
        while self._texts or self._pieces or self._giving:
            self._dry.clear()
            self._hurries = True
            if self._window is not None and not self._window.done():
                self._window.set_result(None)
            await self._dry.wait()

    async def take(self) -> Sequence[object]:
        """Wait for pieces or the end, and take them. They count as emitted only when `mark_emitted` is called."""
        await self._news.wait()
        self._news.clear()
        self._join()
        pieces, self._pieces = self._pieces, []
        self._giving = True
        return pieces

    async def wait_window(self, windows: Windows, pulling: asyncio.Task[None]) -> None:
        """Wait for a window, or until the run ends or waits for its output to be emitted."""
        if not self._hurries:
            self._window = asyncio.get_running_loop().create_future()
            windows.begin(self._window)
            await asyncio.wait((self._window, pulling), return_when=asyncio.FIRST_COMPLETED)
        self._hurries = False

    def mark_emitted(self) -> None:
        """Note that the taken pieces have been emitted."""
        self._giving = False
        if not (self._texts or self._pieces):
            self._dry.set()

    def _join(self) -> None:
        if self._texts:
            self._pieces.append("".join(self._texts))
            self._texts.clear()


_current: ContextVar[Gathering | None] = ContextVar("gathering", default=None)
"""The Gathering of the run that the current task belongs to."""


async def flush_output() -> None:
    """Return when everything from the current run so far is emitted, so that a report made now comes after it."""
    if (gathering := _current.get()) is not None:
        await gathering.drain()


def text_sink() -> Callable[[str], bool]:
    """A function that takes texts of the current run like a yield, in a tenth of the steps, in the same order.

    Once it returns False, there is no room for more: await `flush_output`.
    """
    gathering = _current.get()
    if gathering is None:
        raise LookupError("saying() works only within a gathered run")
    return gathering.say


async def contain(call: Awaitable[None]) -> None:
    """Await work of an agent in a task of its own.

    Raises RuntimeError for SystemExit and KeyboardInterrupt, which would leave the task and end the server.
    """
    try:
        await call
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the agent raised {error!r}") from error


async def gather_texts(pieces: AsyncGenerator[object, None], windows: Windows) -> AsyncGenerator[object, None]:
    """The same pieces, with the texts of a window joined. The run has a task of its own, which ends here."""
    gathering = Gathering()

    async def pull() -> None:
        _current.set(gathering)
        async with aclosing(pieces):
            async for piece in pieces:
                if not gathering.add(piece):
                    await gathering.drain()

    pulling = asyncio.create_task(contain(pull()))
    pulling.add_done_callback(lambda _: gathering.end())
    try:
        while True:
            taken = await gathering.take()
            ended = pulling.done()
            for piece in taken:
                yield piece
            gathering.mark_emitted()
            if ended:
                break
            await gathering.wait_window(windows, pulling)
        await pulling
    finally:
        if not pulling.done():
            pulling.cancel()
            await asyncio.wait((pulling,))


NOTE = "pause"
"""The name under which pauses are noted."""

REPLAYED = " "
"""Stands for the output before a pause: it keeps the count of artifacts, and is dropped like all output of a replay."""

SKILL = "answer"
"""The one skill of a framework's agent: it takes any message."""

TEXT_MODES = ("text/plain", "text/*", "application/json")
"""The types of parts that every framework is given as text: see `conversation.plain_message`."""

COALESCE_S = 0.03
"""How long tokens are gathered into one chunk, in seconds."""

DESCRIPTION_CHARS_MAX = 300
"""Instructions that replace a missing description are cut: a prompt does not belong on a card."""


class RunQuestion(Struct, frozen=True):
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


class RunPause(Struct, frozen=True):
    """The last item of a run that waits: its questions, and the state from which it continues, as text."""

    questions: tuple[RunQuestion, ...]
    state: str = ""


class FrameworkRun(Protocol):
    """One task's run of a framework: `begin` and `resume` say what the framework is given, `work` runs it on that."""

    async def holds(self, state: str) -> bool:
        """Whether a run can continue from a noted state. If not, it begins again, and repeats its questions.

        The default is for a run that needs nothing but its state.
        """
        return bool(state)

    async def begin(self) -> Any:
        """Return what the framework is given at the start."""
        ...

    async def resume(self, state: str, answers: Sequence[Answer]) -> Any:
        """Return what it is given to continue from a state, with the answers to its questions in their order."""
        ...

    def work(self, given: Any) -> AsyncGenerator[object, None]:
        """Run the framework. The caller gets the items; a RunPause comes last."""
        ...

    async def close(self) -> None:
        """Release what the run holds: it is over, or given up."""
        return


def build_agent(
    agent_id: str,
    start_run: Callable[[Context], FrameworkRun],
    *,
    name: str | None = None,
    description: str = "",
    tools: Iterable[str] = (),
    file_modes: Iterable[str] = ("image/*",),
    output_modes: Iterable[str] = ("text/plain", "application/json"),
) -> Agent:
    """Make an agent that runs each task by what `start_run` makes for it. The tools become tags of its skill.

    It accepts `TEXT_MODES`, which `conversation` turns into text, and files of the types `file_modes`.
    """
    agent = Agent(
        agent_id,
        name=name or agent_id,
        description=shorten(description) or name or agent_id,
        input_modes=(*TEXT_MODES, *file_modes),
        output_modes=output_modes,
    )

    windows = Windows(COALESCE_S)

    @agent.skill(SKILL, name=name or agent_id, tags=sorted(set(tools)))
    async def answer(ctx: Context) -> AsyncIterator[object]:
        async with aclosing(run_through(ctx, start_run(ctx), windows)) as pieces:
            async for piece in pieces:
                yield piece

    return agent


async def run_through(ctx: Context, run: FrameworkRun, windows: Windows) -> AsyncGenerator[object, None]:
    """The items of a run, through its pauses to its end. Texts are gathered in `windows`."""
    try:
        with running_within(ctx):
            async with aclosing(_run_through(ctx, run, windows)) as pieces:
                async for piece in pieces:
                    yield piece
    finally:
        await run.close()


class _Past(Struct):
    """A noted pause of this task. `said`: whether there was output since the one before."""

    said: bool
    questions: tuple[RunQuestion, ...]


class _Noted(Struct):
    """All pauses of this task so far, and the state at the last."""

    pasts: list[_Past]
    state: str


async def _run_through(ctx: Context, run: FrameworkRun, windows: Windows) -> AsyncGenerator[object, None]:
    noted = _load(ctx)
    if noted is not None and await run.holds(noted.state):
        answers: list[Answer] = []
        for past in noted.pasts:
            if past.said:
                yield REPLAYED
            answers = [await _ask(ctx, question) for question in past.questions]
        given = await run.resume(noted.state, answers)
    else:
        noted, given = _Noted([], ""), await run.begin()
    while True:
        pause, said = None, False
        async with aclosing(gather_texts(run.work(given), windows)) as gatherings:
            async for piece in gatherings:
                if isinstance(piece, RunPause):
                    pause = piece
                else:
                    said = True
                    yield piece
        if pause is None:
            return
        noted = _Noted([*noted.pasts, _Past(said, pause.questions)], pause.state)
        ctx.note(NOTE, msgspec.json.encode(noted).decode())
        answers = [await _ask(ctx, question) for question in pause.questions]
        given = await run.resume(pause.state, answers)


async def _ask(ctx: Context, question: RunQuestion) -> Answer:
    return await (ctx.require_auth(question.parts) if question.auth else ctx.ask(question.parts))


def _load(ctx: Context) -> _Noted | None:
    text = ctx.noted(NOTE)
    return msgspec.json.decode(text, type=_Noted) if text else None


def shorten(description: str) -> str:
    """Return a description in one line, cut for a card."""
    text = " ".join(description.split())
    return text if len(text) <= DESCRIPTION_CHARS_MAX else text[: DESCRIPTION_CHARS_MAX - 1] + "…"
