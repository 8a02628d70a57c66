"""References to agents: what they lead to, and what is said when they lead nowhere."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.cli.loader import load_agents
from dragoman.cli.references import AgentReferenceError, load_reference, place_of
from dragoman.config import AgentEntry, ProviderEntry, SkillEntry

SOURCE = """
from dragoman.engine.api import Runner, Traits
from dragoman.model.card import AgentSkill, Profile

KEPT = []


class Scripted(Runner):
    traits = Traits()

    def __init__(self, profile):
        self.profile = profile

    async def run(self, run):
        KEPT.append(run)


def scripted(agent_id):
    skill = AgentSkill(id="say", name="Say", description="Says it", tags=("talk",))
    return Scripted(Profile(id=agent_id, name=agent_id, description="From code", version="1", skills=(skill,)))


weather = scripted("weather")
tides = scripted("tides")
same_tides = tides
number = 5
"""


GRAPHS = """
class StateGraph:
    def compile(self): ...


StateGraph.__module__ = "langgraph.graph.state"
drawn = StateGraph()
"""
"""The names of LangGraph 1.x by which it is recognised."""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with a module of agents in it; what is imported from it is forgotten afterwards."""
    (tmp_path / "forecasts.py").write_text(SOURCE)
    (tmp_path / "graphs.py").write_text(GRAPHS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(Path.cwd()))])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name == "broken" or name.startswith(("forecasts", "graphs", "dragoman_file_")):
            del sys.modules[name]


def refusal(*references: str, default: str | None = None) -> str:
    with pytest.raises(AgentReferenceError) as caught:
        load_agents((), references, default)
    return str(caught.value)


def ids(*references: str, default: str | None = None) -> list[str]:
    return [agent.profile.id for agent in load_agents((), references, default)]


@pytest.mark.usefixtures("directory")
def test_a_module_in_the_working_directory_is_found() -> None:
    assert ids("forecasts:weather") == ["weather"]


@pytest.mark.usefixtures("directory")
def test_a_module_without_an_object_gives_every_agent_in_it_once() -> None:
    assert ids("forecasts") == ["weather", "tides"]


def test_a_file_is_found_and_loaded_once(directory: Path) -> None:
    (directory / "below").mkdir()
    (directory / "forecasts.py").rename(directory / "below" / "other.py")
    assert ids("below/other.py:tides", "below/other.py:weather") == ["tides", "weather"]
    assert load_reference("below/other.py:tides")[0] is load_reference(f"{directory}/below/other.py:tides")[0]


@pytest.mark.usefixtures("directory")
def test_the_default_agent_comes_first_and_the_others_keep_their_order() -> None:
    assert ids("forecasts:weather", "forecasts:tides", default="tides") == ["tides", "weather"]


@pytest.mark.usefixtures("directory")
def test_a_default_that_is_not_served_is_refused() -> None:
    assert refusal("forecasts", default="tide") == "default = 'tide': no such agent; there are weather, tides"


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("reference", ["python:forecasts.py:tides", "tides=python:forecasts.py:tides"])
def test_a_reference_may_be_copied_from_the_file(reference: str) -> None:
    (agent,) = load_reference(reference)
    assert (agent.profile.id, place_of(reference)) == ("tides", "forecasts.py")


def test_no_agent_at_all_is_refused_with_what_to_write() -> None:
    assert "MODULE:OBJECT" in refusal()


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("forecast:weather", "no module 'forecast' in"),
        ("docker:weather", "agents that are not Python are a2a:URL, openai:URL, command:PROGRAM or worker"),
        ("forecasts:Scripted", "is a class, not an Agent; name an object of it, agent = Scripted(…)"),
        ("forecasts:scripted", "it is a function: name what it returns, agent = scripted(…)"),
        ("graphs:drawn", "it is not compiled: name what its .compile() returns"),
        ("graphs:StateGraph", "is a class, not an Agent; name an object of it, agent = StateGraph(…)"),
        ("graphs", "it has no agents; drawn: it is not compiled"),
        ("absent.py:weather", "no file absent.py in"),
        ("./", "is a folder: name the file in it that has the agent"),
        (
            "a2a:https://a.example",
            'write it as a table [[agents]] into dragoman.toml, with id = "NAME" and run = "a2a:https:',
        ),
        ("command:tr a-z A-Z", 'with id = "NAME" and run = "command:tr a-z A-Z"'),
        ("forecasts:wether", "did you mean weather?"),
        ("forecasts:zzz", "its agents are weather, tides"),
        ("forecasts:number", "is of type int, not an Agent"),
        ("forecasts:", "must be MODULE:OBJECT"),
        (":weather", "must be MODULE:OBJECT"),
        ("https://a.example", 'id = "NAME" and run = "a2a:https://a.example" (for a model'),
        ("fore casts:weather", "is not a module"),
        ("json", "it has no agents"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named_with_the_fix(reference: str, said: str) -> None:
    message = refusal(reference)
    assert "\n" not in message
    assert message.startswith(f"{reference}: ")
    assert said in message


def test_a_module_that_imports_an_executor_is_told_how_to_serve_it(directory: Path) -> None:
    (directory / "executors.py").write_text(
        "from a2a.server.agent_execution import AgentExecutor\n"
        "class Booking(AgentExecutor):\n"
        "    async def execute(self, context, event_queue): ...\n"
        "    async def cancel(self, context, event_queue): ...\n"
    )
    (directory / "main.py").write_text("from executors import Booking\n")
    assert (
        refusal("main.py") == "main.py: it has no agents; to serve Booking, which it imports, write :Booking behind it"
    )


@pytest.mark.parametrize("reference", ["broken:agent", "broken.py:agent"])
def test_a_module_that_raises_is_named_with_its_error_and_line(directory: Path, reference: str) -> None:
    (directory / "broken.py").write_text("x = 1\nimport absent_module\n")
    message = refusal(reference)
    assert message.startswith(
        f"{reference}: importing it failed with ModuleNotFoundError: No module named 'absent_module'"
    )
    assert message.endswith("broken.py:2); is it installed where Dragoman is?")


def test_an_agent_that_is_declared_wrongly_is_named_with_the_line_of_its_module(directory: Path) -> None:
    path = directory / "misnamed.py"
    path.write_text('from dragoman import Agent\n\nagent = Agent("a b", description="Bad id")\n')
    with pytest.raises(AgentReferenceError, match=r"failed with ValueError: agent id 'a b': .* \(.*misnamed\.py:3\)$"):
        load_reference("misnamed.py")


def test_a_module_that_is_no_python_is_named_with_the_line(directory: Path) -> None:
    (directory / "broken.py").write_text("x = 1\ny = = 2\n")
    assert refusal("broken:agent").endswith("SyntaxError: invalid syntax (broken.py, line 2)")


@pytest.mark.usefixtures("directory")
def test_an_agent_under_two_ids_is_two_agents() -> None:
    entries = (AgentEntry(id="a", run="forecasts:weather"), AgentEntry(id="b", run="forecasts:weather", name="B"))
    agents = load_agents(entries, ("forecasts:weather",), None)
    assert [(agent.profile.id, agent.profile.name) for agent in agents] == [
        ("a", "weather"),
        ("b", "B"),
        ("weather", "weather"),
    ]


@pytest.mark.usefixtures("directory")
def test_two_agents_of_one_id_are_refused() -> None:
    assert refusal("forecasts", "forecasts:tides") == (
        "agent id 'tides' is given 2 times, by forecasts and by forecasts:tides: ids must differ; "
        "ID=MODULE:OBJECT gives an agent another one"
    )


def test_an_agent_whose_id_is_a_path_of_the_server_is_refused(directory: Path) -> None:
    (directory / "forecasts.py").write_text(SOURCE.replace('scripted("tides")', 'scripted("tasks")'))
    assert refusal("forecasts").startswith("agent id 'tasks': is a path of the server itself")


@pytest.mark.usefixtures("directory")
def test_a_table_gives_the_agent_its_id_and_what_its_card_says() -> None:
    entry = AgentEntry(
        id="tomorrow",
        run="python:forecasts:weather",
        name="Tomorrow",
        provider=ProviderEntry(organization="Example", url="https://example.org"),
        skills=(SkillEntry(id="say", tags=("weather", "rain")),),
    )
    (agent,) = load_agents((entry,), (), None)
    assert (agent.profile.id, agent.profile.name, agent.profile.description) == ("tomorrow", "Tomorrow", "From code")
    assert agent.profile.provider is not None
    assert agent.profile.provider.organization == "Example"
    assert (agent.profile.skills[0].name, agent.profile.skills[0].tags) == ("Say", ("weather", "rain"))


@pytest.mark.usefixtures("directory")
def test_agents_of_the_file_come_before_those_of_the_command_line() -> None:
    agents = load_agents((AgentEntry(id="z", run="forecasts:tides"),), ("forecasts:weather",), None)
    assert [agent.profile.id for agent in agents] == ["z", "weather"]


@pytest.mark.usefixtures("directory")
def test_a_table_for_a_skill_that_the_code_lacks_is_refused() -> None:
    entry = AgentEntry(id="a", run="forecasts:weather", skills=(SkillEntry(id="sing"),))
    with pytest.raises(AgentReferenceError, match="skill 'sing' is not in the code; there are say"):
        load_agents((entry,), (), None)


@pytest.mark.usefixtures("directory")
def test_a_table_says_which_skills_are_on_the_extended_card_only() -> None:
    table = AgentEntry(id="sea", run="forecasts:tides", skills=(SkillEntry(id="say", name="Speak", extended=True),))
    (agent,) = load_agents((table,), (), None)
    assert agent.profile.skills == ()
    (skill,) = agent.profile.extended_skills
    assert (skill.name, skill.description) == ("Speak", "Says it")
    skills = (SkillEntry(id="open", extended=False), SkillEntry(id="closed", extended=True))
    (worker,) = load_agents((AgentEntry(id="far", run="worker", skills=skills),), (), None)
    assert [skill.id for skill in worker.profile.skills] == ["open"]
    assert [skill.id for skill in worker.profile.extended_skills] == ["closed"]


def test_an_id_before_it_is_the_id_it_is_served_under(directory: Path) -> None:
    (agent,) = load_reference("rain=forecasts.py:weather")
    assert (agent.profile.id, agent.profile.name) == ("rain", "weather")
    (same,) = load_reference("forecasts.py:weather")
    assert same.profile.id == "weather"


def test_an_id_before_a_module_of_several_is_refused(directory: Path) -> None:
    with pytest.raises(AgentReferenceError, match=r"rain=forecasts.py: has 2 agents: write rain=forecasts.py:OBJECT"):
        load_reference("rain=forecasts.py")


def test_a_module_of_several_framework_objects_is_refused_with_their_names(directory: Path) -> None:
    compiled = "class Graph:\n    async def astream(self): ...\n    async def aget_state(self): ...\n\n\n"
    named = "Graph.__module__ = 'langgraph.graph.state'\nnorth, south = Graph(), Graph()\nsame = north\n"
    (directory / "graphs_of_two.py").write_text(compiled + named)
    with pytest.raises(AgentReferenceError, match=r"has several agents: write one of them as :north, :south$"):
        load_reference("graphs_of_two.py")


@pytest.mark.parametrize(
    ("body", "lacks"),
    [
        ("pass", "self.profile = Profile(…), self.traits = Traits(…)"),
        ("traits = Traits()", "self.profile = Profile(…)"),
        ('profile = Profile(id="a", name="a", description="", version="1", skills=())', "self.traits = Traits(…)"),
        ("profile, traits = {}, Traits()", "self.profile = Profile(…)"),
    ],
)
def test_a_runner_that_is_not_finished_is_refused_with_what_it_lacks(directory: Path, body: str, lacks: str) -> None:
    code = f"class Own(Runner):\n    {body}\n\n    async def run(self, run): ...\n\n\nown = Own()\n"
    (directory / "unfinished.py").write_text(
        "from dragoman.engine.api import Runner, Traits\nfrom dragoman.model.card import Profile\n\n\n" + code
    )
    for reference in ("unfinished.py", "unfinished.py:own"):
        with pytest.raises(AgentReferenceError) as refused:
            load_reference(reference)
        assert str(refused.value) == f"{reference}: Own is a Runner that is not finished: write {lacks}"
