"""Agents to look at and to try: `dragoman serve examples/agents.py`.

Each shows one thing that an agent can do. The first one answers at `/`.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator

from dragoman import Agent, Artifact, Context, Part, Reject

# Returns: the return value becomes an artifact, and the task is completed.
echo = Agent("echo", description="Gives back what it gets")


@echo.skill("echo", tags=["example"], examples=["Hello!"])
async def give_back(ctx: Context) -> tuple[Part, ...]:
    """Answers with the parts of the message: texts, files, data."""
    words = len(ctx.text.split())
    ctx.usage(input=words, output=words)
    return ctx.parts


# Yields: every chunk reaches the caller at once. Canceling the task stops the function where it waits. It may be run
# again after a crash, because counting twice does no harm.
countdown = Agent("countdown", description="Counts down, one step a second", restartable=True)


@countdown.skill("countdown", tags=["example", "streaming"], examples=["5", "Count down from 20 every 0.5 s"])
async def count_down(ctx: Context) -> AsyncIterator[str]:
    """Counts down from the first number in the text (5 without one); `every 0.1` sets the seconds a step takes."""
    every = re.search(r"every ([0-9]{1,6}(?:\.[0-9]{1,6})?)", ctx.text)
    start = re.search(r"[0-9]{1,6}", ctx.text.replace(every[0], "") if every else ctx.text)
    total, step_s = int(start[0]) if start else 5, float(every[1]) if every else 1.0
    for step in range(1, total + 1):
        await ctx.progress(step, total, f"Step {step} of {total}")
        await asyncio.sleep(step_s)
        yield f"{total - step + 1}\n"


# Asks: the task waits for its caller, even across a restart of the server.
trip = Agent("trip", description="Books a trip, and asks for what it must know")


@trip.skill("book", tags=["example", "conversation"], examples=["Book me a trip"])
async def book(ctx: Context) -> str:
    """Asks from where and to where, then books."""
    start = await ctx.ask("From where?")
    goal = await ctx.ask("To where?")
    return f"Booked: from {start} to {goal}"


# Files: as parts of the message, and as artifacts with names.
papers = Agent("papers", description="Takes files and gives files")


@papers.skill("files", tags=["example", "files"], examples=["Give me a file"])
async def give_files(ctx: Context) -> AsyncIterator[Artifact]:
    """Gives each file back with its name, size and SHA-256; without one, a small text file."""
    given = ctx.files or (Part(raw=b"Hello from Dragoman.\n", filename="hello.txt", media_type="text/plain"),)
    for number, file in enumerate(given, start=1):
        facts: dict[str, str | int | None] = {"name": file.filename, "url": file.url}
        if file.raw is not None:
            facts = {"name": file.filename, "size": len(file.raw), "sha256": hashlib.sha256(file.raw).hexdigest()}
        yield Artifact(artifact_id=f"file-{number}", name=file.filename, parts=(file, Part(data=facts)))


# Asks for authentication, out of band; any next message resumes the task.
login = Agent("login", description="Works only for those who have logged in")


@login.skill("login", tags=["example", "authentication"], examples=["What is in my mailbox?"])
async def log_in(ctx: Context) -> str:
    """Asks the caller to log in, and believes the next message."""
    await ctx.require_auth("Log in, then send any message")
    return "You are logged in"


# Raises: the task fails. The caller gets a reference; the text of the exception stays in the server's log.
fail = Agent("fail", description="Always fails")


@fail.skill("fail", tags=["example", "errors"], examples=["Try it"])
async def raise_error(ctx: Context) -> None:
    """Raises an exception."""
    raise RuntimeError("this agent always fails")


# Rejects: the caller is told why.
reject = Agent("reject", description="Rejects everything")


@reject.skill("reject", tags=["example", "errors"], examples=["Would you?"])
async def refuse(ctx: Context) -> None:
    """Rejects the task."""
    raise Reject("This agent takes no tasks")
