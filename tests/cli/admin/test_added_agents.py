"""`dragoman admin agents add|change|remove|…`: from the words of a command to the live agent."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec import Struct

from dragoman import Agent, Context
from dragoman.cli.admin.added_agents import _id_of
from dragoman.cli.entries import make_added_agent
from dragoman.server import serving
from tests.kit.commands import Ran, run_command
from tests.kit.places import quick, sqlite_url

KEY = base64.b64encode(bytes(32)).decode()
SECRET = "upstreams-secret"


def echo(name: str) -> Agent:
    agent = Agent(name)

    @agent.skill
    async def say(ctx: Context) -> str:
        """Says it again."""
        return ctx.text

    return agent


class Shell(Struct):
    """A shell beside a server, with the URL of another one that asks for a key."""

    upstream: str
    run: Callable[..., Awaitable[Ran]]


@pytest.fixture(scope="module")
async def shell(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shell]:
    folder = tmp_path_factory.mktemp("shell")
    own = quick(store=sqlite_url(folder), secret_key=KEY, agents_api_allow_hosts=("127.0.0.1",))
    async with (
        serving(quick(api_key=SECRET), [echo("weather")]) as upstream,
        serving(own, [echo("own")], make_added_agent) as url,
    ):

        async def run(*words: str, answer: str | None = None, **environ: str) -> Ran:
            given = ("admin", "agents", *words, "--store", own.store, "--server", url)
            operator = (folder / "dragoman.db.operator").read_text().strip()
            environ |= {"DRAGOMAN_OPERATOR_KEY": operator}
            return await asyncio.to_thread(run_command, folder, *given, answer=answer, **environ)

        yield Shell(f"{upstream}/agents/weather", run)


async def test_an_agent_is_looked_at_added_changed_brought_back_and_removed(shell: Shell) -> None:
    run, url = shell.run, shell.upstream
    looked = await run("add", url, "--dry-run", "--header", "x-api-key", "--key-env", "PARTNER", PARTNER=SECRET)
    assert (looked.status, looked.out.count("✓")) == (0, 3), looked
    assert "No agent was added" in (await run("added")).err
    made = await run(
        "add", url, "--header", "x-api-key", "--key-env", "PARTNER", "--set", "deadline_s=60", PARTNER=SECRET
    )
    assert (made.status, made.out.splitlines()[-1]) == (0, "weather is live, as version 1."), made
    changed = await run("change", "weather", "--name", "Weather", "--unset", "deadline_s", "-o", "json")
    assert json.loads(changed.out)["agent"] == {
        "run": f"a2a:{url}",
        "name": "Weather",
        "credentials": {"header": "x-api-key"},
    }
    assert (await run("restore", "weather", "1")).out == "weather is live, as version 3.\n"
    assert [row.split()[:2] for row in (await run("versions", "weather")).out.splitlines()[1:]] == [
        *(["3", "restored"], ["2", "changed"], ["1", "added"]),
    ]
    shown = await run("show", "weather")
    assert '"deadline_s": 60' in shown.out
    assert SECRET not in shown.out + changed.out
    stale = await run("remove", "weather", "--version", "2")
    assert (stale.status, "version: is 3 by now" in stale.err) == (1, True)
    gone = await run("remove", "weather")
    assert gone.out == "weather is removed: it takes no new task, and its tasks stay readable.\n"
    assert (await run("added", "-o", "name")).out == "weather\n"


async def test_an_agent_with_something_wrong_is_stored_only_by_force(shell: Shell) -> None:
    refused = await shell.run("add", shell.upstream, "--id", "locked", "--key-file", "-", answer="wrong\n")
    assert refused.status == 1
    assert "✗" in refused.out
    assert "nothing was stored: mend that, or use --force" in refused.err
    assert (await shell.run("show", "locked")).status == 1
    forced = await shell.run("add", shell.upstream, "--id", "locked", "--force", "--key-file", "-", answer="wrong\n")
    assert "locked is live, as version 1." in forced.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "https://x.example", "--header", "x-api-key"), "--header: goes with --key-env or --key-file"),
        (("add", "https://x.example", "--key-env", "NOT_THERE"), "this shell has no such variable"),
        (("add", "https://x.example", "--key-env", "A", "--key-file", "b"), "name one of them"),
        (("add", "https://x.example", "--forward", "--key-env", "PATH"), "--forward: goes without"),
        (("add", "https://x.example", "--key-file", "none"), "--key-file none cannot be read"),
        (("add", "https://x.example", "--set", "deadline_s"), "must be KEY=VALUE"),
        (("add", "https://x.example", "--set", "credentials.value=s3cr3t"), "which the process table would show"),
        (("add", "https://x.example", "--set", 'tools=[{credentials={value="s"}}]'), "--set tools: has a secret"),
        (("add", "https://x.example", "--set", "a=1", "--set", "a.b=2"), "a has a value already"),
        (("change", "weather"), "name what to change"),
    ],
)
async def test_words_that_make_no_agent_are_wrong_usage(shell: Shell, words: tuple[str, ...], said: str) -> None:
    done = await shell.run(*words, **({"A": "x"} if "A" in words else {}))
    assert (done.status, said in done.err) == (2, True), done


async def test_a_refusal_names_the_field(shell: Shell) -> None:
    done = await shell.run("add", "http://10.0.0.1/agents/x", "--set", "deadline_s=0")
    assert (done.status, "agent.deadline_s: must be a number of seconds" in done.err) == (1, True)
    done = await shell.run("add", "http://10.0.0.1/agents/x")
    assert "agent.run: names the host 10.0.0.1, which stands for a private address" in done.err
    done = await shell.run("add", "command:/bin/sh")
    assert done.status != 0


@pytest.mark.parametrize(
    ("url", "agent_id"),
    [
        ("https://partner.example.com/agents/weather", "weather"),
        ("https://agents.partner.example.com/", "partner"),
        ("openai:https://api.openai.com/v1", "openai"),
        ("a2a:https://x.example/a b/card.json", "a-b"),
    ],
)
def test_an_id_is_made_of_the_url(url: str, agent_id: str) -> None:
    assert _id_of(url) == agent_id


def test_the_page_of_the_commands_has_all_of_them() -> None:
    page = (Path(__file__).parents[3] / "docs" / "agents-api.md").read_text(encoding="utf-8")
    for word in ("add", "change", "remove", "added", "show", "versions", "restore"):
        assert f"dragoman admin agents {word}" in page
