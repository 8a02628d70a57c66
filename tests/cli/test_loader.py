"""Reading agents again: what is as it was is the same object, and what changed is not."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.agents.python.agent import Agent
from dragoman.cli.loader import LoadedAgents, load_served
from dragoman.cli.references import AgentReferenceError
from dragoman.config import AgentEntry, load
from dragoman.engine.api import Runner

HOUSE = """
from dragoman import Agent

from neighbour import WORD

echo = Agent("echo", description=WORD)


@echo.skill
async def say(ctx):
    return WORD
"""

FILE = """
[[agents]]
id = "echo"
run = "rooms.house:echo"

[[agents]]
id = "far"
run = "worker"

[[agents]]
id = "partner"
run = "a2a:http://127.0.0.1:9/"
"""


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AgentEntry, ...]]:
    """Tables of three kinds, in a directory with a package and a module beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    there = set(sys.modules)
    Path("rooms").mkdir()
    Path("rooms/house.py").write_text(HOUSE)
    Path("neighbour.py").write_text('WORD = "one"\n')
    Path("dragoman.toml").write_text(FILE)
    yield load(Path("dragoman.toml"), {}, {}).agents
    for name in set(sys.modules) - there:
        if name == "neighbour" or name.startswith(("rooms", "dragoman_file_")):
            del sys.modules[name]


def by_id(served: LoadedAgents) -> dict[str, Runner]:
    return {agent.profile.id: agent for agent in served.agents}


def again(entries: tuple[AgentEntry, ...], before: LoadedAgents) -> LoadedAgents:
    return load_served(entries, [], None, before)


def test_what_is_as_it_was_is_the_same_object(entries: tuple[AgentEntry, ...]) -> None:
    first = load_served(entries, [], None)
    assert by_id(again(entries, first)) == by_id(first)


def test_only_what_a_table_says_otherwise_is_another_object(entries: tuple[AgentEntry, ...]) -> None:
    first = load_served(entries, [], None)
    echo, far, partner = entries
    second = again((replace(echo, description="else"), replace(far, api_key="sesame"), partner), first)
    old, new = by_id(first), by_id(second)
    assert [agent for agent in old if old[agent] is new[agent]] == ["far", "partner"]
    assert new["echo"].profile.description == "else"


def test_a_module_that_changed_makes_the_agents_of_all_of_them_anew_and_no_others(
    entries: tuple[AgentEntry, ...],
) -> None:
    first = load_served(entries, [], None)
    Path("neighbour.py").write_text('WORD = "two"\n')
    second = again(entries, first)
    old, new = by_id(first), by_id(second)
    assert [agent for agent in old if old[agent] is new[agent]] == ["far", "partner"]
    assert (old["echo"].profile.description, new["echo"].profile.description) == ("one", "two")
    assert isinstance(new["echo"], Agent)  # Dragoman itself was not imported again
    assert by_id(again(entries, second)) == new


def test_after_an_import_that_failed_every_name_means_what_it_meant_before(entries: tuple[AgentEntry, ...]) -> None:
    first = load_served(entries, [], None)
    before = {name: sys.modules[name] for name in ("rooms", "rooms.house", "neighbour")}
    Path("neighbour.py").write_text("raise RuntimeError\n")
    with pytest.raises(AgentReferenceError, match="RuntimeError"):
        again(entries, first)
    assert {name: sys.modules[name] for name in before} == before
    Path("neighbour.py").write_text('WORD = "one"\n')
    assert by_id(again(entries, first))["echo"].profile.description == "one"


def test_what_is_not_to_be_served_is_undone(entries: tuple[AgentEntry, ...]) -> None:
    first = load_served(entries, [], None)
    before = sys.modules["neighbour"]
    Path("neighbour.py").write_text('WORD = "two"\n')
    again(entries, first).undo()
    assert sys.modules["neighbour"] is before


def test_agents_of_the_command_line_are_kept_and_made_anew_likewise(entries: tuple[AgentEntry, ...]) -> None:
    first = load_served((), ["rooms/house.py"], None)
    assert by_id(load_served((), ["rooms/house.py"], None, first)) == by_id(first)
    Path("rooms/house.py").touch()
    assert by_id(load_served((), ["rooms/house.py"], None, first))["echo"] is not by_id(first)["echo"]


RUNNER = """
from dragoman.engine.api import Runner, Traits

class Own(Runner):
    traits = Traits()

    def __init__(self):
        from dragoman.model.card import Profile
        self.profile = Profile(id="own", name="own", description="own", version="1", skills=())

    async def run(self, run):
        pass

own = Own()
"""


def test_a_table_says_how_an_agent_answers(entries: tuple[AgentEntry, ...]) -> None:
    kinds = {"python": "rooms.house:echo", "program": "command:cat", "partner": "a2a:http://127.0.0.1:9/"}
    table = '[[agents]]\nid = "{}"\nrun = "{}"\ndirect = "auto"\n{}\n'
    for wait, expected in (("", 1.0), ("direct_wait_s = 0.5", 0.5)):
        tables = [table.format(agent_id, run, wait) for agent_id, run in kinds.items()]
        Path("direct.toml").write_text("\n".join(tables))
        for agent in load_served(load(Path("direct.toml"), {}, {}).agents, (), None).agents:
            assert (agent.traits.direct, agent.traits.direct_wait_s) == ("auto", expected)
    Path("rooms/own.py").write_text(RUNNER)
    Path("direct.toml").write_text(table.format("own", "rooms.own:own", ""))
    with pytest.raises(AgentReferenceError, match=r'give the Own itself traits = Traits\(direct="auto"\)'):
        load_served(load(Path("direct.toml"), {}, {}).agents, (), None)
