"""The settings of client commands: which source wins, and what a file that was only found may not do."""

from pathlib import Path

import pytest

from dragoman.cli.a2a.settings import Level, Settings, load_settings
from tests.cli.a2a.command import Shell


def settings(tmp_path: Path, *, flags: dict[str, list[str]] | None = None, **environment: str) -> Settings:
    return load_settings(flags or {}, environment=environment, folder=tmp_path / "work", home=tmp_path / "home")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "home/.config/a2a-cli").mkdir(parents=True)
    (tmp_path / "work/deep").mkdir(parents=True)
    return tmp_path


def write_global(files: Path, text: str) -> None:
    path = files / "home/.config/a2a-cli/.env"
    path.write_text(text)
    path.chmod(0o600)


@pytest.mark.requirement("CONFIG_002")
def test_a_flag_wins_over_the_environment_over_the_local_file_over_the_global_one(files: Path) -> None:
    assert settings(files)["output"].level is Level.DEFAULT
    write_global(files, "A2ACLI_OUTPUT=global\n")
    assert settings(files).text("output") == "global"
    (files / "work/.env").write_text("export A2ACLI_OUTPUT='local' \nOTHER=1\n")
    assert settings(files).text("output") == "local"
    assert settings(files, A2ACLI_OUTPUT="environment").text("output") == "environment"
    both = settings(files, flags={"output": ["flag"]}, A2ACLI_OUTPUT="environment")
    assert (both.text("output"), both["output"].level) == ("flag", Level.FLAG)


@pytest.mark.requirement("CONFIG_002")
def test_the_nearest_file_above_the_working_directory_is_found(files: Path) -> None:
    (files / ".env").write_text("A2ACLI_OUTPUT=far\nA2ACLI_HISTORY=7\n")
    (files / "work/.env").write_text("A2ACLI_OUTPUT=near\n")
    found = load_settings({}, environment={}, folder=files / "work/deep", home=files / "home")
    assert (found.text("output"), found.text("history")) == ("near", "")


@pytest.mark.requirement("CONFIG_002")
def test_a_named_file_takes_the_place_of_the_found_one(files: Path) -> None:
    (files / "work/.env").write_text("A2ACLI_OUTPUT=found\n")
    (files / "other.env").write_text("A2ACLI_OUTPUT=named\n")
    for found in (
        settings(files, flags={"config": [str(files / "other.env")]}),
        settings(files, A2ACLI_CONFIG=str(files / "other.env")),
    ):
        assert (found.text("output"), found["output"].level) == ("named", Level.NAMED_FILE)


@pytest.mark.parametrize("name", ["INSECURE", "CA_CERT", "TRUST_ORIGIN", "CARD_KEYS"])
def test_a_found_file_cannot_weaken_tls_or_widen_trust(files: Path, name: str) -> None:
    (files / "work/.env").write_text(f"A2ACLI_{name}=true\n")
    found = settings(files)
    setting = name.lower().replace("_", "-")
    assert found[setting].level is Level.DEFAULT
    assert any(f"A2ACLI_{name}" in warning and "--config" in warning for warning in found.warnings)
    named = settings(files, flags={"config": [str(files / "work/.env")]})
    assert named.text(setting) == "true"


def test_credentials_go_only_where_their_source_may_send_them(files: Path) -> None:
    (files / "work/.env").write_text("A2ACLI_AGENT_CARD=https://stranger.example\n")
    write_global(files, "A2ACLI_AGENT_CARD=https://mine.example\nA2ACLI_API_KEY=k\n")
    found = settings(files, A2ACLI_BEARER="secret")
    assert found.text("agent-card") == "https://stranger.example"
    assert found.bound_to("bearer") == ""  # the agent was only found
    assert found.bound_to("api-key") == "https://mine.example"
    named = settings(files, flags={"agent-card": ["https://mine.example"]}, A2ACLI_BEARER="secret")
    assert named.bound_to("bearer") is None


def test_a_global_credential_without_an_agent_goes_nowhere(files: Path) -> None:
    write_global(files, "A2ACLI_BEARER=secret\n")
    assert settings(files, A2ACLI_AGENT_CARD="https://a.example").bound_to("bearer") == ""


@pytest.mark.requirement("CONFIG_001")
def test_a_file_with_a_secret_that_others_can_read_is_reported(files: Path) -> None:
    (files / "work/.env").write_text("A2ACLI_BEARER=secret\nA2ACLI_TYPO=1\n")
    (files / "work/.env").chmod(0o644)
    warnings = " ".join(settings(files).warnings)
    assert "chmod 600" in warnings
    assert "A2ACLI_TYPO" in warnings


@pytest.mark.requirement("OUT_002")
def test_stream_never_comes_from_the_environment_or_a_file(shell: Shell, demo: str) -> None:
    (shell.work / ".env").write_text("A2ACLI_STREAM=true\n")
    ran = shell.run("send", "-a", demo, "hello", "-o", "json", A2ACLI_STREAM="true")
    assert list(ran.json) == ["task"]  # one document


@pytest.mark.requirement("CONFIG_001", "CONFIG_002")
def test_config_show_tells_every_value_with_its_source_and_no_secret(shell: Shell) -> None:
    (shell.work / ".env").write_text("A2ACLI_TIMEOUT=30s\nA2ACLI_API_KEY=file-secret\n")
    words = ("config", "show", "--bearer", "flag-secret", "--svc-param", "x-key: param-secret")
    shown = shell.run(*words, A2ACLI_AGENT_CARD="https://a.example")
    assert shown.status == 0
    assert shown.fields["timeout"] == f"30s ({shell.work / '.env'})"
    assert shown.fields["agent-card"] == "https://a.example (environment)"
    assert shown.fields["bearer"] == "[redacted] (flag)"
    assert shown.fields["output"] == "text (default)"
    documents = shell.run(*words, "-o", "json")
    printed = shown.out + shown.err + documents.out + documents.err
    assert not any(secret in printed for secret in ("file-secret", "flag-secret", "param-secret"))
    assert {row["name"] for row in documents.json["settings"]} >= {"agent-card", "transport", "a2a-version"}
