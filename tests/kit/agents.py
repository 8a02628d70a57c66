"""Agents that do one thing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from dragoman import Agent, Context
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.model.card import AgentSkill
from tests.kit.values import profile


def echoing(agent_id: str = "echo", *, prefix: str = "", skill: str = "give_back", **options: Any) -> Agent:
    """Gives back the text, after the prefix. `options` are those of `Agent`."""
    agent = Agent(agent_id, **options)

    @agent.skill(skill)
    async def give_back(ctx: Context) -> str:
        """Say it again."""
        return f"{prefix}{ctx.text}"

    return agent


def asking(agent_id: str = "ask", question: str = "Which?", **options: Any) -> Agent:
    """Asks, and gives back the answer. `{}` in the question is the text of the message."""
    agent = Agent(agent_id, **options)

    @agent.skill
    async def wait(ctx: Context) -> str:
        """Ask, so that the task stays open."""
        return await ctx.ask(question.format(ctx.message.text))

    return agent


def reporting(agent_id: str = "auto", **options: Any) -> Agent:
    """Answers with a message where it may, and with a task if the text begins with `report`."""
    agent = Agent(agent_id, direct="auto", **options)

    @agent.skill("auto")
    async def decide(ctx: Context) -> AsyncIterator[str]:
        """Answers with a message, and with a task if it is to report."""
        if ctx.text.startswith("report"):
            await ctx.status("reporting")
        yield ctx.text

    return agent


class Pacer:
    """An agent that gives out a chunk each time it is let on, and ends when it is given None."""

    def __init__(self, agent_id: str = "gate") -> None:
        self.steps: asyncio.Queue[str | None] = asyncio.Queue()
        self.started = asyncio.Event()
        self.canceled = asyncio.Event()
        self.agent = Agent(agent_id)
        self.agent.skill(self.chunks)

    async def chunks(self, ctx: Context) -> AsyncIterator[str]:
        """Give out what is put in."""
        self.started.set()
        try:
            while (step := await self.steps.get()) is not None:
                yield step
        except asyncio.CancelledError:
            self.canceled.set()
            raise

    def put(self, *steps: str | None) -> None:
        """The next chunks, or the end."""
        for step in steps:
            self.steps.put_nowait(step)


class Endless:
    """An agent that says "so far" and works until it is stopped. Asked to `ask`, it asks "Which one?" instead."""

    def __init__(self, agent_id: str = "stage") -> None:
        self.begun = asyncio.Event()
        self.stopped = asyncio.Event()
        self._id = agent_id

    def agent(self) -> Agent:
        """One for each server."""
        agent = Agent(self._id)

        @agent.skill
        async def play(ctx: Context) -> AsyncIterator[str]:
            """Do as told."""
            if ctx.text == "ask":
                yield await ctx.ask("Which one?")
                return
            yield "so far"
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()

        return agent


def hired(agent_id: str, *skills: AgentSkill, **options: Any) -> WorkerAgent:
    """An agent whose tasks workers do; they wait in a queue while there is none."""
    return WorkerAgent(profile(agent_id, *skills), **{"queues": True, **options})
