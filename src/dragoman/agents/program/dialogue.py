"""One start of a program on a task: passes what the program writes on to the run.

Invariant: when a talk is over, however it ends, its program has ended or has been told to, and no descriptor is open.
"""

import asyncio
import signal
from collections import deque

from msgspec import Struct

from dragoman.agents.content import Artifacts, parts_of
from dragoman.agents.error_output import Complaints
from dragoman.agents.program.launcher import Child
from dragoman.agents.program.pipes import Errors, Feed, Yield, log
from dragoman.agents.program.speech import Budget, Speech, TooMuch
from dragoman.agents.program.wire import (
    Asks,
    AsksAuth,
    CallsTool,
    Fails,
    GivesArtifact,
    Heard,
    Progresses,
    Rejects,
    Reports,
    Said,
    SaysData,
    SaysFile,
    SaysText,
    Unreadable,
    Uses,
    answer_line,
    heard,
)
from dragoman.config import Program
from dragoman.engine.api import Ended, Reject, Run
from dragoman.model.ids import new_id
from dragoman.model.message import Part
from dragoman.model.task import TaskState, Usage

UNREADABLE = "The agent's program wrote something that cannot be read (reference {})."
UNASKED = "The agent's program asked a different question than when it was started before; its answers do not fit."


class Question(Struct, frozen=True):
    """A question of a program."""

    parts: tuple[Part, ...]
    auth: bool


class Answered(Struct, frozen=True):
    """A question that the caller has answered."""

    question: Question
    answer: Heard


class Clock:
    """How long the programs of a task may still work. The clock stops while the caller thinks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, left_s: float) -> None:
        self.left_s = left_s
        self._loop = loop
        self._timeout: asyncio.Timeout | None = None
        self._since = 0.0

    def run(self) -> asyncio.Timeout:
        """Start the clock. Returns the timeout that ends a talk that takes longer."""
        self._since = self._loop.time()
        self._timeout = asyncio.timeout(self.left_s)
        return self._timeout

    def stand(self) -> None:
        """Stop the clock."""
        self.left_s -= self._loop.time() - self._since
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(None)

    def go_on(self) -> None:
        """Start the clock again."""
        self._since = self._loop.time()
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(self._since + max(0.0, self.left_s))


class Talk:
    """A program that runs on `run`.

    `answered` are the questions of earlier starts. A program whose standard input stays open asks them again; until it
    has asked all of them, its output is known already, and dropped.
    """

    def __init__(
        self,
        run: Run,
        child: Child,
        program: Program,
        artifacts: Artifacts,
        answered: list[Answered],
        clock: Clock,
        budget: Budget,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._run = run
        self._child = child
        self._program = program
        self._artifacts = artifacts
        self._answered = answered
        self._known = deque(answered if program.input == "lines" else ())
        self._clock = clock
        self._loop = loop
        self._feed = Feed(child.stdin, loop)
        self._stdout = Yield(child.stdout, loop, child.ended)
        title = f"agent {run.head.agent}: task {run.head.id}"
        self._stderr = Errors(child.stderr, loop, Complaints(log, title))
        self._speech = Speech(self._stdout, program, budget, loop)
        self._quit = False

    async def held(self, first: bytes) -> bool:
        """Give the program its input, and read its output to the end. True: the program must be started again.

        Raises Ended or Reject if that is the outcome.
        """
        timeout = self._clock.run()
        try:
            async with timeout:
                self._feed.put(first, last=self._program.input != "lines")
                again = await self._listen()
                self._clock.stand()
                return again
        except TimeoutError:
            if not timeout.expired():
                raise
            for says in self._speech.waiting():
                await self._carry_out(says)
            text = f"The agent's program took longer than allowed ({self._program.timeout_s:g} s)."
            raise _failed(text, "program_timeout") from None
        except asyncio.CancelledError:
            if self._run.canceled:
                await self._end_canceled()
            raise
        finally:
            self._child.stop(self._program.grace_s)
            self._feed.close()
            self._stdout.close()
            self._stderr.close()

    async def _listen(self) -> bool:
        while says := await self._hear():
            for each in says:
                if await self._carry_out(each):
                    return True
        self._judge(await asyncio.shield(self._child.ended))
        if self._known:
            raise _failed(UNASKED, "replay_mismatch")
        return False

    async def _end_canceled(self) -> None:
        """Read what the program still writes as it ends, for `grace_s` at most, because the task was canceled."""
        self._child.stop(self._program.grace_s)
        try:
            async with asyncio.timeout(self._program.grace_s):
                while says := await self._hear():
                    for each in says:
                        if not isinstance(each, Asks | AsksAuth):
                            await self._carry_out(each)
        except (TimeoutError, Ended, Reject, TypeError, ValueError):  # it is canceled, whatever else happens
            pass

    async def _hear(self) -> list[Said]:
        try:
            return await self._speech.heard()
        except Unreadable as error:
            raise self._unreadable(error) from error
        except TooMuch:
            text = f"The agent's program wrote more than allowed ({self._program.max_output_bytes} bytes)."
            raise _failed(text, "program_output") from None

    async def _carry_out(self, says: Said) -> bool:
        """Carry out one statement of the program. True: it must be started again with an answer."""
        if isinstance(says, Asks):
            return await self._ask(Question(parts_of(says.ask), auth=False))
        if isinstance(says, AsksAuth):
            return await self._ask(Question(parts_of(says.auth), auth=True))
        if self._known:
            return False
        run, artifacts = self._run, self._artifacts
        try:
            match says:
                case SaysText(text):
                    await artifacts.add(text)
                case SaysData(data):
                    await artifacts.add(Part(data=data))
                case SaysFile(piece):
                    await artifacts.add(piece.part())
                case GivesArtifact(given):
                    await artifacts.emit(
                        [piece.part() for piece in given.parts],
                        name=given.name,
                        description=given.description,
                        id=given.id,
                        append=given.append,
                        last=given.last,
                        media_type=None,
                    )
                case Progresses((current, total), text):
                    await run.status(parts_of(text) if text else (), progress=(current, total))
                case Reports(status):
                    await run.status(parts_of(status))
                case Uses(tokens):
                    total = tokens.input + tokens.output if tokens.total is None else tokens.total
                    run.usage(Usage(tokens.input, tokens.output, total))
                case CallsTool(call):
                    await call.send(run)
                case Rejects(why):
                    raise Reject(why)
                case Fails(why):
                    raise _failed(why, "agent_failed")
        except (TypeError, ValueError) as error:  # a Part that holds two things
            raise self._unreadable(error) from error
        return False

    async def _ask(self, question: Question) -> bool:
        if self._program.input == "text":
            error = Unreadable('it asks, but reads only text: set input = "json" or "lines"')
            raise self._unreadable(error)
        self._artifacts.begin_new()
        if self._known:
            known = self._known.popleft()
            if known.question != question:
                raise _failed(UNASKED, "replay_mismatch")
            self._feed.put(answer_line(known.answer), last=False)
            return False
        keeps = self._program.input == "lines"
        if not keeps:
            await self._await_exit()
        self._clock.stand()
        parking = self._loop.call_later(self._program.keep_s, self._park) if keeps else None
        try:
            answer = heard(await self._run.ask(question.parts, auth=question.auth))
        finally:
            if parking is not None:
                parking.cancel()
        self._clock.go_on()
        self._answered.append(Answered(question, answer))
        if not keeps or self._quit:
            return True
        if self._child.ended.done():
            self._judge(self._child.ended.result())
            return True
        self._feed.put(answer_line(answer), last=False)
        return False

    async def _await_exit(self) -> None:
        """Let a program end that asks without waiting for the answer; it is stopped after `grace_s`."""
        self._feed.close()
        try:
            async with asyncio.timeout(self._program.grace_s):
                while await self._stdout.read():
                    pass
                self._judge(await asyncio.shield(self._child.ended))
        except TimeoutError:
            pass
        self._child.stop(self._program.grace_s)

    def _park(self) -> None:
        """Stop the program, because the caller takes long; it is started again when the answer comes."""
        self._quit = True
        self._child.stop(self._program.grace_s)

    def _judge(self, code: int) -> None:
        """Raise the error that an exit code stands for; 0 stands for none."""
        if code == 0:
            return
        if code == self._program.reject_code:
            raise Reject("The agent does not do this task.")
        if code > 0:
            raise _failed(f"The agent's program failed with exit code {code}.", "program_exit")
        if -code == signal.SIGXCPU:
            text = f"The agent's program used more processor time than allowed ({self._program.max_cpu_s} s)."
            raise _failed(text, "program_limit")
        raise _failed(f"The agent's program was ended by {_name(-code)}.", "program_exit")

    def _unreadable(self, error: Exception) -> Ended:
        reference = new_id()[-12:]
        head = self._run.head
        log.error("agent %s: task %s: standard output: %s (reference %s)", head.agent, head.id, error, reference)
        return _failed(UNREADABLE.format(reference), "program_output")


def _failed(text: str, reason: str) -> Ended:
    return Ended(TaskState.FAILED, (Part(text=text),), reason)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
