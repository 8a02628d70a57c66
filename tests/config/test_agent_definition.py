"""Definitions of agents that operators add: what they may say, and where an error is."""

from typing import Any

import pytest

from dragoman.config import ConfigError
from dragoman.config.agent_definition import (
    COMMON_KEYS,
    FILE_KEYS,
    MODEL_KEYS,
    UPSTREAM_KEYS,
    part_secrets,
    read_definition,
)
from dragoman.config.agents import KINDS, AgentEntry
from tests.net.hostile import ODD

HOST = "https://partner.example.com"
UPSTREAM: dict[str, Any] = {"run": f"a2a:{HOST}/agents/weather"}
MODEL: dict[str, Any] = {"run": "openai:https://models.example.com/v1", "model": "small"}
TOOL: dict[str, Any] = {"run": "mcp:https://tools.example.com/mcp"}


def fault(table: dict[str, Any], agent_id: str = "partner") -> tuple[str, str]:
    """The place of the fault in a definition, and what is allowed there."""
    with pytest.raises(ConfigError) as refused:
        bare, secrets = part_secrets(table)
        definition = read_definition(agent_id, bare)
        assert set(secrets) <= set(definition.secrets)
    assert refused.value.value is None  # it may be a secret in the wrong place
    return refused.value.key, refused.value.allowed


def test_a_definition_is_read_as_a_table_of_the_file_is() -> None:
    table = {**UPSTREAM, "name": "Partner", "deadline_s": 60, "skills": [{"id": "x"}], "headers": ["x-tenant"]}
    entry = read_definition("partner", table).entry
    assert (entry.id, entry.name, entry.deadline_s, entry.headers) == ("partner", "Partner", 60.0, ("x-tenant",))
    assert entry.upstream is not None
    assert read_definition("small", {**MODEL, "system": "Be brief."}).entry.model is not None


def test_secrets_are_apart_and_bound_to_the_origins_that_get_them() -> None:
    table = {
        **UPSTREAM,
        "card": "https://cards.example.com/card.json",
        "origins": ["https://other.example.com", "grpcs://rpc.example.com:443"],
        "card_keys": "https://keys.example.com/jwks.json",
        "credentials": {
            "token_url": "https://id.example.com/token",
            "client_id": "us",
            "value": "s3cr3t",
        },
    }
    bare, secrets = part_secrets(table)
    assert secrets == {"credentials": "s3cr3t"}
    assert "s3cr3t" not in repr(bare)
    assert table["credentials"]["value"] == "s3cr3t"  # the operator's own stays as it is
    definition = read_definition("partner", bare)
    assert definition.secrets == {
        "credentials": (
            "grpcs://rpc.example.com:443",
            "https://cards.example.com:443",
            "https://id.example.com:443 (token_url)",
            "https://other.example.com:443",
            "https://partner.example.com:443",
        )
    }
    assert {to.host for to in definition.targets.values()} == {
        *("partner.example.com", "cards.example.com", "other.example.com", "rpc.example.com", "id.example.com"),
        "keys.example.com",
    }


def test_each_server_of_tools_has_a_secret_of_its_own() -> None:
    tools = [{**TOOL, "credentials": {"value": "a"}}, {"run": "mcp:https://more.example.com", "name": "more"}]
    bare, secrets = part_secrets({**MODEL, "credentials": {"value": "b"}, "tools": tools})
    assert secrets == {"credentials": "b", "tools[0].credentials": "a"}
    assert read_definition("small", bare).secrets == {
        "credentials": ("https://models.example.com:443",),
        "tools[0].credentials": ("https://tools.example.com:443",),
    }


def test_a_secret_for_a_token_url_is_none_for_an_agent_at_that_place() -> None:
    issued = {"token_url": "https://id.example.com/token", "client_id": "us"}
    bound = [
        read_definition("partner", {**UPSTREAM, "credentials": issued, **more}).secrets["credentials"]
        for more in (
            {},
            {"run": "a2a:https://id.example.com", "credentials": {**issued, "token_url": f"{HOST}/token"}},
            {"origins": ["https://id.example.com"], "credentials": {}},
        )
    ]
    assert len(set(bound)) == 3


@pytest.mark.parametrize(
    ("table", "passed"),
    [
        ({**UPSTREAM, "credentials": {"header": "x-key"}}, {}),
        ({**UPSTREAM, "credentials": {"forward": True}, "card_keys": f"{HOST}/keys"}, {"run": "forward"}),
        (
            {**UPSTREAM, "headers": ["x-tenant"], "card": f"{HOST}/card", "origins": [HOST]},
            {"run": "headers", "card": "headers", "origins[0]": "headers"},
        ),
        (
            {**MODEL, "credentials": {"exchange": True, "token_url": HOST, "client_id": "us", "audience": "m"}},
            {"run": "exchange", "credentials.token_url": "exchange"},
        ),
        (
            {"pool": [{"url": f"a2a:{HOST}"}, {"url": f"a2a:{HOST}/b", "credentials": {"forward": True}}]},
            {"pool[1].url": "forward"},
        ),
        (
            {
                **MODEL,
                "tools": [
                    {**TOOL, "credentials": {"exchange": {}, "token_url": HOST, "client_id": "u", "audience": "m"}}
                ],
            },
            {"tools[0].run": "exchange", "tools[0].credentials.token_url": "exchange"},
        ),
    ],
)
def test_a_definition_says_which_hosts_get_what_callers_send(table: dict[str, Any], passed: dict[str, str]) -> None:
    definition = read_definition("partner", table)
    assert definition.passed == passed
    assert (definition.find_unnamed(lambda host: False) is None) is not bool(passed)
    assert definition.find_unnamed({to.host for to in definition.targets.values()}.__contains__) is None


FILE_ALONE = "is set in the file alone: leave it out"


@pytest.mark.parametrize(
    ("table", "place", "allowed"),
    [
        ({}, "run", "must be a2a: and the URL"),
        *(
            ({"run": run}, "run", "must be a2a: and the URL")
            for run in (
                "python:os:system",
                "os:system",
                "agents.py:echo",
                "command:/bin/sh",
                "worker",
                "mcp:https://x",
                "",
            )
        ),
        ({"run": 7}, "run", "must be a2a: and the URL"),
        ({"run": ["command:/bin/sh"]}, "run[0]", "must be a2a: or openai: and a URL"),
        ({"pool": [{"url": "command:/bin/sh"}]}, "pool[0].url", "must be a2a: or openai: and a URL"),
        ({**MODEL, "system_file": "/etc/passwd"}, "system_file", FILE_ALONE),
        ({**MODEL, "schema_file": "/etc/passwd"}, "schema_file", FILE_ALONE),
        ({**UPSTREAM, "api_key": "sesame"}, "api_key", FILE_ALONE),
        (
            {"pool": [{"url": "openai:https://a.example", "price": {"per_task": 1}}], "model": "m"},
            "pool[0].price",
            FILE_ALONE,
        ),
        ({**UPSTREAM, "credentials": {"env": "HOME"}}, "credentials.env", FILE_ALONE),
        ({**UPSTREAM, "credentials": {"env": "HOME", "value": "x"}}, "credentials.env", FILE_ALONE),
        ({**MODEL, "credentials": {"env": "AWS_SECRET_ACCESS_KEY"}}, "credentials.env", FILE_ALONE),
        ({**MODEL, "tools": [{**TOOL, "env": ["HOME"]}]}, "tools[0].env", FILE_ALONE),
        ({**MODEL, "tools": [{**TOOL, "credentials": {"env": "HOME"}}]}, "tools[0].credentials.env", FILE_ALONE),
        ({**MODEL, "tools": [{"run": "mcp:command:/bin/sh -c id"}]}, "tools[0].run", "programs come from the file"),
        ({**MODEL, "tools": [{"run": "mcp:  command:/bin/sh"}]}, "tools[0].run", "programs come from the file"),
        ({**UPSTREAM, "card_keys": "/etc/passwd"}, "card_keys", "must be the http:// or https:// URL"),
        (
            {**UPSTREAM, "card_keys": ["https://x.example/k", "keys.json"]},
            "card_keys",
            "must be the http:// or https://",
        ),
        ({**UPSTREAM, "card_keys": "file:///etc/passwd"}, "card_keys", "must be the file, or the http://"),
        ({**UPSTREAM, "card": "file:///etc/passwd"}, "card", "must be a URL that is spelled plainly (use http://"),
        ({**UPSTREAM, "nam": "x"}, "nam", "did you mean name?"),
        ({**UPSTREAM, "name": 7}, "name", "must be text"),
        ({**UPSTREAM, "model": "x"}, "model", "is for agents with run ="),
        ({**UPSTREAM, "deadline_s": 0}, "deadline_s", "must be a number of seconds"),
        ({**UPSTREAM, "credentials": "sesame"}, "credentials", "must be one of"),
        ({**UPSTREAM, "credentials": {}}, "credentials.value", ""),
        ({**UPSTREAM, "credentials": {"value": ""}}, "credentials.value", "must be plain text"),
        ({**UPSTREAM, "credentials": {"value": "a\r\nx-api-key: b"}}, "credentials.value", "must be plain text"),
        ({**UPSTREAM, "credentials": {"value": "é"}}, "credentials.value", "must be plain text"),
        ({**UPSTREAM, "credentials": {"value": 7}}, "credentials.value", "must be plain text"),
        ({**UPSTREAM, "credentials": {"header": "host", "value": "x"}}, "credentials.header", "of this server"),
        (
            {**UPSTREAM, "credentials": {"header": "a\r\nb", "value": "x"}},
            "credentials.header",
            "must be the name of a",
        ),
        (
            {**UPSTREAM, "credentials": {"header": "x", "token_url": HOST, "client_id": "u"}},
            "credentials",
            "must be one",
        ),
        ({**UPSTREAM, "headers": ["authorization"]}, "headers[0]", "is a credential"),
        ({**UPSTREAM, "description": "x" * 70_000}, "", "must be at most 65536 bytes of JSON"),
    ],
)
def test_what_only_the_file_may_say_and_what_nobody_may_names_its_place(
    table: dict[str, Any], place: str, allowed: str
) -> None:
    if place == "credentials.value" and not allowed:
        assert read_definition("partner", table).secrets == {"credentials": ("https://partner.example.com:443",)}
        return
    found, said = fault(table)
    assert found == place
    assert allowed in said


@pytest.mark.parametrize("agent_id", ["admin", "tasks", ".well-known", "a/b", "", "../x", "a b", "x" * 65, "é"])
def test_an_id_that_no_agent_may_have_is_refused(agent_id: str) -> None:
    assert fault(UPSTREAM, agent_id)[0] == "id"


PLACES: dict[str, Any] = {
    "run": lambda url: {"run": f"a2a:{url}"},
    "card": lambda url: {**UPSTREAM, "card": url if "://" in url else f"x://{url}"},
    "origins[0]": lambda url: {**UPSTREAM, "origins": [url]},
    "card_keys[0]": lambda url: {**UPSTREAM, "card_keys": [url if "://" in url else f"x://{url}"]},
    "credentials.token_url": lambda url: {
        **UPSTREAM,
        "credentials": {"token_url": url, "client_id": "us", "value": "x"},
    },
    "model": lambda url: {**MODEL, "run": f"openai:{url}"},
    "tools[0].run": lambda url: {**MODEL, "tools": [{"run": f"mcp:{url}"}]},
}


@pytest.mark.parametrize("place", PLACES)
def test_a_url_in_another_spelling_than_its_plainest_is_refused_wherever_it_stands(place: str) -> None:
    """Two parsers could read it differently: one that checks it, and one that dials it."""
    for url in ODD:
        if url.strip() in ("http://127.0.0.1:PORT/",):  # the file's reader takes spaces around a URL away, as ours does
            continue
        found, _ = fault(PLACES[place](url.replace("PORT", "8080")))
        assert found.split("[")[0].split(".")[0] == ("run" if place == "model" else place.split("[")[0].split(".")[0])


def test_every_key_of_the_file_is_either_taken_or_refused_by_name() -> None:
    known = {*AgentEntry.__struct_fields__, *(key for kind in KINDS[:2] for key in kind.keys)}
    taken = {*COMMON_KEYS, *UPSTREAM_KEYS, *MODEL_KEYS}
    assert known - taken - {*FILE_KEYS} == {"id", "upstream", "program"}
