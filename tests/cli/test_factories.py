"""References to functions that make agents, and the lifespans of modules: how they are found, checked and served."""

import json
from pathlib import Path

import pytest

from dragoman.cli.entries import make_agent
from dragoman.cli.loader import load_agents
from dragoman.cli.references import AgentReferenceError, load_reference
from dragoman.config import AgentEntry, Config, ConfigError, SkillEntry, load
from dragoman.server import serving
from dragoman.testing import client
from tests.kit.commands import Run

MODULE = """
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from dragoman import Agent


def note(line):
    with Path("diary").open("a") as diary:
        print(line, file=diary)


def made(id="made", **options):
    agent = Agent(id, name="Made", **options)

    @agent.skill
    async def tell(ctx):
        return f"{ctx.state}"

    return agent


@asynccontextmanager
async def lifespan():
    note("open module")
    yield "of the module"
    note("close module")


@asynccontextmanager
async def own():
    note("open own")
    yield "of its own"
    note("close own")


declared = made("declared")


def plain():
    return made()


async def awaited():
    return made(lifespan=own)


@asynccontextmanager
async def opened():
    note("open agent")
    yield made()
    note("close agent")


later = partial(made, lifespan=own)


def nothing():
    return None


def number():
    return 7


async def undecorated():
    yield made()


@contextmanager
def blocking():
    yield made()


entered = opened()


def needy(config):
    return made()
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "trips.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def diary() -> list[str]:
    """What was opened and closed."""
    return Path("diary").read_text().splitlines() if Path("diary").exists() else []


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    ("name", "state", "lines"),
    [
        ("declared", "of the module", ["open module", "close module"]),
        ("plain", "of the module", ["open module", "close module"]),
        ("awaited", "of its own", ["open module", "open own", "close own", "close module"]),
        ("later", "of its own", ["open module", "open own", "close own", "close module"]),
        ("opened", "of the module", ["open module", "open agent", "close agent", "close module"]),
    ],
)
async def test_what_a_function_makes_is_served_under_the_name_of_the_function(
    name: str, state: str, lines: list[str]
) -> None:
    (agent,) = load_reference(f"trips.py:{name}")
    assert agent.profile.id == name
    assert diary() == []
    async with client(agent) as connection:
        assert (await connection.conversation().say("")).text == state
    assert diary() == lines


@pytest.mark.usefixtures("directory")
async def test_the_id_of_a_reference_wins() -> None:
    (agent,) = load_reference("mine=trips.py:opened")
    async with client(agent) as connection:
        assert connection.card is not None
        assert connection.card.name == "Made"
        assert (await connection.conversation().say("")).text == "of the module"
    assert agent.profile.id == "mine"


@pytest.mark.usefixtures("directory")
async def test_a_table_describes_what_the_function_makes() -> None:
    skills = (SkillEntry(id="tell", name="Tells"),)
    entry = AgentEntry(
        id="trip",
        run="trips.py:opened",
        name="Trips",
        skills=skills,
        deadline_s=7.0,
        direct="auto",
        memory="shared",
        steps_version="2",
    )
    agent = make_agent(entry)
    async with client(agent) as connection:
        assert connection.card is not None
        assert (connection.card.name, agent.profile.skills[0].name) == ("Trips", "Tells")
        traits = agent.traits
        assert (traits.deadline_s, traits.direct, traits.memory, traits.steps_version) == (7.0, "auto", "shared", "2")
    assert load_reference("trips.py:declared")[0].traits.deadline_s is None


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    ("name", "skill", "said"),
    [
        ("nothing", "tell", "nothing (trips.py:59): it made an object of type NoneType, not an agent; let it return"),
        ("number", "tell", "number (trips.py:63): it made an object of type int, not an agent; let it return"),
        ("plain", "fly", "plain (trips.py:41): agent 'trip': skill 'fly' is not in the code; there are tell"),
    ],
)
async def test_what_is_no_agent_keeps_the_server_from_starting(name: str, skill: str, said: str) -> None:
    agent = make_agent(AgentEntry(id="trip", run=f"trips.py:{name}", skills=(SkillEntry(id=skill),)))
    with pytest.raises(ExceptionGroup) as raised:
        async with serving(Config(port=0, store="memory:"), [agent]):
            pass
    (fault,) = raised.value.exceptions
    assert str(fault).startswith(f"agent trip: its factory {said}")


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("undecorated", "it yields, and is no context manager: write @asynccontextmanager above an `async def`"),
        ("blocking", "it is not asynchronous: write @asynccontextmanager above an `async def`"),
        ("entered", "it is a context manager, which can be entered once: name the function that makes it"),
        ("needy", "it is a function: name what it returns, agent = needy(…), let it need no arguments, or write"),
    ],
)
def test_a_function_that_could_make_no_agent_is_refused_before_anything_starts(name: str, said: str) -> None:
    with pytest.raises(AgentReferenceError) as raised:
        load_reference(f"trips.py:{name}")
    assert said in str(raised.value)


def test_a_lifespan_of_a_module_that_could_not_be_entered_is_refused(directory: Path) -> None:
    (directory / "odd.py").write_text(
        'from dragoman import Agent\n\nagent = Agent("a")\n\n\nasync def lifespan():\n    yield 1\n'
    )
    with pytest.raises(AgentReferenceError, match=r"^odd.py: lifespan lifespan: is no context manager: write @async"):
        load_reference("odd.py")


def test_another_value_of_that_name_is_no_lifespan(directory: Path) -> None:
    (directory / "years.py").write_text('from dragoman import Agent\n\nlifespan = 80\nagent = Agent("a")\n')
    assert load_reference("years.py")[0].lifespans() == ()


@pytest.mark.usefixtures("directory")
def test_a_change_of_another_table_keeps_what_a_function_has_made() -> None:
    from dragoman.cli.loader import load_served

    entry = AgentEntry(id="trip", run="trips.py:opened")
    first = load_served((entry,), (), None)
    again = load_served((entry, AgentEntry(id="other", run="trips.py:declared")), (), None, first)
    assert again.agents[0] is first.agents[0]


def test_check_says_what_would_be_opened_and_opens_nothing(run: Run, directory: Path) -> None:
    (directory / "dragoman.toml").write_text(
        '[[agents]]\nid = "trip"\nrun = "trips.py:nothing"\nlifespan_timeout_s = 7\n\n'
        '[[agents]]\nid = "other"\nrun = "trips.py:declared"\n'
    )
    result = run("agents", "check", "--json")
    assert result.exit_code == 0, result.output
    trip, other = json.loads(result.stdout)
    assert [finding["what"] for finding in trip["findings"]] == [
        "a server or a worker opens its lifespan (trips.py:24) first, within 7 s",
        "a server or a worker opens its factory nothing (trips.py:59) first, within 7 s",
        "its card and its skills are known once a server has made it",
    ]
    assert other["findings"][0]["what"] == "a server or a worker opens its lifespan (trips.py:24) first, within 30 s"


@pytest.mark.parametrize(
    "error", ["RuntimeError('no running event loop')", "TypeError('Received _AsyncGeneratorContextManager.')"]
)
def test_a_module_that_opens_what_belongs_to_the_loop_is_told_how_to(run: Run, directory: Path, error: str) -> None:
    (directory / "early.py").write_text(f"raise {error}\n")
    result = run("agents", "check", "early.py:agent", "--json")
    (finding,) = json.loads(result.stdout)[0]["findings"]
    assert finding["what"].endswith("(early.py:1)")
    assert finding["fix"].startswith("open it in a function that the server calls: write @asynccontextmanager above")
    with pytest.raises(AgentReferenceError, match=r"early.py:1.; open it in a function that the server calls"):
        load_agents((), ("early.py:agent",), None)


@pytest.mark.parametrize(
    ("run", "value", "said"),
    [
        ("x:y", "0", "must be a number of seconds from 0.1 to 3600"),
        ("worker", "5", "is for agents of Python only: leave it out"),
        ("command:cat", "5", "is for agents of Python only: leave it out"),
    ],
)
def test_the_time_in_a_table_is_checked(tmp_path: Path, run: str, value: str, said: str) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(f'[[agents]]\nid = "a"\nrun = "{run}"\nlifespan_timeout_s = {value}\n')
    with pytest.raises(ConfigError, match=r"agents\[0\].lifespan_timeout_s") as raised:
        load(file, {}, {})
    assert said in str(raised.value)


OWN = """
from contextlib import asynccontextmanager

from dragoman.engine.api import Runner, Traits
from dragoman.model.card import Profile
from dragoman.model.message import Artifact, Part


@asynccontextmanager
async def lifespan():
    yield "of the module"


class Own(Runner):
    def __init__(self):
        self.profile = Profile(id="own", name="Own", description="Own", version="1", skills=())
        self.traits = Traits()

    def take_state(self, lifespan, yielded):
        self.state = yielded

    async def run(self, run):
        artifact = Artifact(artifact_id="a", parts=(Part(text=self.state),))
        await run.artifact(artifact, append=False, last_chunk=True)


own = Own()


def make():
    return Own()
"""


@pytest.mark.parametrize("name", ["own", "make"])
async def test_a_runner_of_ones_own_takes_the_state_of_its_module(directory: Path, name: str) -> None:
    (directory / "owned.py").write_text(OWN)
    (agent,) = load_reference(f"owned.py:{name}")
    async with client(agent) as connection:
        assert (await connection.conversation().say("")).text == "of the module"


EXECUTOR = """
from contextlib import asynccontextmanager

from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor


class Shouter(AgentExecutor):
    def __init__(self, ending):
        self.ending = ending

    async def execute(self, context, queue):
        await queue.enqueue_event(new_text_message(context.get_user_input().upper() + self.ending))

    async def cancel(self, context, queue):
        raise NotImplementedError


@asynccontextmanager
async def shouter():
    yield Shouter("!")
"""


async def test_a_factory_may_yield_an_executor_of_the_official_sdk(directory: Path) -> None:
    (directory / "shouts.py").write_text(EXECUTOR)
    (agent,) = load_reference("shouts.py:shouter")
    async with client(agent) as connection:
        assert (await connection.conversation().say("hello")).text == "HELLO!"
