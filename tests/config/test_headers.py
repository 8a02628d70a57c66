"""The headers that an agent is given, as its table and its code name them."""

from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent
from dragoman.cli.entries import make_agent
from dragoman.config import ConfigError, load
from dragoman.engine.api import Runner

A2A, LLM, WORKER = "a2a:https://other.example/agents/x", "openai:https://api.example/v1", "worker"
GUARDED = ("authorization", "Cookie", "x-api-key", "proxy-authorization", "a2a-extensions", "te", "connection", "host")
FORWARDED = "credentials = { forward = true }\n"


def agent(folder: Path, lines: str, run: str = "agents.py:agent") -> Runner:
    (folder / "agents.py").write_text("from dragoman import Agent\nagent = Agent('code', headers=['x-code'])\n")
    (folder / "dragoman.toml").write_text(f'[[agents]]\nid = "one"\nrun = "{run}"\n{lines}')
    (entry,) = load(folder / "dragoman.toml", {}, {}).agents
    return make_agent(entry)


@pytest.mark.parametrize(
    ("lines", "run", "names"),
    [
        ("", "agents.py:agent", ("x-code",)),
        ('headers = ["X-Tenant", "x-region"]', "agents.py:agent", ("x-tenant", "x-region")),
        ("headers = []", "agents.py:agent", ()),
        (f'{FORWARDED}headers = ["cookie"]', "agents.py:agent", ("cookie", "authorization", "x-api-key")),
        (FORWARDED, WORKER, ("authorization", "x-api-key")),
        ('headers = ["x-tenant"]', WORKER, ("x-tenant",)),
        ('headers = ["x-tenant"]', A2A, ("x-tenant",)),
        (f'{FORWARDED}headers = ["x-tenant", "cookie"]', A2A, ("x-tenant", "cookie", "authorization", "x-api-key")),
        ('model = "m"\nheaders = ["x-tenant"]', LLM, ("x-tenant",)),
        ('headers = ["x-tenant"]', "command:cat", ("x-tenant",)),
    ],
)
def test_a_table_names_them(tmp_path: Path, monkeypatch: Any, lines: str, run: str, names: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    assert agent(tmp_path, lines, run).traits.header_names == names


@pytest.mark.parametrize(
    ("lines", "run", "told"),
    [
        *(
            (f'headers = ["{name}"]', run, "set credentials = { forward = true }")
            for name in GUARDED
            for run in (WORKER,)
        ),
        (
            'headers = ["x-*"]',
            WORKER,
            "headers[0] = 'x-*': must be an exact name, as there is no wildcard",
        ),
        ('headers = ["x-a", "X-A"]', WORKER, "agents[0].headers[1] = 'X-A': is listed twice"),
        ('headers = ["x a"]', WORKER, "must be the name of a header, such as x-tenant"),
        ('headers = ["trace-bin"]', WORKER, "is binary metadata of gRPC"),
        (
            'headers = "x-tenant"',
            WORKER,
            "agents[0].headers = 'x-tenant': must be a list of names, such as [\"x-tenant\"]",
        ),
        (f"headers = {[f'x-{n}' for n in range(51)]}", WORKER, "must be at most 50 names"),
        *(
            (f'{FORWARDED}headers = ["{name}"]', A2A, "is a header of this server's own requests")
            for name in GUARDED[3:]
        ),
        ('model = "m"\nheaders = ["content-type"]', LLM, "is a header of this server's own requests"),
        ('model = "m"\nheaders = ["authorization"]', LLM, "set credentials = { forward = true }"),
        (
            'model = "m"\ncredentials = { header = "X-Tenant", env = "E" }\nheaders = ["x-tenant"]',
            LLM,
            "is the header of the agent's own `credentials`",
        ),
        ("credentials = { forward = 1 }", WORKER, "agents[0].credentials: must be { forward = true }"),
        ('credentials = { env = "X" }', WORKER, "agents[0].credentials.env"),
        ("credentials = true", WORKER, "agents[0].credentials: must be { forward = true }"),
    ],
)
def test_a_fault_in_a_table_is_named_with_its_fix(tmp_path: Path, lines: str, run: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        agent(tmp_path, lines, run)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"headers": "x-tenant"}, "agent a: headers must be a list of texts"),
        ({"headers": ["cookie"]}, "agent a: headers: 'cookie' is a credential"),
        ({"headers": ["x-agent-api-key"]}, "agent a: headers: 'x-agent-api-key' is a credential"),
        ({"headers": ["x-*"]}, "agent a: headers: 'x-*' must be an exact name, as"),
        ({"headers": ["X-A", "x-a"]}, "agent a: headers: 'x-a' is listed twice"),
        ({"credentials": True}, 'agent a: credentials must be {"forward": True}'),
        ({"credentials": {"env": "X"}}, 'agent a: credentials must be {"forward": True}'),
    ],
)
def test_a_fault_in_the_code_is_raised_where_the_agent_is_declared(given: dict[str, Any], told: str) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        Agent("a", **given)
    assert str(error.value).startswith(told)


async def test_a_check_says_what_an_agent_is_given() -> None:
    agent = Agent("a", headers=["x-tenant"], credentials={"forward": True})
    agent.skill(lambda ctx: ctx.text)
    said = [finding.what async for finding in agent.check()]
    assert "it is given these headers of its callers' requests: x-tenant, authorization, x-api-key" in said
