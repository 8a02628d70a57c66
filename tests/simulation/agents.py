"""Agents that do what the caller's message says, so that a checker knows what they must have written.

A script is a list of steps, separated by blanks: `c3` gives out three chunks, `s20` sleeps for 20 hundredths of a
second, `p` reports progress, `a` asks a question, `d:other:c2,a` delegates the script `c2 a` to `other` (with `D` its
questions are not passed on), `t` takes a step, which is executed once, `z60` puts the task to sleep for 60 hundredths
(with `Z` a message wakes it), `m` counts in its memory, `b/c1+a/s5+a` lets two branches play, each into an artifact of
its own, `x30` goes on for 30 hundredths of a second when it is canceled, `f` fails, `r` rejects.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Protocol

from dragoman.agents.python.memory import Memory
from dragoman.engine.api import Delegation, DelegationFailed, DirectMode, Reject, Run, Runner, Traits
from dragoman.engine.words import Sleep, Step, StepDone
from dragoman.model.card import AgentSkill, Profile
from dragoman.model.events import Delegated, Event, Logged, MessageReceived, StatusChanged, Stepped, Submitted
from dragoman.model.message import Artifact, Part
from dragoman.model.task import INTERRUPTED, Record, TaskState

HIRED = "hired"
"""The agent whose tasks workers do."""

ANSWERS: dict[str, DirectMode] = {"plain": True, "either": "auto"}
"""The agents that answer with a Message, always or if it can hold their work."""

AGENTS = {"again": True, "once": False, "other": True, HIRED: True, "plain": True, "either": True}
"""The agents, and whether they are restartable."""

WORKER_LEASE_S = 4.0
"""How long a worker may keep silent before its task is another's."""

ARTIFACT = "out"


class Broken(Exception):
    """The agent fails, as its script says."""


class Witness(Protocol):
    """Hears what agents do, whatever becomes of it."""

    def begun(self, run: Run) -> None:
        """A run of an agent begins."""
        ...

    def executed(self, run: Run, step: str) -> None:
        """A run executes a step."""
        ...


class ScriptedAgent(Runner):
    """See `engine.api.Runner`. The `witness` is told of each run and of each execution of a step."""

    def __init__(self, name: str, witness: Witness) -> None:
        self.profile = Profile(
            id=name,
            name=name,
            description="A scripted agent",
            version="1",
            skills=(AgentSkill(id="play", name="Play", description="Plays a script", tags=()),),
        )
        self.traits = Traits(restartable=AGENTS[name], direct=ANSWERS.get(name, False))
        self._witness = witness

    async def run(self, run: Run) -> None:
        """Play the script."""
        self._witness.begun(run)
        lingers_s = 0.0
        player = _Player(run, self._witness)
        try:
            for step in run.message.text.split():
                match step[0]:
                    case "x":
                        lingers_s = int(step[1:]) / 100
                    case "b":
                        branches = enumerate(step.split("/")[1:], 1)
                        players = ((_Player(run, self._witness, number), steps) for number, steps in branches)
                        await asyncio.gather(*(player.play(steps) for player, steps in players))
                    case "f":
                        raise Broken(run.head.id)
                    case "r":
                        raise Reject("not this one")
                    case _:
                        await player.do(step)
        except asyncio.CancelledError:
            if lingers_s:
                await asyncio.sleep(lingers_s)
            raise


class _Player:
    """Plays the steps of a script, or of a branch with a `number`. Numbers of delegations are left to the run there."""

    def __init__(self, run: Run, witness: Witness, number: int = 0) -> None:
        self._run = run
        self._witness = witness
        self._branch = number
        self._artifact = branch_artifact(number) if number else ARTIFACT
        self._chunks = self._questions = self._delegations = self._steps = 0
        self._memory = Memory(run, wide=bool(number))  # of the caller, where branches write to it at once

    async def play(self, steps: str) -> None:
        """Play the steps of a branch."""
        for step in steps.split("+"):
            await self.do(step)

    async def do(self, step: str) -> None:
        """Play one step."""
        run = self._run
        match step[0]:
            case "c":
                for _ in range(int(step[1:])):
                    await self._say(f"<{self._chunks}>")
                    self._chunks += 1
            case "s":
                await asyncio.sleep(int(step[1:]) / 100)
            case "p":
                await run.status((Part(text="at it"),), progress=(self._chunks, 10))
            case "a":
                name = f"{self._branch}." if self._branch else "q"
                answer = await run.ask((Part(text=f"{name}{self._questions}"),))
                self._questions += 1
                await self._say(f"[{answer.text}]")
            case "t":
                name = f"{self._branch}.{self._steps}"
                self._steps += 1
                done = await run.step(Step(name), lambda key: self._execute(name))
                await self._say(f"({done.result[0].text})")
            case "m":
                key = f"{run.head.id}/{self._branch}"
                found = await self._memory.get(key)
                count = 0 if found is None else found.value
                await asyncio.sleep(
                    0.1
                )  # what was read is recorded meanwhile, so that nothing but the state is written next
                await self._memory.set(key, count + 1, if_version=0 if found is None else found.version)
                await self._say(f"|{count}|")
            case "z" | "Z":
                await run.sleep(Sleep(for_ms=10 * int(step[1:]), wake_on_message=step[0] == "Z"))
            case "d" | "D":
                _, agent, script = step.split(":")
                self._delegations += 1
                order = Delegation(
                    agent=agent,
                    parts=(Part(text=script.replace(",", " ")),),
                    number=0 if self._branch else self._delegations,
                    asks="pass" if step[0] == "d" else "raise",
                )
                try:
                    delegated = await run.delegate(order)
                except DelegationFailed as failed:
                    delegated = failed.delegated
                await self._say(outcome(delegated))

    async def _execute(self, name: str) -> StepDone:
        self._witness.executed(self._run, name)
        await asyncio.sleep(0.02)
        return StepDone((Part(text=f"{name}:{self._run.epoch}"),), "text")

    async def _say(self, text: str) -> None:
        artifact = Artifact(artifact_id=self._artifact, parts=(Part(text=text),))
        await self._run.artifact(artifact, append=True, last_chunk=False)


def sleeps(event: Event) -> bool:
    """Whether a task goes to sleep with an event."""
    return isinstance(event, StatusChanged) and event.placed is not None and event.placed.wakes_ms is not None


def branch_artifact(number: int) -> str:
    """The id of the artifact of a branch."""
    return f"{ARTIFACT}-{number}"


def lingers_s(script: str) -> float:
    """How long at most the agent of a script goes on when it is canceled."""
    return max((int(step[1:]) / 100 for step in script.split() if step[0] == "x"), default=0.0)


def outcome(delegated: Delegated) -> str:
    """The chunk with which an agent repeats the outcome of a delegation."""
    return "{" + (delegated.text if delegated.state is TaskState.COMPLETED else delegated.state.value) + "}"


def expected(log: list[Logged]) -> str | None:
    """The text of a completed task, by its script and by the answers and outcomes in its log.

    None if the log lacks an answer or an outcome that the script needs.
    """
    first = log[0].event
    assert isinstance(first, Submitted)
    answers = own_answers(log)
    delegated = {logged.event.number: logged.event for logged in log if isinstance(logged.event, Delegated)}
    stepped = executed(log)
    text, chunks, questions, delegations, steps, counted = "", 0, 0, 0, 0, 0
    for step in first.message.text.split():
        if step[0] == "c":
            text += "".join(f"<{number}>" for number in range(chunks, chunks + int(step[1:])))
            chunks += int(step[1:])
        elif step[0] == "a":
            if questions >= len(answers):
                return None
            text += f"[{answers[questions]}]"
            questions += 1
        elif step[0] == "t":
            if steps >= len(stepped):
                return None
            text += f"({stepped[steps].result[0].text})"
            steps += 1
        elif step[0] == "m":
            text += f"|{counted}|"
            counted += 1
        elif step[0] in "dD":
            delegations += 1
            if delegations not in delegated:
                return None
            text += outcome(delegated[delegations])
    return text


def executed(log: list[Logged]) -> list[Stepped]:
    """The steps in a log that the agent executed itself."""
    steps = (logged.event for logged in log if isinstance(logged.event, Stepped))
    return [step for step in steps if not step.name.startswith("$")]


def branches_differ(log: list[Logged], record: Record) -> str:
    """How the artifacts of branches differ from what their scripts say; empty if they do not.

    The branches may be asked in any order. Each answer is one of the caller's messages, and counts once.
    """
    first = log[0].event
    assert isinstance(first, Submitted)
    said = Counter(logged.event.message.text for logged in log if isinstance(logged.event, MessageReceived))
    done = Counter(step.result[0].text for step in executed(log))
    came = Counter(outcome(logged.event) for logged in log if isinstance(logged.event, Delegated))
    texts = {each.artifact_id: "".join(part.text or "" for part in each.parts) for each in record.artifacts}
    for number, steps in enumerate(branches_of(first.message.text), 1):
        text, chunks, counted = texts.get(branch_artifact(number), ""), 0, 0
        for step in steps.split("+"):
            for _ in range(int(step[1:]) if step[0] == "c" else step[0] in "adDtm"):
                found = re.match(r"<\d+>|\[[^\]]*\]|\{[^}]*\}|\([^)]*\)|\|\d+\|", text)
                piece = "" if found is None else found[0]
                text = text[len(piece) :]
                match step[0]:
                    case "c":
                        fits = piece == f"<{chunks}>"
                        chunks += 1
                    case "a":
                        fits = said[piece[1:-1]] > 0
                        said[piece[1:-1]] -= 1
                    case "m":
                        fits = piece == f"|{counted}|"
                        counted += 1
                    case "t":
                        fits = done[piece[1:-1]] > 0
                        done[piece[1:-1]] -= 1
                    case _:
                        fits = came[piece] > 0
                        came[piece] -= 1
                if not fits:
                    return f"branch {number} ({steps}) says {texts.get(branch_artifact(number))!r}"
        if text:
            return f"branch {number} ({steps}) says {text!r} in the end"
    return ""


def branches_of(script: str) -> list[str]:
    """The scripts of the branches of a script."""
    return [branch for step in script.split() if step[0] == "b" for branch in step.split("/")[1:]]


def expected_answer(script: str) -> str:
    """The text of a Message in which a script answers."""
    chunks = sum(int(step[1:]) for step in script.split() if step[0] == "c")
    return "".join(f"<{number}>" for number in range(chunks))


def own_answers(log: list[Logged]) -> list[str]:
    """The texts of the messages that answer the agent's own questions, or wait for one, in order."""
    answers: list[str] = []
    passes = False
    for logged in log:
        event = logged.event
        if isinstance(event, StatusChanged):
            asked = event.message if event.state in INTERRUPTED else None
            passes = asked is not None and bool(asked.reference_task_ids)
        elif isinstance(event, MessageReceived) and not passes:
            answers.append(event.message.text)
    return answers


def text_of(record: Record) -> str:
    """Everything that the agent gave out."""
    return "".join(part.text or "" for artifact in record.artifacts for part in artifact.parts)


def agents(witness: Witness, names: Collection[str]) -> Mapping[str, ScriptedAgent]:
    """The agents of one replica that run there."""
    return {name: ScriptedAgent(name, witness) for name in names if name != HIRED}
