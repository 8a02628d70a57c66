"""A program behind a card: started for each task, and talked to through its standard streams.

Invariant: at most `concurrency` of its programs work at once, and none outlives its task, its server, or the death of
its server's process.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping

from dragoman.agents.content import Artifacts
from dragoman.agents.lifecycle import Finding
from dragoman.agents.program.dialogue import Answered, Clock, Talk
from dragoman.agents.program.launcher import Child, Launcher
from dragoman.agents.program.pipes import log
from dragoman.agents.program.place import findings, located, surroundings
from dragoman.agents.program.speech import Budget
from dragoman.agents.program.wire import document
from dragoman.config import Program
from dragoman.engine.api import Run
from dragoman.model.card import Profile
from dragoman.model.message import Message


class ProgramAgent:
    """`program` behind the card `profile`. Satisfies `Runner`, `Living` and `Checkable`.

    The program gets the usual variables of `environ`, and those that its settings name.
    """

    direct = False
    one_message = False
    offline = False

    def __init__(self, profile: Profile, program: Program, environ: Mapping[str, str]) -> None:
        self.profile = profile
        self.restartable = program.restartable
        self._program = program
        self._environ = environ
        path = located(program.command[0], environ) or os.path.abspath(program.command[0])
        self._launcher = Launcher(program, path, surroundings(program.env, environ))
        self._room = asyncio.Semaphore(program.concurrency)

    async def open(self, group: asyncio.TaskGroup) -> None:
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
        clock = Clock(asyncio.get_running_loop(), program.timeout_s)
        budget = Budget(program.max_output_bytes)
        artifacts = Artifacts(run)
        answered: list[Answered] = []
        again = True
        while again:
            child = await self._start(self._variables(run, skill))
            talk = Talk(run, child, program, artifacts, answered, clock, budget)
            again = await talk.held(self._first(run, skill, answered, history))

    async def check(self) -> AsyncIterator[Finding]:
        """Check that the program, its interpreter, its folder and its variables are there."""
        for finding in findings(self._program, self._environ):
            yield finding

    async def _start(self, variables: Mapping[str, str]) -> Child:
        """Start a program as soon as there is room. The program takes its place until it has ended."""
        room = self._room
        await room.acquire()
        try:
            child = await self._launcher.start(variables)
        except BaseException:
            room.release()
            raise
        child.ended.add_done_callback(lambda _: room.release())
        return child

    def _first(self, run: Run, skill: str | None, answered: list[Answered], history: tuple[Message, ...]) -> bytes:
        """The first input of the program. A program whose input stays open gets its answers as it asks."""
        match self._program.input:
            case "text":
                return run.message.text.encode(errors="replace")
            case "lines":
                return document(run, self.profile.id, skill, (), history)
            case "json":
                return document(run, self.profile.id, skill, [each.answer for each in answered], history)

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
