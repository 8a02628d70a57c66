"""The table of an agent that is a model: what is read, and what is refused by its place."""

from pathlib import Path

import pytest

from dragoman.cli.entries import make_agent
from dragoman.cli.references import AgentReferenceError
from dragoman.config import ConfigError, Model, load

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "agents" / "openai.md"

TABLE = """
[[agents]]
id = "chat"
run = "openai:http://localhost:11434/v1"
"""


def read(tmp_path: Path, keys: str) -> Model:
    file = tmp_path / "dragoman.toml"
    file.write_text(TABLE + keys)
    (entry,) = load(file, {}, {}).agents
    assert entry.model is not None
    return entry.model


def test_the_shortest_table_is_a_model(tmp_path: Path) -> None:
    model = read(tmp_path, 'model = "small"\n')
    assert (model.url, model.model, model.coalesce_ms) == ("http://localhost:11434/v1", "small", 30.0)


def test_files_are_read_when_the_table_is(tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("Be brief.")
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    keys = f'system_file = "{tmp_path}/system.txt"\nschema_file = "{tmp_path}/schema.json"\n'
    model = read(tmp_path, f'model = "small"\n{keys}')
    assert (model.system, model.schema) == ("Be brief.", {"type": "object"})


@pytest.mark.parametrize(
    ("keys", "key", "allowed"),
    [
        ("", "model", "must name the model"),
        ('model = ""', "model", "must name the model"),
        ('model = "m"\ntemperature = "hot"', "temperature", "from 0 to 10"),
        ('model = "m"\ntop_p = 2', "top_p", "from 0 to 1"),
        ('model = "m"\nmax_tokens = 0', "max_tokens", "at least 1"),
        ('model = "m"\nstop = "END"', "stop", "list of texts"),
        ('model = "m"\ncredentials = "sk-secret"', "credentials", '{ env = "NAME" }'),
        ('model = "m"\ncredentials = { env = "sk-secret" }', "credentials", '{ env = "NAME" }'),
        ('model = "m"\ncredentials = { env = "A", header = "a b" }', "credentials", '{ env = "NAME" }'),
        ('model = "m"\ncredentials = { key = "sk-secret" }', "credentials.key", "no such setting"),
        ('model = "m"\nextra = { stream = false }', "extra.stream", "said by the agent itself"),
        ('model = "m"\nsystem = "a"\nsystem_file = "b"', "system_file", "beside system"),
        ('model = "m"\nsystem_file = "/nowhere/at/all"', "system_file", "No such file"),
        ('model = "m"\ntakes = ["video"]', "takes[0]", "image_url"),
        ('model = "m"\non_refusal = "shrug"', "on_refusal", "reject, fail or answer"),
        ('model = "m"\ncoalesce_ms = -1', "coalesce_ms", "from 0 to 10000"),
        ('model = "m"\ncoalesce_ms = 300\nidle_s = 1', "coalesce_ms", "a quarter of idle_s, which is 1 s"),
        ('model = "m"\ntools = "mcp:x"', "tools", "must be tables"),
        ('model = "m"\nschema = "x"', "schema", "JSON Schema"),
    ],
)
def test_a_wrong_key_is_named_with_what_is_allowed_and_no_secret(
    tmp_path: Path, keys: str, key: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, keys)
    assert caught.value.key == f"agents[0].{key}"
    assert allowed in caught.value.allowed
    assert "sk-secret" not in str(caught.value)


def test_a_key_that_is_not_in_the_environment_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAT_KEY", raising=False)
    file = tmp_path / "dragoman.toml"
    file.write_text(TABLE + 'model = "small"\ncredentials = { env = "CHAT_KEY" }\n')
    (entry,) = load(file, {}, {}).agents
    with pytest.raises(AgentReferenceError, match="CHAT_KEY"):
        make_agent(entry)


def blocks(text: str) -> list[str]:
    """The blocks of TOML that are whole tables."""
    found = [block.partition("```")[0] for block in text.split("```toml\n")[1:]]
    return [block for block in found if block.startswith("[[agents]]")]


@pytest.mark.parametrize(
    "text", [*blocks(PAGE.read_text(encoding="utf-8")), (ROOT / "examples" / "models.toml").read_text(encoding="utf-8")]
)
def test_what_is_shown_can_be_served(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "EU_KEY", "AZURE_KEY"):
        monkeypatch.setenv(name, "x")
    file = tmp_path / "dragoman.toml"
    file.write_text(text)
    for entry in load(file, {}, {}).agents:
        assert make_agent(entry).profile.id == entry.id
