"""`run = [ … ]` and `[[agents.pool]]` in the file: the members of a pool, of both kinds."""

import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.cli.loader import load_agents
from dragoman.config import ConfigError, Price, load
from dragoman.config.pools import NAME_CHARS, AgentPool, derive_name, describe_run, read_pool

LIST = 'run = ["a2a:https://a.example", "a2a:https://b.example:8443/agents/x"]\n'
MODELS = """
model = "m"
[[pool]]
url = "openai:https://a.example/v1"
credentials = { env = "A" }
[[pool]]
url = "openai:https://b.example/v1"
model = "other"
"""


def pool_of(text: str) -> AgentPool:
    pool = read_pool("d.toml", "agents[0]", tomllib.loads(text))
    assert pool is not None
    return pool


def shown(pool: AgentPool, *fields: str) -> list[Any]:
    return [tuple(getattr(member, field) for field in fields) for member in pool.members]


def test_a_list_names_the_members_and_the_keys_of_the_agent_are_theirs() -> None:
    pool = pool_of(LIST + "answer_s = 7\n")
    assert shown(pool, "name", "url", "order", "weight") == [
        ("a.example", "https://a.example", 0, 1),
        ("b.example-8443-agents-x", "https://b.example:8443/agents/x", 1, 1),
    ]
    assert [member.upstream.answer_s for member in pool.members if member.upstream is not None] == [7, 7]
    assert (pool.strategy, pool.affinity, pool.shared_dedupe, pool.written) == ("failover", "strict", False, True)


def test_one_url_is_a_pool_of_one() -> None:
    pool = pool_of('run = "a2a:https://a.example/x"\ndedupes = true\n')
    assert (shown(pool, "name", "order"), pool.written) == ([("a.example-x", 0)], False)
    assert pool.members[0].upstream is not None
    assert pool.members[0].upstream.dedupes is True


def test_a_table_has_keys_of_its_own_before_those_of_the_agent() -> None:
    pool = pool_of(
        'strategy = "weighted"\naffinity = "prefer"\nshared_dedupe = true\nprobe_s = 5\ndedupes = true\n'
        'credentials = { env = "ALL" }\n'
        '[[pool]]\nname = "west"\nurl = "a2a:https://a"\nweight = 3\norder = 2\n'
        '[[pool]]\nurl = "a2a:https://b"\ncredentials = { header = "x-key", env = "B" }\ndedupes = false\n'
        'price = { per_message = "0.5" }\n'
    )
    assert shown(pool, "name", "weight", "order") == [("west", 3, 2), ("b", 1, 0)]
    west, other = (member.upstream for member in pool.members)
    assert west is not None
    assert other is not None
    assert (west.credentials.env, west.dedupes) == ("ALL", True)  # type: ignore[union-attr]
    assert (other.credentials.header, other.dedupes) == ("x-key", False)  # type: ignore[union-attr]
    price = pool.members[1].price
    assert price is not None
    assert str(price.per_message) == "0.5"
    assert (pool.strategy, pool.affinity, pool.shared_dedupe, pool.probe_s) == ("weighted", "prefer", True, 5)


def test_the_members_may_be_endpoints_of_models() -> None:
    pool = pool_of('strategy = "least_busy"\nmove_models = false\n' + MODELS)
    assert [(m.name, m.model.model, m.order) for m in pool.members if m.model is not None] == [
        ("a.example-v1", "m", 0),
        ("b.example-v1", "other", 0),
    ]
    assert pool.members[0].credentials is not None
    assert pool.move_models is False


def test_the_kind_may_stand_in_run_alone() -> None:
    table = tomllib.loads('run = "a2a:"\n[[pool]]\nurl = "https://a"\n[[pool]]\nurl = "a2a:https://b"\n')
    assert describe_run("d.toml", "agents[0]", table) == "a2a:https://a, a2a:https://b"


def test_other_agents_have_no_pool() -> None:
    for run in ('"worker"', '"m:agent"', '"command:/bin/cat"'):
        assert read_pool("d.toml", "agents[0]", tomllib.loads(f"run = {run}\n")) is None


def test_names_are_the_same_in_any_order_and_differ() -> None:
    urls = ["https://a/x", "https://a/y", "https://a:1/x", "https://[::1]:9/x", "https://a/" + "y" * 99]
    names = [derive_name(url) for url in urls]
    assert len(set(names)) == len(urls)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) for name in names)
    assert derive_name("https://a/" + "y" * 98 + "z") != names[-1]
    tables = "".join(f'[[pool]]\nurl = "a2a:{url}"\ncredentials = {{ env = "K" }}\n' for url in [urls[-1]] * 3)
    found = [member.name for member in pool_of(tables).members]
    assert len(set(found)) == 3
    assert max(map(len, found)) <= NAME_CHARS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("run = []\n", "agents[0].run = []: must be a list like"),
        ('run = ["a2a:https://a", 5]\n', "agents[0].run = ['a2a:https://a', 5]: must be a list like"),
        ('run = ["a2a:https://a", "a2a:https://a"]\n', "agents[0].run[1]: is listed twice"),
        ('run = ["a2a:https://a", "openai:https://b"]\n', "agents[0].run[1]: must be a2a:…, as the first member is"),
        ('run = ["worker", "worker:x"]\n', "agents[0].run[0]: must be a2a: or openai: and a URL"),
        ('run = ["a2a:ftp://a"]\n', "agents[0].run[0] = 'a2a:ftp://a': must be a2a: and the http://"),
        ("pool = 5\n", "agents[0].pool: must be tables: write [[agents.pool]]"),
        ("pool = []\n", "agents[0].pool: must be tables"),
        ('run = "a2a:https://a"\n[[pool]]\nurl = "a2a:https://b"\n', "agents[0].run: must be left out beside"),
        ("[[pool]]\nweight = 1\n", "agents[0].pool[0].url: must be the URL of a member"),
        ('[[pool]]\nurl = "a2a:https://u:secret@b"\n', "agents[0].pool[0].url: must not hold a password"),
        ('[[pool]]\nurl = "a2a:grpc://b:1"\n', "agents[0].dialect: must say which version"),
        (
            '[[pool]]\nurl = "a2a:https://b"\ncredentials = "secret"\n',
            "agents[0].pool[0].credentials: must be one of {",
        ),
        (
            '[[pool]]\nurl = "a2a:https://b"\nweigth = 2\n',
            "agents[0].pool[0].weigth = 2: no such setting; did you mean",
        ),
        ('[[pool]]\nurl = "a2a:https://b"\nname = "a/b"\n', "agents[0].pool[0].name = 'a/b': must be 1 to 64 letters"),
        (
            '[[pool]]\nurl = "a2a:https://b"\nname = "x"\n[[pool]]\nurl = "a2a:https://c"\nname = "x"\n',
            "agents[0].pool[1].name = 'x': is the name of an earlier member",
        ),
        ('strategy = "weighted"\n[[pool]]\nurl = "a2a:https://b"\nweight = 0\n', "pool[0].weight = 0: must be a whole"),
        ('[[pool]]\nurl = "a2a:https://b"\nweight = 2\n', 'pool[0].weight = 2: is for strategy = "weighted" only'),
        ('[[pool]]\nurl = "a2a:https://b"\norder = -1\n', "pool[0].order = -1: must be a whole number from 0"),
        ('[[pool]]\nurl = "a2a:https://b"\nprice = 5\n', "pool[0].price = 5: must be a table with"),
        (LIST + 'strategy = "random"\n', "agents[0].strategy = 'random': must be failover, round_robin"),
        (LIST + 'affinity = "loose"\n', "agents[0].affinity = 'loose': must be strict or prefer"),
        (LIST + "shared_dedupe = 1\n", "agents[0].shared_dedupe = 1: must be true or false"),
        (LIST + "probe_s = 0\n", "agents[0].probe_s = 0: must be a number of seconds"),
        (LIST + "move_models = true\n", "agents[0].move_models = True: is for pools of openai: only"),
        (LIST + "answer_s = 0\n", "agents[0].answer_s: must be a number of seconds"),
        ('run = "a2a:https://a"\nstrategy = "failover"\n', "agents[0].strategy = 'failover': is for pools"),
        ('[[pool]]\nurl = "openai:https://b"\n', "agents[0].model: must name the model"),
        (
            'model = "m"\n[[pool]]\nurl = "openai:https://b"\nmodel = ""\n',
            "agents[0].pool[0].model: must name the model",
        ),
        ('affinity = "strict"\n' + MODELS, "agents[0].affinity = 'strict': is for pools of a2a: only"),
        (f"run = {[f'a2a:https://h{n}' for n in range(101)]}\n", "agents[0]: must have at most 100 members"),
    ],
)
def test_what_is_wrong_is_named_with_the_fix(text: str, told: str) -> None:
    table = tomllib.loads(text)
    with pytest.raises(ConfigError, match=re.escape(told)) as raised:
        describe_run("d.toml", "agents[0]", table)
        read_pool("d.toml", "agents[0]", table)
    assert "secret" not in str(raised.value)


PRICED = """
[[agents]]
id = "chat"
model = "m"
[[agents.pool]]
url = "openai:https://eu"
name = "eu"
price = { per_task = "0.5" }
[[agents.pool]]
url = "openai:https://us"
name = "us"
"""


def test_a_member_has_a_price_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text(f'[prices]\ncurrency = "EUR"\n[prices.models.m]\nper_task = 1\n{PRICED}')
    prices = load(tmp_path / "d.toml", {}, {}).prices
    assert prices.find("chat", "m", "eu") == Price(per_task=Decimal("0.5"))
    assert prices.find("chat", "m", "us") == Price(per_task=Decimal(1))
    alone = PRICED.split('[[agents.pool]]\nurl = "openai:https://us')[0]
    (tmp_path / "d.toml").write_text(f'[prices]\ncurrency = "EUR"\n{alone}')
    assert load(tmp_path / "d.toml", {}, {}).prices.find("chat", "m") == Price(per_task=Decimal("0.5"))


def test_the_price_of_a_member_is_in_a_currency(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text(PRICED)
    with pytest.raises(ConfigError, match="must be set, as chat/eu has a price"):
        load(tmp_path / "d.toml", {}, {})


def test_an_agent_of_the_file_has_a_pool_of_one(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text('[[agents]]\nid = "p"\nrun = "a2a:https://a"\n')
    (entry,) = load(tmp_path / "d.toml", {}, {}).agents
    assert entry.pool is not None
    assert entry.upstream is entry.pool.members[0].upstream


def test_the_file_makes_one_agent_of_all_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("B", "hidden")
    members = '[[agents.pool]]\nurl = "a2a:https://a"\n[[agents.pool]]\nurl = "a2a:https://b"\n'
    text = f'[[agents]]\nid = "p"\n{members}credentials = {{ env = "B" }}\n'
    (tmp_path / "d.toml").write_text(text)
    (agent,) = load_agents(load(tmp_path / "d.toml", {}, {}).agents, (), None)
    assert isinstance(agent, UpstreamAgent)
    assert [route.label for route in agent.pool.routes] == ["p/a", "p/b"]
    (tmp_path / "d.toml").write_text(text + 'headers = ["authorization"]\n')
    with pytest.raises(ConfigError, match="no such setting"):
        load(tmp_path / "d.toml", {}, {})
    (tmp_path / "d.toml").write_text(text.replace('id = "p"', 'id = "p"\nheaders = ["authorization"]'))
    with pytest.raises(ConfigError, match=r"set credentials = \{"):
        load(tmp_path / "d.toml", {}, {})
