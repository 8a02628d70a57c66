"""`[[agents]]` tables with `run = "worker"`."""

from pathlib import Path

import pytest

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.cli.loader import load_agents
from dragoman.config import ConfigError, load
from tests.kit.commands import invoke


def declared(tmp_path: Path, table: str) -> WorkerAgent:
    file = tmp_path / "dragoman.toml"
    file.write_text(f'[[agents]]\nid = "far"\n{table}')
    (agent,) = load_agents(load(file, {}, {}).agents, (), None)
    assert isinstance(agent, WorkerAgent)
    return agent


def test_the_card_of_a_worker_says_what_the_table_says(tmp_path: Path) -> None:
    agent = declared(
        tmp_path,
        'run = "worker"\ndescription = "Elsewhere"\nversion = "2.0"\ninput_modes = ["text/plain"]\n'
        '[[agents.skills]]\nid = "sum"\ntags = ["math"]\nexamples = ["1 + 1"]\n[[agents.skills]]\nid = "other"\n',
    )
    profile = agent.profile
    assert (profile.id, profile.name, profile.description, profile.version) == ("far", "far", "Elsewhere", "2.0")
    assert profile.input_modes == ("text/plain",)
    assert [(skill.id, skill.name, skill.tags, skill.examples) for skill in profile.skills] == [
        ("sum", "sum", ("math",), ("1 + 1",)),
        ("other", "other", (), ()),
    ]
    assert agent.workers is agent.leases


async def test_a_worker_is_offline_without_workers_unless_it_queues(tmp_path: Path) -> None:
    assert declared(tmp_path, 'run = "worker"\n').offline
    assert declared(tmp_path, 'run = "worker"\noffline = "error"\n').offline
    assert not declared(tmp_path, 'run = "worker"\noffline = "queue"\n').offline


def test_the_versions_that_an_agent_is_served_in_can_be_set(tmp_path: Path) -> None:
    assert declared(tmp_path, 'run = "worker"\n').profile.versions == ("1.0", "0.3")
    assert declared(tmp_path, 'run = "worker"\nversions = ["0.3"]\n').profile.versions == ("0.3",)
    assert declared(tmp_path, 'run = "worker"\nversions = ["0.3", "1.0"]\n').profile.versions == ("1.0", "0.3")


def test_the_time_of_a_lease_can_be_set(tmp_path: Path) -> None:
    assert declared(tmp_path, 'run = "worker"\n').leases.lease_s == 30
    assert declared(tmp_path, 'run = "worker"\nlease_s = 5\n').leases.lease_s == 5


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('run = "worker"\noffline = "maybe"\n', r"agents\[0\].offline"),
        ('run = "worker"\nlease_s = 0\n', r"agents\[0\].lease_s"),
        ('run = "agents:echo"\noffline = "queue"\n', 'run = "worker" or "a2a:https://…" only'),
        ('run = "agents:echo"\nlease_s = 5\n', 'run = "worker" only'),
        ('run = "worker"\nversions = []\n', r'agents\[0\].versions.*must be a list of "1.0", "0.3", or both'),
        ('run = "worker"\nversions = ["2.0"]\n', r'agents\[0\].versions.*must be a list of "1.0", "0.3", or both'),
        ('run = "worker"\nversions = "1.0"\n', r'agents\[0\].versions.*must be a list of "1.0", "0.3", or both'),
        ('run = "workers"\n', "or worker, for one in other processes"),
        ('run = "command"\n', "must be a Python agent"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, table: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        declared(tmp_path, table)


def test_an_agent_that_answers_with_messages_cannot_be_a_workers(tmp_path: Path) -> None:
    module = tmp_path / "served.py"
    module.write_text('from dragoman import Agent\nagent = Agent("either", direct="auto")\n')
    result = invoke("worker", str(module), "--server", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert 'either: direct="auto" is not for workers, whose tasks are leased: leave it out' in result.output
