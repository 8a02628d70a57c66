"""Agents that do what the caller's message says, so that a checker knows what they must have written.

A script is a list of steps, separated by blanks: `c3` gives out three chunks, `s20` sleeps for 20 hundredths of a
second, `p` reports progress, `a` asks a question, `d:other:c2,a` delegates the script `c2 a` to `other` (with `D` its
questions are not passed on), `x30` goes on for 30 hundredths of a second when it is canceled, `f` fails, `r` rejects.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

from dragoman.engine.api import Delegation, DelegationFailed, DirectMode, Reject, Run, Runner, Traits
from dragoman.model.card import AgentSkill, Profile
from dragoman.model.events import Delegated, Logged, MessageReceived, StatusChanged, Submitted
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


class ScriptedAgent(Runner):
    """See `engine.api.Runner`. `begun` is told of each run."""

    def __init__(self, name: str, begun: Callable[[Run], None]) -> None:
        self.profile = Profile(
            id=name,
            name=name,
            description="A scripted agent",
            version="1",
            skills=(AgentSkill(id="play", name="Play", description="Plays a script", tags=()),),
        )
        self.traits = Traits(restartable=AGENTS[name], direct=ANSWERS.get(name, False))
        self._begun = begun

    async def run(self, run: Run) -> None:
        """Play the script."""
        self._begun(run)
        lingers_s = 0.0
        chunks = questions = delegations = 0
        try:
            for step in run.message.text.split():
                match step[0]:
                    case "c":
                        for _ in range(int(step[1:])):
                            await _say(run, f"<{chunks}>")
                            chunks += 1
                    case "s":
                        await asyncio.sleep(int(step[1:]) / 100)
                    case "p":
                        await run.status((Part(text="at it"),), progress=(chunks, 10))
                    case "a":
                        answer = await run.ask((Part(text=f"q{questions}"),))
                        questions += 1
                        await _say(run, f"[{answer.text}]")
                    case "d" | "D":
                        _, agent, script = step.split(":")
                        delegations += 1
                        asks = "pass" if step[0] == "d" else "raise"
                        order = Delegation(
                            agent=agent,
                            parts=(Part(text=script.replace(",", " ")),),
                            number=delegations,
                            asks=asks,  # type: ignore[arg-type]
                        )
                        try:
                            delegated = await run.delegate(order)
                        except DelegationFailed as failed:
                            delegated = failed.delegated
                        await _say(run, outcome(delegated))
                    case "x":
                        lingers_s = int(step[1:]) / 100
                    case "f":
                        raise Broken(run.head.id)
                    case "r":
                        raise Reject("not this one")
        except asyncio.CancelledError:
            if lingers_s:
                await asyncio.sleep(lingers_s)
            raise


async def _say(run: Run, text: str) -> None:
    await run.artifact(Artifact(artifact_id=ARTIFACT, parts=(Part(text=text),)), append=True, last_chunk=False)


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
    text, chunks, questions, delegations = "", 0, 0, 0
    for step in first.message.text.split():
        if step[0] == "c":
            text += "".join(f"<{number}>" for number in range(chunks, chunks + int(step[1:])))
            chunks += int(step[1:])
        elif step[0] == "a":
            if questions >= len(answers):
                return None
            text += f"[{answers[questions]}]"
            questions += 1
        elif step[0] in "dD":
            delegations += 1
            if delegations not in delegated:
                return None
            text += outcome(delegated[delegations])
    return text


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


def agents(begun: Callable[[Run], None], names: Collection[str]) -> Mapping[str, ScriptedAgent]:
    """The agents of one replica that run there."""
    return {name: ScriptedAgent(name, begun) for name in names if name != HIRED}
