"""`tools = [{ run = "mcp:…" }]` in the file, and the tools that it makes."""

import re
import sys
from pathlib import Path

import pytest

from dragoman.agents.model.agent import ChatAgent
from dragoman.cli.loader import load_agents
from dragoman.cli.references import AgentReferenceError
from dragoman.config import ConfigError, load
from dragoman.config.agents import AgentEntry
from dragoman.config.models import McpEntry

HEAD = '[[agents]]\nid = "m"\nrun = "openai:http://127.0.0.1:9/v1"\nmodel = "x"\n'
URL = 'run = "mcp:https://mcp.files.example/mcp"'


def read(tmp_path: Path, text: str) -> AgentEntry:
    (tmp_path / "d.toml").write_text(HEAD + text)
    return load(tmp_path / "d.toml", {}, {}).agents[0]


def servers(tmp_path: Path, text: str) -> tuple[McpEntry, ...]:
    model = read(tmp_path, text).model
    assert model is not None
    return model.tools


def test_a_server_by_its_url(tmp_path: Path) -> None:
    lists = 'allow = ["search"], approve = ["delete"], at_most_once = ["pay"]'
    text = f'tools = [{{ {URL}, credentials = {{ env = "KEY" }}, {lists} }}]'
    (server,) = servers(tmp_path, text)
    assert (server.url, server.name, server.command) == ("https://mcp.files.example/mcp", "files", ())
    assert (server.allow, server.approve, server.at_most_once) == (("search",), ("delete",), ("pay",))


def test_a_server_that_is_a_program_as_a_table_of_its_own(tmp_path: Path) -> None:
    text = '[[agents.tools]]\nrun = "mcp:command:npx -y server --root \'/a b\'"\nenv = ["TOKEN"]\napprove = "always"\n'
    (server,) = servers(tmp_path, text)
    assert (server.command, server.name) == (("npx", "-y", "server", "--root", "/a b"), "npx")
    assert (server.env, server.approve, server.url) == (("TOKEN",), "always", "")


def test_servers_have_names_that_differ(tmp_path: Path) -> None:
    text = f'tools = [{{ {URL} }}, {{ {URL} }}, {{ {URL}, name = "other" }}, {{ run = "mcp:http://127.0.0.1:80/" }}]'
    assert [server.name for server in servers(tmp_path, text)] == ["files", "files2", "other", "127-0-0-1"]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("", "agents[0].tools[0].run: must be mcp:"),
        ('run = "https://secret"', "must be mcp:"),
        ('run = "mcp:ftp://x"', "must be mcp:"),
        ('run = "mcp:command:"', "must be mcp:"),
        ('run = "mcp:command:x \'"', "a quote that is not closed"),
        (f"{URL}, aprove = []", "did you mean approve?"),
        (f'{URL}, approve = "maybe"', 'must be "always", "never" or a list of names of tools'),
        (f'{URL}, at_most_once = "once"', 'must be "hints", "always", "never" or a list of names of tools'),
        (f"{URL}, allow = [1]", "must be a list of names of tools"),
        (f'{URL}, env = ["A"]', "is for mcp:command:… only"),
        (f'{URL}, name = "a b"', "must be 1 to 24 letters"),
        (f"{URL}, call_s = 0", "must be a number of seconds"),
        (f"{URL}, task_s = 2592001", "must be a number of seconds from 0.1 to 2592000"),
        (f'{URL}, elicitation = "no"', "must be true or false"),
        (f'{URL}, credentials = "secret"', "must be one of {"),
        (f"{URL}, credentials = {{ forward = true }}", "must be one of {"),
        (f'{URL}, credentials = {{ env = "not a name" }}', "must be one of {"),
        (f"{URL}, credentials = {{ exchange = true }}", "an exchange needs token_url, client_id, env, and"),
        ('run = "mcp:command:x", credentials = { env = "A" }', "name the variable in `env`"),
        ('run = "mcp:https://u:hidden@host"', "must not hold a password"),
        (f'{URL}, name = "a" }}, {{ {URL}, name = "a"', "names must differ"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, table: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)) as raised:
        read(tmp_path, f"tools = [{{ {table} }}]")
    assert "hidden" not in str(raised.value)


def test_tools_are_for_models_only(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text('[[agents]]\nid = "w"\nrun = "worker"\ntools = []\n')
    with pytest.raises(ConfigError, match="is for agents with run"):
        load(tmp_path / "d.toml", {}, {})


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (f'{URL}, credentials = {{ env = "NOT_THERE" }}', "the environment has no NOT_THERE"),
        (f'run = "mcp:command:{sys.executable}", env = ["NOT_THERE"]', "the environment has no NOT_THERE"),
        ('run = "mcp:command:no-such-program-at-all"', "the program no-such-program-at-all was not found"),
    ],
)
def test_what_is_not_there_is_told_at_the_start(
    tmp_path: Path, table: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    entry = read(tmp_path, f"tools = [{{ {table} }}]")
    with pytest.raises(AgentReferenceError, match=told):
        load_agents((entry,), (), None)


def test_a_model_gets_its_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "hidden")
    text = f'step_uncertain = "ask"\ntools = [{{ {URL}, credentials = {{ env = "KEY" }} }}]'
    (agent,) = load_agents((read(tmp_path, text),), (), None)
    assert isinstance(agent, ChatAgent)
    assert agent.traits.step_uncertain == "ask"
    assert "hidden" not in repr(vars(agent))
