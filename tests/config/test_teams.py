"""The tables of teams in the file: what they say, and what is refused with the fix."""

from typing import Any

import pytest

from dragoman.config import ConfigError, TeamEntry, TeamLimits, load_table


def read(*tables: Any) -> tuple[TeamEntry, ...]:
    return load_table("file", {"teams": list(tables)}, {}, {}).teams


def test_a_team_is_read_as_it_is_written() -> None:
    full = {
        "id": "search",
        "claim": "groups",
        "value": "search-eu",
        "agents": ["echo", "other"],
        "limits": {"max_open_tasks": 20, "max_daily_tokens": 2_000_000},
        "shared": "read",
    }
    assert read(full, {"id": "b"}) == (
        TeamEntry(
            id="search",
            claim="groups",
            value="search-eu",
            agents=("echo", "other"),
            limits=TeamLimits(max_open_tasks=20, max_daily_tokens=2_000_000),
            shared="read",
        ),
        TeamEntry(id="b"),
    )
    assert load_table("file", {}, {}, {}).teams == ()


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ([{}], "teams[0]: must have the key id"),
        ([{"id": "a/b"}], "teams[0].id = 'a/b': must be 1 to 64 letters"),
        ([{"id": 7}], "teams[0].id = 7: must be text"),
        ([{"id": "a"}, {"id": "a"}], "teams[1].id = 'a': stands twice: give each team an id of its own"),
        ([{"id": "a", "claim": "groups"}], "teams[0].claim = 'groups': goes with value: set both, or leave both out"),
        ([{"id": "a", "value": "x"}], "teams[0].value = 'x': goes with claim: set both, or leave both out"),
        ([{"id": "a", "claim": "", "value": "x"}], "teams[0].claim = '': must have 1 to 200 characters"),
        (
            [{"id": "a", "claim": "g", "value": "x"}, {"id": "b", "claim": "g", "value": "x"}],
            "teams[1].value = 'x': is that of team a, too: a token is in one team",
        ),
        ([{"id": "a", "agents": []}], "teams[0].agents = []: must name at least one agent, or be left out for all"),
        ([{"id": "a", "agents": "echo"}], "teams[0].agents = 'echo': must be a list of ids of agents"),
        ([{"id": "a", "agents": ["a b"]}], "teams[0].agents[0] = 'a b': must be the id of an agent"),
        ([{"id": "a", "shared": "some"}], 'teams[0].shared = \'some\': must be "none", "read" or "all"'),
        ([{"id": "a", "limits": 5}], "teams[0].limits = 5: must be a table"),
        ([{"id": "a", "limits": {"max_open_tasks": 0}}], "teams[0].limits.max_open_tasks = 0: must be a whole number"),
        ([{"id": "a", "limits": {"max_open": 1}}], "teams[0].limits.max_open = 1: no such setting; did you mean"),
        ([{"id": "a", "share": "read"}], "teams[0].share: no such setting; did you mean shared?"),
        ([7], "must be tables: write [[teams]] before each"),
    ],
)
def test_a_table_that_cannot_be_used_names_the_field_and_the_fix(tables: list[Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(*tables)
    assert words in str(refused.value)
