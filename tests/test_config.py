"""Settings: where they come from, what is refused and how, and that code, help and documentation agree."""

import contextlib
import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.config import Config, ConfigError, load, loopback, settings
from dragoman.store.path import hide_password, store_path


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "dragoman.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refusal(tmp_path: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text), {}, {})
    return caught.value


def test_without_any_source_every_setting_has_its_default() -> None:
    assert load(None, {}, {}) == Config()


def test_the_environment_wins_over_the_file_and_flags_win_over_both(tmp_path: Path) -> None:
    file = written(tmp_path, "port = 1001\nmax_parts = 11\nmax_depth = 21\n")
    config = load(
        file,
        {"DRAGOMAN_MAX_PARTS": "12", "DRAGOMAN_MAX_DEPTH": "22"},
        {"max_depth": "23"},
    )
    assert (config.port, config.max_parts, config.max_depth) == (1001, 12, 23)


def test_the_shared_key_can_be_in_a_file_of_its_own(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(" s3cret\n")
    assert load(written(tmp_path, f'api_key_file = "{key}"\n'), {}, {}).api_key == "s3cret"
    assert load(None, {"DRAGOMAN_API_KEY_FILE": str(key)}, {}).api_key == "s3cret"
    for text, said in (
        ("", "is empty: write the secret into it"),
        ("\udcff", "cannot be read: it is not text"),
        ("s3cret\nother\n", "holds more than one line"),
    ):
        key.write_text(text, errors="surrogateescape")
        with pytest.raises(ConfigError, match=said):
            load(None, {}, {"api_key_file": str(key)})
    for flags, said in (
        ({"api_key_file": str(tmp_path / "nowhere")}, "cannot be read: No such file or directory"),
        ({"api_key_file": str(key), "api_key": "other"}, "is set beside api_key: leave one of them out"),
    ):
        with pytest.raises(ConfigError, match=said):
            load(None, {}, flags)


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load(None, {"DRAGOMAN_PORT": ""}, {}).port == 7870


def test_a_variable_that_is_no_setting_is_ignored() -> None:
    assert load(None, {"DRAGOMAN_SERVICE_HOST": "10.0.0.1"}, {}) == Config()


def test_a_wrong_value_in_the_file_names_file_key_value_and_what_is_allowed(tmp_path: Path) -> None:
    error = refusal(tmp_path, "port = 70000\n")
    assert str(error) == f"{tmp_path}/dragoman.toml: port = 70000: must be a whole number from 0 to 65535"


def test_a_wrong_variable_names_the_variable() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"DRAGOMAN_LOG_FORMAT": "xml"}, {})
    assert str(caught.value) == "environment: DRAGOMAN_LOG_FORMAT = 'xml': must be text or json"


def test_a_wrong_flag_names_the_flag() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {}, {"store": "sqlite://x"})
    assert str(caught.value) == (
        "command line: --store = 'sqlite://x': use sqlite:///path (sqlite:////path from the root), "
        "postgresql://user@host/database or memory:"
    )


def test_a_wrong_value_is_refused_even_if_a_later_source_would_win(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="port = 'x'"):
        load(written(tmp_path, 'port = "x"\n'), {}, {"port": "80"})


def test_an_unknown_key_is_refused_with_the_nearest_setting(tmp_path: Path) -> None:
    error = refusal(tmp_path, "prot = 80\n")
    assert str(error).endswith("dragoman.toml: prot = 80: no such setting; did you mean port?")


def test_an_unknown_key_that_is_near_nothing_is_refused_with_all_settings(tmp_path: Path) -> None:
    assert "known are access_log, access_log_file," in str(refusal(tmp_path, "zzzzzzzzz = 80\n"))


def test_a_file_that_is_not_toml_is_refused_with_the_place(tmp_path: Path) -> None:
    assert re.search(r"is not TOML: .*line 2", str(refusal(tmp_path, "port = 1\nport =\n")))


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_bytes(b'host = "\xff"')
    with pytest.raises(ConfigError, match="is not TOML"):
        load(file, {}, {})


def test_a_named_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: no such file in .+: name one that exists"):
        load(tmp_path / "absent.toml", {}, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
        ("4w", timedelta(weeks=4)),
        ("forever", None),
    ],
)
def test_a_duration_has_a_unit(text: str, expected: timedelta | None) -> None:
    assert load(None, {}, {"task_retention": text}).task_retention == expected


@pytest.mark.parametrize("text", ["X-Client DN", "X-Client-DN:", "жетон", "x" * 101])
def test_what_is_no_name_of_a_header_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="name of a header"):
        load(None, {}, {"client_cert_header": text})


@pytest.mark.parametrize("text", ["30", "d", "-1d", "1.5d", "30 d", "٣d", "1y"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="with a unit"):
        load(None, {}, {"task_retention": text})


@pytest.mark.parametrize("text", ["1e3", "nan", "inf", "-1", "1_0", "٣", "", "86401"])
def test_what_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="number of seconds"):
        load(None, {}, {"blocking_timeout_s": text})


def test_a_table_of_the_file_groups_settings(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text("[mcp]\ntask_after_s = 0\n")
    assert load(file, {}, {}).mcp_task_after_s == 0
    assert load(file, {"DRAGOMAN_MCP_TASK_AFTER_S": "7"}, {}).mcp_task_after_s == 7
    assert load(None, {}, {}).mcp_task_after_s == 2


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[mcp]\ntask_after = 1\n", "mcp.task_after"),
        ("mcp = 1\n", "mcp"),
        ("mcp_task_after_s = 1\n[mcp]\ntask_after_s = 1\n", "mcp.task_after_s"),
        ("[mcp]\ntask_after_s = -1\n", "mcp_task_after_s"),
    ],
)
def test_a_setting_in_a_table_is_checked_as_any_other(tmp_path: Path, text: str, key: str) -> None:
    assert refusal(tmp_path, text).key == key


@pytest.mark.parametrize("literal", ["true", "1.0", "[80]", "inf", "10000000000000000000000", "1979-05-27"])
def test_a_value_of_another_type_in_the_file_is_refused(tmp_path: Path, literal: str) -> None:
    assert refusal(tmp_path, f"port = {literal}\n").key == "port"


def test_a_number_too_large_for_a_float_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, f"keepalive_s = 1{'0' * 400}\n").key == "keepalive_s"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_these_hosts_are_reached_from_this_machine_only(host: str) -> None:
    assert loopback(load(None, {}, {"host": host}).host)


def test_an_ipv6_address_may_stand_in_brackets() -> None:
    assert load(None, {}, {"host": "[::1]"}).host == "::1"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "127.0.0.1.example.org"])
def test_any_other_host_is_not(host: str) -> None:
    assert not loopback(load(None, {}, {"host": host}).host)


def test_a_malformed_network_is_refused_at_start(tmp_path: Path) -> None:
    for bad in ("10.0.0.0/33", "10.0.0.1/8", "localhost", "10.0.0"):
        with pytest.raises(ConfigError, match="PUSH_NOTIFICATION_ALLOWED_CIDRS"):
            load(None, {"PUSH_NOTIFICATION_ALLOWED_CIDRS": f"192.168.0.0/16,{bad}"}, {})


def test_the_variables_of_the_guard_count_with_and_without_a_profile() -> None:
    environ = {
        "PUSH_NOTIFICATION_ALLOWED_HOSTS": "workstacean,Automaker-Server.",
        "PUSH_NOTIFICATION_ALLOWED_CIDRS": "10.0.0.0/8, 172.16.0.0/12",
    }
    for flags in ({}, {"profile": "protoagent"}, {"profile": "kaos"}):
        config = load(None, environ, flags)
        assert config.push_allowed_hosts == ("workstacean", "automaker-server")
        assert config.push_allowed_cidrs == ("10.0.0.0/8", "172.16.0.0/12")


def test_symmetric_signatures_cannot_be_allowed() -> None:
    for algorithm in ("HS256", "none", "rs256"):
        with pytest.raises(ConfigError, match="jwt-algorithms"):
            load(None, {}, {"jwt_algorithms": f"RS256,{algorithm}"})


def test_a_store_url_leads_to_its_path() -> None:
    assert store_path("sqlite:///data/dragoman.db") == Path("data/dragoman.db")
    assert store_path("sqlite:////var/dragoman.db") == Path("/var/dragoman.db")
    assert store_path("memory:") is None
    assert store_path("postgresql://user@host:5432/database?sslmode=require") is None


@pytest.mark.parametrize("url", ["sqlite://x", "sqlite:///", "postgres://", "mysql://h/d", "memory", "data/x.db"])
def test_a_store_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"store url {url!r}: use sqlite:///path")):
        store_path(url)


@pytest.mark.parametrize(
    "files",
    [
        "folder:data/files",
        "folder:/srv/files with spaces",
        "s3://bucket",
        "s3://bucket/some/prefix",
        "s3://my.bucket-1/p?region=eu-central-1",
        "s3://bucket?endpoint=http://127.0.0.1:9000&region=us-east-1&path_style=false",
    ],
)
def test_files_are_in_a_folder_or_a_bucket(files: str) -> None:
    assert load(None, {}, {"files": files}).files == files


@pytest.mark.parametrize(
    "files",
    [
        "data/files",
        "folder:",
        "s3:bucket",
        "s3://",
        "s3://B",
        "s3://key:secret@bucket",
        "s3://bucket?key=x",
        "gs://bucket",
        "s3://bucket?endpoint=minio:9000",
        "s3://bucket?region=",
        [
            "s3://bucket?path_style=no",
        ],
        "s3://bucket?x",
        "s3://b c",
    ],
)
def test_files_elsewhere_or_with_a_secret_are_refused(files: str) -> None:
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        load(None, {}, {"files": files})


@pytest.mark.parametrize(
    "url", ["example.org", "ftp://x", "https://", "https://x?y=1", "https://x#y", "https://u@x", "https://x:0"]
)
def test_a_public_url_is_a_base_url(url: str) -> None:
    with pytest.raises(ConfigError, match="base URL"):
        load(None, {}, {"public_url": url})


@pytest.mark.parametrize("bus", ["auto", "postgres", "none", "nats://h", "nats://u:p@a:4222,nats://b:4222", "tls://h"])
def test_a_bus_is_a_word_or_the_urls_of_nats(bus: str) -> None:
    assert load(None, {"DRAGOMAN_BUS": bus}, {}).bus == bus


@pytest.mark.parametrize(
    "bus", ["redis://h", "nats", "nats://", "nats://h:0", "nats://h:99999", "nats://h/x", "nats://a,b"]
)
def test_another_bus_is_refused_with_those_that_exist(bus: str) -> None:
    with pytest.raises(ConfigError, match="use auto, postgres, none, or nats://host:4222"):
        load(None, {"DRAGOMAN_BUS": bus}, {})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("postgresql://me@h/db", "postgresql://me@h/db"),
        ("postgresql://me:a:b@c@h:5432/db?x=1", "postgresql://me:…@h:5432/db?x=1"),
        ("postgresql://h/db?user=me&password=abc&x=1", "postgresql://h/db?user=me&password=…&x=1"),
        ("postgresql://me:abc@[h/db", "postgresql://me:…@[h/db"),
    ],
)
def test_the_url_of_a_store_is_shown_without_its_password(url: str, shown: str) -> None:
    assert hide_password(url) == shown


def test_a_url_that_is_refused_is_shown_without_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"DRAGOMAN_BUS": "amqp://me:abc@h"}, {})
    assert "'amqp://me:…@h'" in str(caught.value)


def test_a_public_url_loses_the_slash_at_its_end() -> None:
    assert load(None, {}, {"public_url": "https://x.org/agents/"}).public_url == "https://x.org/agents"


def test_origins_are_a_list_in_the_file_and_separated_by_commas_elsewhere(tmp_path: Path) -> None:
    expected = ("https://a.org", "http://localhost:3000")
    listed = load(written(tmp_path, 'cors_origins = ["https://a.org", "http://localhost:3000/"]\n'), {}, {})
    assert listed.cors_origins == expected
    assert load(None, {"DRAGOMAN_CORS_ORIGINS": "https://a.org, http://localhost:3000"}, {}).cors_origins == expected
    assert load(None, {}, {"cors_origins": "*"}).cors_origins == ("*",)


@pytest.mark.parametrize("origin", ["a.org", "https://a.org/path", "null", "*.a.org"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ConfigError, match="must be origins"):
        load(None, {}, {"cors_origins": origin})


@given(
    name=st.sampled_from([setting.name for setting in settings()]), value=st.text() | st.sampled_from(["1", "é", "٣"])
)
def test_any_text_is_a_value_or_a_config_error(name: str, value: str) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(load(None, {}, {name: value}), Config)


def test_an_agent_table_is_read_whole(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        [[agents]]
        id = "weather"
        run = "forecasts:agent"
        description = "Forecasts"
        provider = { organization = "Example", url = "https://example.org" }
        output_modes = ["text/plain"]

        [[agents.skills]]
        id = "forecast"
        tags = ["weather"]
        """,
    )
    (agent,) = load(file, {}, {}).agents
    assert (agent.id, agent.run, agent.name, agent.description) == ("weather", "forecasts:agent", None, "Forecasts")
    assert agent.provider is not None
    assert agent.provider.organization == "Example"
    assert agent.output_modes == ("text/plain",)
    assert agent.skills[0].tags == ("weather",)


def test_a_table_holds_settings_whose_names_begin_with_its_own(tmp_path: Path) -> None:
    file = written(tmp_path, "[openai]\nquestion_mark = false\nreply_within_s = 60\n")
    config = load(file, {}, {})
    assert (config.openai_question_mark, config.openai_reply_within_s) == (False, 60.0)
    assert load(file, {"DRAGOMAN_OPENAI_QUESTION_MARK": "true"}, {}).openai_question_mark


@pytest.mark.parametrize(
    ("text", "key", "allowed"),
    [
        ("[openai]\nquestion_marks = false\n", "openai.question_marks", "did you mean question_mark?"),
        ("[opnai]\nquestion_mark = false\n", "opnai", "no such setting"),
        ("[openai]\nquestion_mark = 3\n", "openai_question_mark", "true or false"),
        ("[openai]\nquestion_mark = { a = 1 }\n", "openai_question_mark", "true or false"),
        (
            "openai_question_mark = true\n[openai]\nquestion_mark = true\n",
            "openai.question_mark",
            "leave one of them out",
        ),
    ],
)
def test_a_wrong_table_of_settings_names_the_place(tmp_path: Path, text: str, key: str, allowed: str) -> None:
    error = refusal(tmp_path, text)
    assert error.key == key
    assert allowed in error.allowed


MODULE = '[[agents]]\nid = "a"\nrun = "m:o"\n'
WORKER = '[[agents]]\nid = "a"\nrun = "worker"\n'


@pytest.mark.parametrize(
    ("text", "key", "allowed"),
    [
        ('[[agents]]\nid = "a"\n', "agents[0]", "must have the key run"),
        ('[[agents]]\nid = 5\nrun = "m:o"\n', "agents[0].id", "must be text"),
        (MODULE + 'api_key = " "\n', "agents[0].api_key", "not empty"),
        (MODULE + 'nmae = "A"\n', "agents[0].nmae", "did you mean name?"),
        ('[[agents]]\nid = "a"\nrun = "https://x"\n', "agents[0].run", "must begin with a2a: (another A2A server)"),
        ('[[agents]]\nid = "a"\nrun = "openai:http://x/v1"\nmodle = "A"\n', "agents[0].modle", "did you mean model?"),
        (
            '[[agents]]\nid = "a"\nrun = "a2a:http://x"\nmodle = "A"\n',
            "agents[0].modle",
            "known are affinity, answer_s, api_key, binding",
        ),
        (WORKER + "leases = 5\n", "agents[0].leases", "did you mean lease_s?"),
        (MODULE + "lease = 5\n", "agents[0].lease", "no such setting; known are"),
        (MODULE + 'provider = {organisation = "E"}\n', "agents[0].provider.organisation", "organization?"),
        (MODULE + 'skills = [{id = "s", tag = []}]\n', "agents[0].skills[0].tag", "did you mean tags?"),
        (MODULE + 'skills = [{id = "s", tags = [1]}]\n', "agents[0].skills[0].tags[0]", "must be text"),
        (WORKER + 'skills = [{name = "s"}]\n', "agents[0].skills[0]", "the key id"),
        (WORKER + 'skills = ["s"]\n', "agents[0].skills[0]", "must be tables"),
        (MODULE + 'skills = [{id = "s", extended = "yes"}]\n', "agents[0].skills[0].extended", "true or false"),
        (WORKER + 'skills = [{id = "s", tags = "t"}]\n', "agents[0].skills[0].tags", "list"),
        (WORKER + 'provider = "E"\n', "agents[0].provider", "organization and url"),
        (WORKER + 'offline = "no"\n', "agents[0].offline", "error or queue"),
        (WORKER + 'lease_s = "5"\n', "agents[0].lease_s", "from 0.5 to 86400"),
        (WORKER + "lease_s = 0\n", "agents[0].lease_s", "from 0.5 to 86400"),
        (MODULE + "direct = true\n", "agents[0].direct", "must be auto"),
        (WORKER + 'direct = "auto"\n', "agents[0].direct", "its tasks are leased"),
        (
            '[[agents]]\nid = "a"\nrun = "openai:http://x/v1"\nmodel = "m"\ndirect = "auto"\n',
            "agents[0].direct",
            "it keeps its conversations as tasks: leave it out",
        ),
        (MODULE + "direct_wait_s = 2\n", "agents[0].direct_wait_s", 'agents with direct = "auto" only'),
        (MODULE + 'direct = "auto"\ndirect_wait_s = 0\n', "agents[0].direct_wait_s", "from 0.01 to 60"),
        (MODULE + "deadline_s = 0\n", "agents[0].deadline_s", "from 0.1 to 2592000"),
        (MODULE + 'deadline_s = "30s"\n', "agents[0].deadline_s", "a number of seconds"),
        (MODULE + 'memory = "all"\n', "agents[0].memory", "must be caller or shared"),
        (MODULE + 'steps_version = "a b"\n', "agents[0].steps_version", "must be 1 to 64 letters, digits"),
        (MODULE + "steps_version = 2\n", "agents[0].steps_version", "must be 1 to 64 letters, digits"),
        (WORKER + 'steps_version = "2"\n', "agents[0].steps_version", "is for agents of Python only: leave it out"),
        (WORKER + 'memory = "shared"\n', "agents[0].memory", "is for agents of Python only: leave it out"),
        ('[[agents]]\nid = "a"\nrun = "m"\n', "agents[0].run", "module:object"),
        ('[[agents]]\nid = "a"\nrun = "openai:gpt"\n', "agents[0].run", "URL of an API"),
        ('[[agents]]\nid = "a/b"\nrun = "m:o"\n', "agents[0].id", "letters, digits"),
        ('[[agents]]\nid = "tasks"\nrun = "m:o"\n', "agents[0].id", "path of the server itself"),
        (MODULE + '[[agents]]\nid = "a"\nrun = "m:p"\n', "agents[1].id", "is the id of agents[0]: ids must"),
        ("agents = 5\n", "agents", "[[agents]]"),
    ],
)
def test_a_wrong_agent_table_names_the_place(tmp_path: Path, text: str, key: str, allowed: str) -> None:
    error = refusal(tmp_path, text)
    assert error.key == key
    assert allowed in error.allowed


def test_every_default_is_a_value_that_its_setting_allows() -> None:
    for setting in settings():
        if setting.default:
            assert load(None, {}, {setting.name: setting.default}) == Config()


@pytest.mark.parametrize("hosts", ["a:80", "*.example.org", "http://a", "a/b", "a,", "-a", "10.0.0.0/8", "a b"])
def test_what_is_no_host_name_is_no_allowed_host(hosts: str) -> None:
    if hosts == "a,":
        assert load(None, {}, {"push_allowed_hosts": hosts}).push_allowed_hosts == ("a",)
    else:
        with pytest.raises(ConfigError, match="without port"):
            load(None, {}, {"push_allowed_hosts": hosts})


def test_an_allowed_host_may_be_an_address_in_any_spelling() -> None:
    hosts = load(None, {}, {"push_allowed_hosts": "[FD00:0::1],10.0.0.5,my_service"}).push_allowed_hosts
    assert hosts == ("fd00::1", "10.0.0.5", "my_service")
