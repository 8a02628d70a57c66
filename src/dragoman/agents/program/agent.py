"""A program behind a card: started for each task, and talked to through its standard streams.

Invariant: at most `concurrency` of its programs work at once, and none outlives its task, its server, or the death of
its server's process. When a dialogue is over, however it ends, its program has ended or has been told to, and no
descriptor is open.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping

from msgspec import Struct

from dragoman.agents.content import Artifacts, parts_of
from dragoman.agents.program import wire
from dragoman.agents.program.executable import build_environment, check_program, find_executable
from dragoman.agents.program.launcher import Child, Launcher
from dragoman.agents.program.pipes import (
    ErrorLog,
    ErrorPipe,
    InputPipe,
    OutputBudget,
    OutputPipe,
    ProgramStatements,
    TooMuch,
    log,
)
from dragoman.config import Program
from dragoman.engine.api import DIRECT_WAIT_S, CheckResult, DirectMode, Ended, Reject, Run, Runner, Traits
from dragoman.model.card import Profile
from dragoman.model.ids import new_id
from dragoman.model.message import Message, Part
from dragoman.model.task import TaskState, Usage
from dragoman.telemetry.job_group import JobGroup

UNREADABLE = "The agent's program wrote something that cannot be read (reference {})."
UNASKED = "The agent's program asked a different question than when it was started before; its answers do not fit."


class ProgramQuestion(Struct, frozen=True):
    """A question of a program."""

    parts: tuple[Part, ...]
    auth: bool


class AnsweredQuestion(Struct, frozen=True):
    """A question that the caller has answered."""

    question: ProgramQuestion
    answer: wire.CallerMessage


class ProgramAgent(Runner):
    """`program` behind the card `profile`.

    The program gets the usual variables of `environ`, and those that its settings name. `direct` and `direct_wait_s`
    are those of `Traits`.
    """

    def __init__(
        self,
        profile: Profile,
        program: Program,
        environ: Mapping[str, str],
        *,
        direct: DirectMode = False,
        direct_wait_s: float = DIRECT_WAIT_S,
    ) -> None:
        self.profile = profile
        self.traits = Traits(direct=direct, direct_wait_s=direct_wait_s, restartable=program.restartable, waits=True)
        self._program = program
        self._environ = environ
        path = find_executable(program.command[0], environ) or os.path.abspath(program.command[0])
        self._launcher = Launcher(program, path, build_environment(program.env, environ))
        self._room = asyncio.Semaphore(program.concurrency)

    async def open(self, group: JobGroup) -> None:
        """Start the spawner of the programs, so that no task waits for it."""
        self._room = asyncio.Semaphore(self._program.concurrency)
        try:
            await self._launcher.open()
        except OSError as error:
            log.error("agent %s: programs cannot be started now: %s", self.profile.id, error)

    async def close(self) -> None:
        """Stop the programs that still run."""
        await self._launcher.close(self._program.grace_s)

    async def run(self, run: Run) -> None:
        """Start the program, and start it again for each answer that it has not waited for."""
        program = self._program
        skill = run.skill or next(iter(run.skills), None) or next((each.id for each in self.profile.skills), None)
        history = await run.history(program.history) if program.history else ()
        clock = WorkClock(asyncio.get_running_loop(), program.timeout_s)
        budget = OutputBudget(program.max_output_bytes)
        artifacts = Artifacts(run)
        answered: list[AnsweredQuestion] = []
        again = True
        while again:
            child = await self._start(run, self._variables(run, skill))
            dialogue = Dialogue(run, child, program, artifacts, answered, clock, budget)
            again = await dialogue.run_once(self._first(run, skill, answered, history))

    async def check(self) -> AsyncIterator[CheckResult]:
        """Check that the program, its interpreter, its folder and its variables are there."""
        for finding in check_program(self._program, self._environ):
            yield finding

    async def _start(self, run: Run, variables: Mapping[str, str]) -> Child:
        """Start a program as soon as there is room. The program takes its place until it has ended."""
        room = self._room
        await room.acquire()
        try:
            run.working()
            child = await self._launcher.start(variables)
        except BaseException:
            room.release()
            raise
        child.ended.add_done_callback(lambda _: room.release())
        return child

    def _first(
        self, run: Run, skill: str | None, answered: list[AnsweredQuestion], history: tuple[Message, ...]
    ) -> bytes:
        """The first input of the program. A program whose input stays open gets its answers as it asks."""
        match self._program.input:
            case "text":
                return run.message.text.encode(errors="replace")
            case "lines":
                return wire.task_line(run, self.profile.id, skill, (), history)
            case "json":
                return wire.task_line(run, self.profile.id, skill, [each.answer for each in answered], history)

    def _variables(self, run: Run, skill: str | None) -> dict[str, str]:
        """The task's facts as environment variables. NUL, which no variable can hold, is left out."""
        found = {
            "DRAGOMAN_AGENT": self.profile.id,
            "DRAGOMAN_TASK_ID": run.head.id,
            "DRAGOMAN_CONTEXT_ID": run.head.context_id,
            "DRAGOMAN_SKILL": skill,
            "DRAGOMAN_PRINCIPAL": run.principal.id,
            "TRACEPARENT": run.traceparent,
        }
        return {name: value.replace("\0", "") for name, value in found.items() if value}


class WorkClock:
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


class Dialogue:
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
        answered: list[AnsweredQuestion],
        clock: WorkClock,
        budget: OutputBudget,
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
        self._feed = InputPipe(child.stdin, loop)
        self._stdout = OutputPipe(child.stdout, loop, child.ended)
        title = f"agent {run.head.agent}: task {run.head.id}"
        self._stderr = ErrorPipe(child.stderr, loop, ErrorLog(log, title))
        self._statements = ProgramStatements(self._stdout, program, budget, loop)
        self._quit = False

    async def run_once(self, first: bytes) -> bool:
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
            for says in self._statements.waiting():
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
                        if not isinstance(each, wire.Asks | wire.AsksAuth):
                            await self._carry_out(each)
        except (TimeoutError, Ended, Reject, TypeError, ValueError):  # it is canceled, whatever else happens
            pass

    async def _hear(self) -> list[wire.Statement]:
        try:
            return await self._statements.read()
        except wire.UnreadableLine as error:
            raise self._unreadable(error) from error
        except TooMuch:
            text = f"The agent's program wrote more than allowed ({self._program.max_output_bytes} bytes)."
            raise _failed(text, "program_output") from None

    async def _carry_out(self, says: wire.Statement) -> bool:
        """Carry out one statement of the program. True: it must be started again with an answer."""
        if isinstance(says, wire.Asks | wire.AsksAuth):
            return await self._ask(self._question(says))
        if self._known:
            return False
        run, artifacts = self._run, self._artifacts
        try:
            match says:
                case wire.SaysText(text):
                    await artifacts.add(text)
                case wire.SaysData(data):
                    await artifacts.add(Part(data=data))
                case wire.SaysFile(piece):
                    await artifacts.add(piece.part())
                case wire.GivesArtifact(given):
                    await artifacts.emit(
                        [piece.part() for piece in given.parts],
                        name=given.name,
                        description=given.description,
                        id=given.id,
                        append=given.append,
                        last=given.last,
                        media_type=None,
                    )
                case wire.Progresses((current, total), text):
                    await run.status(parts_of(text) if text else (), progress=(current, total))
                case wire.Reports(status):
                    await run.status(parts_of(status))
                case wire.Titles(title):
                    run.title(title)
                case wire.Uses(tokens):
                    used = Usage.of(
                        tokens.input, tokens.output, tokens.total, tokens.model, cached_tokens=tokens.cached
                    )
                    run.usage(used)
                case wire.CallsTool(call):
                    await call.send(run)
                case wire.Rejects(why):
                    raise Reject(why)
                case wire.Fails(why):
                    raise _failed(why, "agent_failed")
        except (TypeError, ValueError) as error:  # a Part that holds two things
            raise self._unreadable(error) from error
        return False

    def _question(self, says: wire.Asks | wire.AsksAuth) -> ProgramQuestion:
        said, auth = (says.ask, False) if isinstance(says, wire.Asks) else (says.auth, True)
        try:
            return ProgramQuestion(self._run.bounds.parts("ask", parts_of(said)), auth=auth)
        except (TypeError, ValueError) as error:
            raise self._unreadable(error) from error

    async def _ask(self, question: ProgramQuestion) -> bool:
        if self._program.input == "text":
            error = wire.UnreadableLine('it asks, but reads only text: set input = "json" or "lines"')
            raise self._unreadable(error)
        self._artifacts.begin_new()
        if self._known:
            known = self._known.popleft()
            if known.question != question:
                raise _failed(UNASKED, "replay_mismatch")
            self._feed.put(wire.answer_line(self._run, known.answer), last=False)
            return False
        keeps = self._program.input == "lines"
        if not keeps:
            await self._await_exit()
        self._clock.stand()
        parking = self._loop.call_later(self._program.keep_s, self._park) if keeps else None
        try:
            answer = wire.caller_message(await self._run.ask(question.parts, auth=question.auth))
        finally:
            if parking is not None:
                parking.cancel()
        self._clock.go_on()
        self._answered.append(AnsweredQuestion(question, answer))
        if not keeps or self._quit:
            return True
        if self._child.ended.done():
            self._judge(self._child.ended.result())
            return True
        self._feed.put(wire.answer_line(self._run, answer), last=False)
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
