"""What mypy --strict says to the author of an agent."""

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[3]

AGENT = """
from collections.abc import AsyncIterator, Iterator
from dragoman import Agent, Context, SyncContext
from dragoman.engine.api import Runner

agent = Agent("agent", description="Is checked")
runner: Runner = agent

@agent.skill
async def bare(ctx: Context) -> str:
    reveal_type(await ctx.ask("Which?"))
    return ""

@agent.skill("named", tags=["a"])
async def named(ctx: Context) -> AsyncIterator[dict[str, int]]:
    yield {}

@agent.skill
def plain(ctx: SyncContext) -> Iterator[bytes]:
    reveal_type(ctx.ask("Which?"))
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

async def forgot(ctx: Context) -> None:
    ctx.progress(1, 2)  # refused
"""


def checked(*files: Path) -> list[str]:
    out, err, _ = api.run(
        [
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--strict",
            "--enable-error-code",
            "unused-coroutine",
            *map(str, files),
        ]
    )
    assert not err, err
    return out.splitlines()


@pytest.mark.slow
def test_skills_keep_their_type_and_mistakes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    file = tmp_path / "agent.py"
    file.write_text(AGENT)
    lines = checked(file)
    revealed = [line.partition("Revealed type is ")[2].strip('"') for line in lines if "Revealed" in line]
    assert revealed == [
        "dragoman.agents.python.context.Answer",
        "dragoman.agents.python.context.Answer",
        "def (ctx: dragoman.agents.python.context.Context) -> typing.Coroutine[Any, Any, str]",
        "def (ctx: dragoman.agents.python.context.Context) -> typing.AsyncIterator[dict[str, int]]",
        "def (ctx: dragoman.agents.python.threads.SyncContext) -> typing.Iterator[bytes]",
    ]
    refused = {number for number, line in enumerate(AGENT.splitlines(), start=1) if "# refused" in line}
    errors = {int(found[1]) for line in lines if (found := re.search(r"agent\.py:(\d+): error", line))}
    assert errors == refused, "\n".join(lines)
