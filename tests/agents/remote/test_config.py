"""`run = "a2a:https://…"` in the file, and the agent that it makes."""

import re
from pathlib import Path

import pytest

from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.cli.loader import load_agents
from dragoman.cli.references import AgentReferenceError
from dragoman.config import Config, ConfigError, load

HEAD = '[[agents]]\nid = "partner"\nrun = "a2a:https://host/agent"\n'

EXCHANGE = "exchange = true, token_url = 'https://issuer/token', client_id = 'us', env = 'X'"
TO = "audience = 'https://host'"


def read(tmp_path: Path, text: str) -> Config:
    (tmp_path / "d.toml").write_text(text)
    return load(tmp_path / "d.toml", {}, {})


def test_its_keys_are_read_and_the_rest_has_defaults(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, HEAD + 'dedupes = true\nfailures = 3\norigins = ["https://other"]\n').agents
    assert entry.upstream is not None
    assert (entry.upstream.url, entry.upstream.dedupes, entry.upstream.failures) == ("https://host/agent", True, 3)
    assert (entry.upstream.card_s, entry.upstream.credentials) == (300.0, None)
    assert entry.upstream.double_base64 is False
    (twice,) = read(tmp_path, HEAD + "double_base64 = true\n").agents
    assert twice.upstream is not None
    assert twice.upstream.double_base64 is True


def test_it_may_be_at_an_address_over_grpc(tmp_path: Path) -> None:
    said = '[[agents]]\nid = "p"\nrun = "a2a:grpcs://10.0.0.7:50051"\ndialect = "1.0"\norigins = ["grpc://b:1"]\n'
    (entry,) = read(tmp_path, said).agents
    assert entry.upstream is not None
    assert (entry.upstream.url, entry.upstream.origins) == ("grpcs://10.0.0.7:50051", ("grpc://b:1",))
    (entry,) = read(tmp_path, HEAD + 'binding = "GRPC"\ngrpc_tls = false\n').agents
    assert entry.upstream is not None
    assert (entry.upstream.binding, entry.upstream.grpc_tls) == ("GRPC", False)
    (agent,) = load_agents((entry,), (), None)
    assert isinstance(agent, UpstreamAgent)


def test_the_keys_of_its_card_are_one_place_or_several(tmp_path: Path) -> None:
    for said, places in (('"keys.json"', ("keys.json",)), ('["a", "https://b/c"]', ("a", "https://b/c"))):
        (entry,) = read(tmp_path, HEAD + f"card_keys = {said}\n").agents
        assert entry.upstream is not None
        assert entry.upstream.key_places == places
    (agent,) = load_agents((entry,), (), None)
    assert isinstance(agent, UpstreamAgent)
    assert agent.route.access.keys is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[[agents]]\nid = "p"\nrun = "a2a:ftp://host"\n',
            "run = 'a2a:ftp://host': must be a2a: and the http:// or https:// URL",
        ),
        ('[[agents]]\nid = "p"\nrun = "a2a:"\n', "must be a2a: and the http:// or https:// URL"),
        ('[[agents]]\nid = "p"\nrun = "a2a:https://u:secret@host/"\n', "must not hold a password"),
        ('[[agents]]\nid = "p"\nrun = "a2a:grpc://host:1"\n', "dialect: must say which version is spoken there"),
        ('[[agents]]\nid = "p"\nrun = "a2a:grpc://host:1/x"\ndialect = "1.0"\n', "must be a2a:grpc://host:port"),
        (HEAD + 'binding = "SMTP"\n', "must be one of JSONRPC, HTTP+JSON, GRPC"),
        (HEAD + "failures = 0\n", "must be a whole number from 1 to 1000"),
        (HEAD + 'dialect = "2.0"\n', "must be one of 1.0, 0.3, beeos"),
        (HEAD + 'card_keys = ""\n', "of a JWK Set, or a list of such"),
        (HEAD + "card_keys = []\n", "of a JWK Set, or a list of such"),
        (HEAD + "card_keys = 5\n", "of a JWK Set, or a list of such"),
        (HEAD + 'card_keys = ["ftp://host/keys"]\n', "of a JWK Set, or a list of such"),
        (HEAD + "lease_s = 5\n", 'is for agents with run = "worker" only'),
        (HEAD + "double_base64 = 2\n", "must be true or false"),
        (HEAD + 'credentials = "secret-key"\n', "must be one of {"),
        (HEAD + 'credentials = { forward = true, env = "X" }\n', "must be one of {"),
        (HEAD + 'credentials = { header = "x-api-key" }\n', "must be one of {"),
        (HEAD + 'credentials = { env = "not a name" }\n', "must be one of {"),
        (HEAD + 'credentials = { env = "X", token_url = "https://t" }\n', "must be one of {"),
        (HEAD + 'credentials = { key = "secret-key" }\n', "no such setting"),
        (HEAD + 'credentials = { exchange = true, env = "X" }\n', "an exchange needs token_url, client_id, env, and"),
        (HEAD + f"credentials = {{ {EXCHANGE} }}\n", "the audience or the resource of the other server"),
        (HEAD + f"credentials = {{ {EXCHANGE}, {TO}, forward = true }}\n", "cannot be there beside forward or header"),
        (HEAD + f"credentials = {{ {EXCHANGE}, {TO}, header = 'x' }}\n", "cannot be there beside forward or header"),
        (HEAD + f"credentials = {{ {EXCHANGE[16:]}, resource = 'https://b' }}\n", "is for an exchange only"),
        (
            HEAD + f"credentials = {{ {EXCHANGE[16:]}, {TO}, exchange = 'on' }}\n",
            "must be true, or a table of actor_aud",
        ),
        (HEAD + f"credentials = {{ {EXCHANGE[16:]}, {TO}, exchange = {{ scop = 1 }} }}\n", "did you mean scopes?"),
        (
            HEAD + f"credentials = {{ {EXCHANGE[16:]}, {TO}, exchange = {{ scopes = 5 }} }}\n",
            "must be true, or a table",
        ),
        (
            HEAD + f"credentials = {{ {EXCHANGE[16:]}, {TO}, exchange = {{ subject_type = 'saml' }} }}\n",
            "must be access_token, id_token, jwt, or the URI of a token type",
        ),
        (
            HEAD + f"credentials = {{ {EXCHANGE[16:]}, {TO}, scope = 'a', exchange = {{ scopes = {{ a = 'b' }} }} }}\n",
            "is there beside scope",
        ),
        (
            HEAD + f"credentials = {{ {EXCHANGE[16:]}, {TO}, exchange = {{ actor_audience = 'b' }} }}\n",
            "set actor_token = true",
        ),
        (HEAD + f"headers = ['x-api-key']\ncredentials = {{ {EXCHANGE}, {TO} }}\n", "is a credential, or belongs to"),
        ('[[agents]]\nid = "p"\nrun = "worker"\ndedupes = true\n', 'is for agents with run = "a2a:https://…" only'),
    ],
)
def test_what_is_wrong_is_named_and_no_secret_is_shown(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)) as raised:
        read(tmp_path, text)
    assert "secret" not in str(raised.value)


def test_a_secret_that_the_environment_does_not_have_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = read(tmp_path, HEAD + 'credentials = { header = "x-api-key", env = "PARTNER_KEY" }\n')
    monkeypatch.delenv("PARTNER_KEY", raising=False)
    with pytest.raises(AgentReferenceError, match="the environment has no PARTNER_KEY"):
        load_agents(config.agents, (), None)
    monkeypatch.setenv("PARTNER_KEY", "hidden-value")
    (agent,) = load_agents(config.agents, (), None)
    assert isinstance(agent, UpstreamAgent)
    assert "hidden-value" not in repr(vars(agent))


def test_an_exchange_is_read_and_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "hidden-value")
    more = "exchange = { actor_token = true, actor_type = 'jwt', subject_type = 'urn:x', scopes = { a = 'b c' } }"
    config = read(tmp_path, HEAD + f"credentials = {{ {EXCHANGE[16:]}, {TO}, resource = 'https://r', {more} }}\n")
    (agent,) = load_agents(config.agents, (), None)
    assert isinstance(agent, UpstreamAgent)
    assert (agent.traits.exchanges, agent.traits.forwards) == (True, False)
    agent.route.access.open()
    assert agent.route.access.exchange is not None
    terms = agent.route.access.exchange.terms
    assert (terms.audience, terms.resource, terms.scopes) == ("https://host", "https://r", {"a": ("b", "c")})
    assert (terms.subject_type, terms.actor_type) == ("urn:x", "urn:ietf:params:oauth:token-type:jwt")
    assert "hidden-value" not in repr(vars(agent))


def test_until_its_card_is_read_it_says_what_the_file_says(tmp_path: Path) -> None:
    text = 'name = "Partner"\ndescription = "Does it"\n[[agents.skills]]\nid = "go"\nname = "Go"\n'
    (agent,) = load_agents(read(tmp_path, HEAD + text).agents, (), None)
    assert (agent.profile.id, agent.profile.name, agent.profile.description) == ("partner", "Partner", "Does it")
    assert [(skill.id, skill.name) for skill in agent.profile.skills] == [("go", "Go")]
