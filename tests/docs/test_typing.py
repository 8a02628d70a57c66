"""The remarks of mypy --strict for authors of agents, and for callers: in one run, which takes seconds to begin."""

import re
from pathlib import Path

import pytest
from mypy import api

from tests.agents.python.test_docs import code

ROOT = Path(__file__).parents[2]

AGENT = """
from collections.abc import AsyncIterator, Iterator
from dragoman import Agent, Context, SyncContext
from dragoman.engine.api import Runner

agent = Agent("agent", description="Is checked")
runner: Runner = agent

async def fetch(word: str) -> bytes:
    return word.encode()

def count(word: str) -> int:
    return len(word)

@agent.skill
async def bare(ctx: Context) -> str:
    reveal_type(await ctx.ask("Which?"))
    reveal_type(await ctx.step("fetch", fetch, "x", key="1"))
    reveal_type(await ctx.step("count", count, "x", retries=2))
    return ""

@agent.skill("named", tags=["a"])
async def named(ctx: Context) -> AsyncIterator[dict[str, int]]:
    yield {}

@agent.skill
def plain(ctx: SyncContext) -> Iterator[bytes]:
    reveal_type(ctx.ask("Which?"))
    reveal_type(ctx.step("fetch", fetch, "x", key="1"))
    reveal_type(ctx.step("count", count, "x", retries=2))
    yield b""

@agent.skill
async def finishing(ctx: Context) -> str:
    if ctx.text:
        await ctx.finish([ctx.text, b""])
    await ctx.fail("No")

@agent.skill
def finishing_in_a_thread(ctx: SyncContext) -> str:
    ctx.finish("Done")

reveal_type(bare)
reveal_type(named)
reveal_type(plain)

@agent.skill  # refused
def wrong_context(ctx: Context) -> str:
    return ""

@agent.skill("two")  # refused
async def two(ctx: Context, city: str) -> str:
    return ""

@agent.skill("tags", tags=7)  # refused
async def tags(ctx: Context) -> None: ...

@agent.skill
def wrong_option(ctx: SyncContext) -> None:
    ctx.step("count", count, "x", retries="2")  # refused

async def forgot(ctx: Context) -> None:
    ctx.progress(1, 2)  # refused
"""

CALLER = """
from dragoman.client.sync import connect
from dragoman.client.conversation import Reply
with connect("https://x.example", timeouts=None) as agent:  # refused
    agent.send(3)  # refused
    reply: Reply = agent.conversation().say("x")
    agent.webhooks.get()  # refused
    for update in agent.stream("x"):
        update.nothing  # refused
"""


@pytest.fixture(scope="module")
def remarks(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines that mypy writes of an agent, of a caller, and of the code in docs/agents.md."""
    directory = tmp_path_factory.mktemp("typed")
    files = {"agent.py": AGENT, "caller.py": CALLER, "agents_in_docs.py": code()}
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--strict", "--enable-error-code", "unused-coroutine"]
    with pytest.MonkeyPatch.context() as here:
        here.chdir(ROOT)
        out, err, _ = api.run([*options, *(str(directory / name) for name in files)])
    assert not err, err
    return out.splitlines()


def errors_in(file: str, remarks: list[str]) -> set[int]:
    return {int(found[1]) for line in remarks if (found := re.search(rf"/{file}:(\d+): error", line))}


def refused_in(text: str) -> set[int]:
    return {number for number, line in enumerate(text.splitlines(), start=1) if "# refused" in line}


@pytest.mark.slow
def test_skills_keep_their_type_and_mistakes_are_found(remarks: list[str]) -> None:
    revealed = [line.partition("Revealed type is ")[2].strip('"') for line in remarks if "Revealed" in line]
    assert revealed == [
        *("dragoman.agents.python.context.Answer", "bytes", "int"),
        *("dragoman.agents.python.context.Answer", "bytes", "int"),
        "def (ctx: dragoman.agents.python.context.Context) -> typing.Coroutine[Any, Any, str]",
        "def (ctx: dragoman.agents.python.context.Context) -> typing.AsyncIterator[dict[str, int]]",
        "def (ctx: dragoman.agents.python.sync_context.SyncContext) -> typing.Iterator[bytes]",
    ]
    assert errors_in("agent.py", remarks) == refused_in(AGENT), "\n".join(remarks)


@pytest.mark.slow
def test_a_blocking_caller_is_told_of_wrong_parameters(remarks: list[str]) -> None:
    assert errors_in("caller.py", remarks) == refused_in(CALLER), "\n".join(remarks)


@pytest.mark.slow
def test_the_code_in_the_documentation_is_typed(remarks: list[str]) -> None:
    assert errors_in("agents_in_docs.py", remarks) == set(), "\n".join(remarks)
