"""The command line: what it shows, what it refuses, and what the server says once it listens."""

import json
import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from dragoman.cli import main
from dragoman.cli.loader import load_served
from dragoman.cli.serve import banner, base_url
from dragoman.cli.version import describe_version
from dragoman.config import AgentEntry, Config, settings
from dragoman.engine.api import Run, Runner, Traits
from dragoman.model.card import AgentSkill, Profile
from tests.kit import commands


class Scripted(Runner):
    """An agent that is only looked at."""

    traits = Traits()

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    async def run(self, run: Run) -> None:
        """Nothing to do."""


def scripted(agent_id: str, *examples: str) -> Scripted:
    skill = AgentSkill(id="s", name="S", description="", tags=(), examples=examples)
    return Scripted(Profile(id=agent_id, name=agent_id, description="", version="1", skills=(skill,)))


@pytest.fixture
def serve(run: commands.Run) -> commands.Run:
    """Runs `dragoman serve` with these arguments in a directory without a configuration."""
    return partial(run, "serve")


def test_the_version_is_shown_with_the_commit() -> None:
    shown = commands.invoke("--version").output
    assert shown == f"dragoman {describe_version()}\n"


def test_help_lists_every_setting_with_flag_variable_default_and_meaning(serve: commands.Run) -> None:
    # Lines are also broken after a hyphen within a word.
    shown = " ".join(re.sub(r"(?<=\w-)\n\s+", "", serve("--help-all").output).split())
    listed = serve("--help").output.split()
    for setting in settings():
        assert f" {setting.flag} " in shown
        assert setting.flag in listed
        default = f"; default: {setting.default}" if setting.default else ""
        assert f"{setting.help} [{setting.env}{default}]" in shown


def test_help_lists_no_flag_that_is_not_a_setting() -> None:
    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    flags = {option.name for option in options if not option.hidden}
    assert flags == {setting.name for setting in settings()} | {"file", "reload", "help_all"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--port", "x"), "command line: --port = 'x': must be a whole number"),
        (("--port", ""), "command line: --port = '': must be a whole number"),
        (("--host", "0.0.0.0"), "no agents: name one as MODULE:OBJECT"),
        (("--config", "absent.toml"), "absent.toml: no such file in "),
        (("absent:agent",), "absent:agent: no module 'absent'"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_line_that_says_why(
    serve: commands.Run, arguments: tuple[str, ...], said: str
) -> None:
    result = serve(*arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


def test_the_usual_file_is_read_if_it_is_there(serve: commands.Run) -> None:
    Path("dragoman.toml").write_text("prot = 80\n", encoding="utf-8")
    assert "dragoman.toml: prot = 80: no such setting; did you mean port?" in serve().output


def test_the_file_that_the_environment_names_is_read(serve: commands.Run) -> None:
    result = serve(DRAGOMAN_CONFIG="other.toml")
    assert "other.toml: no such file in " in result.output


@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({}, False),
        ({"secret_key": "x"}, True),
        ({"secret_key_file": "x"}, True),
        ({"agents_api_allow_hosts": ("agents.internal",)}, True),
        ({"secret_key": "x", "profile": "beeos"}, False),  # such a server has no admin API
        ({"secret_key": "x", "tasks": False}, False),
    ],
)
def test_a_server_begins_without_agents_if_operators_can_add_them(settings: dict[str, Any], begins: bool) -> None:
    config = Config(**settings)
    assert config.begins_empty is begins
    if begins:
        assert load_served((), (), "added-later", none=config.begins_empty).agents == ()
        assert "  It serves the agents that operators add: dragoman admin agents add URL" in banner(config, [])


def test_the_banner_names_every_agent_with_its_url_and_the_default() -> None:
    said = banner(Config(port=8000), [scripted("echo"), scripted("countdown")]).splitlines()
    assert "  echo       http://127.0.0.1:8000/agents/echo  (default: http://127.0.0.1:8000/)" in said
    assert "  countdown  http://127.0.0.1:8000/agents/countdown" in said


def test_the_banner_has_commands_that_a_shell_reads_as_they_are_meant() -> None:
    said = banner(Config(), [scripted("echo", 'It\'s "me"'), scripted("countdown", "3")])
    commands = {line.partition(":")[0]: shlex.split(line.partition(":")[2]) for line in said.splitlines()}
    assert commands["Card"] == ["curl", "http://127.0.0.1:7870/.well-known/agent-card.json"]
    assert commands["Send"][1] == "http://127.0.0.1:7870/message:send"
    assert json.loads(commands["Send"][-1])["message"]["parts"] == [{"text": 'It\'s "me"'}]
    assert commands["Stream"][1:3] == ["-N", "http://127.0.0.1:7870/agents/countdown/message:stream"]
    assert json.loads(commands["Stream"][-1])["message"]["parts"] == [{"text": "3"}]
    assert commands["Chat"] == ["dragoman", "chat", "-a", "http://127.0.0.1:7870"]


def test_the_commands_have_a_key_where_an_agent_wants_one_and_do_not_tell_it() -> None:
    own = Config(agents=(AgentEntry(id="countdown", run="m:o", api_key="s3cret"),))
    agents = [scripted("echo"), scripted("countdown")]
    assert [line.split(":")[0] for line in banner(own, agents).splitlines() if "YOUR-KEY" in line] == ["Stream"]
    assert "Callers need no key, but for callers of countdown." in banner(own, agents)
    said = banner(Config(api_key="s3cret"), agents, asks_callers=True)
    assert [line.split(":")[0] for line in said.splitlines() if "YOUR-KEY" in line] == ["Send", "Stream", "Chat"]
    assert "s3cret" not in said
    assert "with the key of the setting api_key, or a key made by `dragoman keys create NAME`" in said
    in_memory = banner(Config(api_key="s3cret", store="memory:"), agents, asks_callers=True)
    assert "Callers must authenticate, with the key of the setting api_key.\n" in in_memory
    tokens = banner(Config(jwt_issuer="https://x.org"), agents, asks_callers=True)
    assert "a token of the issuer" in tokens


def test_its_commands_begin_with_the_program_as_it_was_started() -> None:
    shown = banner(Config(), [scripted("echo")], command="'my venv/bin/dragoman'")
    assert "Chat:    'my venv/bin/dragoman' chat -a http://127.0.0.1:7870" in shown
    assert "To require one: 'my venv/bin/dragoman' keys create NAME" in shown


def test_the_link_to_the_console_has_the_token_of_a_server_that_asks_nobody() -> None:
    def link(config: Config, **more: Any) -> list[str]:
        lines = banner(config, [scripted("echo")], **more).splitlines()
        return [line for line in lines if line.startswith("Console:")]

    assert link(Config(), token="dgo_x") == ["Console: http://127.0.0.1:7870/console#token=dgo_x"]
    assert link(Config(), token_file=Path("data/x.operator")) == [
        "Console: http://127.0.0.1:7870/console (its token is in data/x.operator)"
    ]
    by_key = ["Console: http://127.0.0.1:7870/console (it takes a key of the role operator)"]
    assert link(Config(), asks_callers=True, token_file=Path("x")) == by_key
    assert link(Config(), asks_callers=True, token="dgo_x") == by_key
    assert link(Config()) == by_key
    assert link(Config(), token="x", console_built=False) == [
        "Console: http://127.0.0.1:7870/console#token=x (it is being built, and is there in a moment)"
    ]
    assert link(Config(), token_file=Path("x"), console_built=False) == [
        "Console: http://127.0.0.1:7870/console (it is being built, and is there in a moment; its token is in x)"
    ]
    assert link(Config(store="memory:"), asks_callers=True) == ["Console: http://127.0.0.1:7870/console"]
    assert link(Config(console=False), token="dgo_x") == []
    assert link(Config(profile="kaos"), token="dgo_x") == []


def test_where_callers_reach_it_and_where_it_listens_are_both_shown() -> None:
    said = banner(Config(public_url="https://x.org/a", port=7870), [scripted("echo")])
    assert "listens on http://127.0.0.1:7870/, which callers know as https://x.org/a/, and keeps" in said
    assert "curl https://x.org/a/message:send" in said
    assert "callers know" not in banner(Config(), [scripted("echo")])


@pytest.mark.parametrize(
    ("config", "url"),
    [
        (Config(host="::1", port=1), "http://[::1]:1"),
        (Config(host="0.0.0.0", port=1), "http://127.0.0.1:1"),
        (Config(public_url="https://x.org/a"), "https://x.org/a"),
    ],
)
def test_the_base_url_is_one_that_a_caller_can_use(config: Config, url: str) -> None:
    assert base_url(config) == url
