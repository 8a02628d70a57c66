"""The agents of `dragoman demo-server`: one for each thing that a client meets.

Invariant: they need nothing but Dragoman, and give the same answer to the same message.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator

from dragoman import Agent, Artifact, Context, Part, Reject

STEPS_MAX = 1_000_000


def demo_agents() -> list[Agent]:
    """Make the agents. The first one is the default."""
    return [_echo(), _counter(), _booking(), _files(), _login(), _greeter(), _refuser(), _breaker()]


def _echo() -> Agent:
    agent = Agent("echo", description="Gives back every part of a message")

    @agent.skill("echo", tags=["demo"], examples=["Hello!"])
    async def echo(ctx: Context) -> tuple[Part, ...]:
        """Answers with the parts of the message: texts, files, data."""
        return ctx.parts

    return agent


def _counter() -> Agent:
    agent = Agent("counter", description="Counts up, with progress, until it is done or canceled", restartable=True)

    @agent.skill("count", tags=["demo", "streaming"], examples=["5", "20 every 0.1"])
    async def count(ctx: Context) -> AsyncIterator[str]:
        """Counts to the first number in the text, 5 without one; `every 0.1` sets the seconds a step takes."""
        every = re.search(r"every ([0-9]{1,6}(?:\.[0-9]{1,6})?)", ctx.text)
        last = re.search(r"[0-9]{1,7}", ctx.text.replace(every[0], "") if every else ctx.text)
        total, step_s = min(int(last[0]) if last else 5, STEPS_MAX), float(every[1]) if every else 1.0
        for step in range(1, total + 1):
            await ctx.progress(step, total, f"Step {step} of {total}")
            await asyncio.sleep(step_s)
            yield f"{step}\n"

    return agent


def _booking() -> Agent:
    agent = Agent("booking", description="Asks for what it must know before it books")

    @agent.skill("book", tags=["demo", "questions"], examples=["Book me a trip"])
    async def book(ctx: Context) -> str:
        """Asks from where and to where, then books."""
        start = await ctx.ask("From where?")
        goal = await ctx.ask("To where?")
        return f"Booked: from {start} to {goal}"

    return agent


def _files() -> Agent:
    agent = Agent("papers", description="Takes files, and gives files back")

    @agent.skill("files", tags=["demo", "files"], examples=["Give me a file"])
    async def give_files(ctx: Context) -> AsyncIterator[Artifact]:
        """Gives each file back with its name, size and SHA-256; without one, a small text file."""
        given = ctx.files or (Part(raw=b"Hello from Dragoman.\n", filename="hello.txt", media_type="text/plain"),)
        for number, file in enumerate(given, start=1):
            about: dict[str, str | int | None] = {"name": file.filename, "url": file.url}
            if file.raw is not None:
                digest = hashlib.sha256(file.raw).hexdigest()
                about = {"name": file.filename, "size": len(file.raw), "sha256": digest}
            yield Artifact(artifact_id=f"file-{number}", name=file.filename, parts=(file, Part(data=about)))

    return agent


def _login() -> Agent:
    agent = Agent("login", description="Works only for callers who have logged in elsewhere")

    @agent.skill("login", tags=["demo", "authentication"], examples=["What is in my mailbox?"])
    async def log_in(ctx: Context) -> str:
        """Asks the caller to log in, and believes the next message."""
        await ctx.require_auth("Log in, then send any message")
        return "You are logged in"

    return agent


def _greeter() -> Agent:
    agent = Agent("greeter", description="Answers with a message, and makes no task", direct=True)

    @agent.skill("greet", tags=["demo", "message"], examples=["Ada"])
    async def greet(ctx: Context) -> str:
        """Greets the person that the text names."""
        return f"Hello, {ctx.text or 'stranger'}!"

    return agent


def _refuser() -> Agent:
    agent = Agent("refuser", description="Rejects every task")

    @agent.skill("refuse", tags=["demo", "errors"], examples=["Please"])
    async def refuse(ctx: Context) -> None:
        """Rejects the task before any work."""
        raise Reject("This agent does nothing for anybody")

    return agent


def _breaker() -> Agent:
    agent = Agent("breaker", description="Fails every task")

    @agent.skill("break", tags=["demo", "errors"], examples=["Anything"])
    async def fail(ctx: Context) -> None:
        """Raises an exception, which its caller does not see."""
        raise RuntimeError("this agent always fails")

    return agent
