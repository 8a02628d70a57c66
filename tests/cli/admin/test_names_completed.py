"""Completion of names: agents, tasks, keys and hosts, asked of a running server and of its store."""

import asyncio
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from dragoman.cli import main
from tests.cli.admin.site import OURS, Site, site


async def complete(*words: str) -> dict[str, str]:
    """What completes the last word after the words before it, with what a shell shows beside each."""
    *before, last = words
    asked = ShellComplete(main, {}, "dragoman", "_DRAGOMAN_COMPLETE")
    items = await asyncio.to_thread(asked.get_completions, before, last)
    return {item.value: item.help or "" for item in items if item.type == "plain"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to complete in, without settings of the one who tests."""
    for name in (*OURS, "A2ACLI_AGENT_CARD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_names_are_those_of_the_server_and_its_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(folder) as here:
        monkeypatch.setenv("DRAGOMAN_STORE", here.store)
        await here.run("webhooks", "pause", "hooks.example.org")
        assert set(await complete("admin", "agents", "drain", "")) == {"echo", "other"}
        assert await complete("admin", "agents", "drain", "ot") == {"other": "other"}
        tasks = {here.echo: "input-required: one[2J", here.other: "input-required: two"}
        assert await complete("admin", "tasks", "show", "") == tasks
        assert await complete("admin", "tasks", "show", "nothing") == {}
        assert await complete("webhooks", "resume", "hook") == {"hooks.example.org": "paused"}
        assert await complete("keys", "show", "") == {}
        await check_agents_of_clients(here)


async def check_agents_of_clients(here: Site) -> None:
    """The client's commands offer the local agents, and the tasks at the one that is named."""
    named = await complete("send", "-a", here.url)
    assert set(named) == {here.url, f"{here.url}/agents/echo", f"{here.url}/agents/other"}
    begun = here.url.removeprefix("http://")
    assert set(await complete("send", "-a", f"{begun}/agents/e")) == {f"{begun}/agents/echo"}
    assert await complete("task", "get", "-a", f"{here.url}/agents/echo", "") == {
        here.echo: "TASK_STATE_INPUT_REQUIRED"
    }
    assert await complete("task", "get", "-a", "http://127.0.0.1:9", "") == {}


async def test_nobody_who_knows_is_no_error_and_makes_no_store(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (("admin", "agents", "drain"), ("admin", "tasks", "show"), ("keys", "show"), ("webhooks", "resume")):
        assert await complete(*words, "") == {}
    tokens = folder / ".config" / "a2a-cli" / "tokens.json"
    tokens.parent.mkdir(parents=True)
    tokens.write_text("{}")
    tokens.chmod(0o644)  # which the command itself warns of
    assert await complete("send", "-a", "") == {}
    (folder / "dragoman.toml").write_text("prot = 1\n")
    assert await complete("keys", "show", "") == {}
    assert {path.name for path in folder.iterdir()} == {"dragoman.toml", ".config"}
    assert capfd.readouterr() == ("", "")
