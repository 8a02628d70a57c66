"""Credentials with live agents that ask for them: keys, tokens, certificates, logins."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.cli.a2a.command import DEADLINE_S, Shell, demo_agents_with
from tests.compliance.agents import KEY, Caller
from tests.compliance.evidence import DEMO, KEYED
from tests.compliance.proxied import proxied

requirement = pytest.mark.requirement

AGAINST_KEYED = pytest.mark.parametrize("live", [KEYED], indirect=True)
AGAINST_DEMO = pytest.mark.parametrize("live", [DEMO], indirect=True)


@requirement("AUTH_001", "AUTH_002", "AUTH_004", "EXIT_001")
@AGAINST_KEYED
@pytest.mark.parametrize("kind", ["api-key", "bearer"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
def test_a_credential_comes_from_a_flag_or_a_variable(caller: Caller, kind: str, binding: str) -> None:
    words = ("send", "hello", "--transport", binding, "-o", "json", *caller.to("echo"))
    variable = f"A2ACLI_{kind.upper().replace('-', '_')}"
    del caller.shell.environment["A2ACLI_API_KEY"]
    missing = caller.shell.run(*words)
    assert (missing.status, missing.json["error"]["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")
    assert "--api-key or --bearer" in missing.json["error"]["hint"]
    wrong = caller.shell.run(*words, f"--{kind}", "wr0ng-secret")
    assert (wrong.status, wrong.json["error"]["code"]) == (4, "A2ACLI_ERR_AUTH_FAILED")
    for flags, environment in (((f"--{kind}", KEY), {variable: "wr0ng-secret"}), ((), {variable: KEY})):
        ran = caller.shell.run(*words, *flags, "--debug", "--verbose", **environment)
        assert (ran.status, ran.json["task"]["status"]["state"]) == (0, "TASK_STATE_COMPLETED"), ran.err
        assert "ROLE_USER" in ran.err  # the wire is logged, without the key
        for printed in (ran, missing, wrong):
            assert KEY not in printed.out + printed.err
            assert "wr0ng-secret" not in printed.out + printed.err


@requirement("AUTH_001", "AUTH_004")
def test_a_service_parameter_is_sent_and_not_shown(caller: Caller) -> None:
    ran = caller.send("echo", "--svc-param", "x-team:param-s3cret", "--debug", "--verbose")
    assert ran.status == 0
    assert "x-team: [redacted]" in ran.err
    assert "param-s3cret" not in ran.out + ran.err
    about = next(line for line in _help(caller.shell, "send", "--help-all") if line.startswith("--svc-param"))
    assert not re.search(r"credential|authenti|token|key\b", about.partition("KEY:VALUE")[2], re.IGNORECASE)


@requirement("AUTH_002", on=KEYED)
def test_help_names_the_variable_of_each_credential_and_the_exposure_of_flags(shell: Shell) -> None:
    for flag, variable in (("--bearer", "A2ACLI_BEARER"), ("--api-key", "A2ACLI_API_KEY")):
        about = next(line for line in _help(shell, "send", "--help") if line.startswith(flag))
        assert variable in about
        assert "process table" in about
        assert "history" in about


def _help(shell: Shell, *command: str) -> list[str]:
    """The entries of a command's help, each as one line."""
    entries = re.split(r"\n  (?=-)", shell.run(*command).out)
    return [re.sub(r"^-\w, ", "", " ".join(entry.split())) for entry in entries]


@requirement("AUTH_008")
@AGAINST_DEMO
def test_an_agent_that_declares_no_scheme_gets_no_credential(caller: Caller) -> None:
    with proxied(caller.live.url) as proxy:
        ran = caller.shell.run("send", "hello", "-a", proxy.url, "--bearer", "s3cret", "--api-key", "k3y-secret")
    assert (ran.status, ran.fields["State"]) == (0, "TASK_STATE_COMPLETED"), ran.err
    assert "--bearer is not sent" in ran.err
    assert "--api-key is not sent" in ran.err
    assert len(proxy.asked) >= 2  # the card and the message
    for secret in (b"s3cret", b"k3y-secret"):
        assert secret not in b"".join(proxy.asked)


@requirement("AUTH_001", "AUTH_008", "CARD_GET_003", "VER_003")
@AGAINST_KEYED
def test_the_extended_card_needs_a_scheme_of_the_public_one(caller: Caller) -> None:
    with proxied(caller.live.url) as proxy:
        agent = ("-a", f"{proxy.url}/agents/echo")
        ran = caller.shell.run("card", "get", "--extended", *agent)
        assert (ran.status, ran.fields["Name"]) == (0, "echo"), ran.err
        *public, extended = proxy.asked
        assert public
        assert KEY.encode() not in b"".join(public)
        assert f"x-api-key: {KEY}".encode() in extended.lower()  # as the public card asks
        assert caller.shell.run("card", "get", "--extended", "-o", "json", *agent).json["supportedInterfaces"]
        del caller.shell.environment["A2ACLI_API_KEY"]
        proxy.asked.clear()
        refused = caller.shell.run("card", "get", "--extended", "-o", "json", *agent)
        assert (refused.status, refused.json["error"]["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")
        assert not [asked for asked in proxy.asked if asked.startswith(b"POST")]


@contextmanager
def tls_server(folder: Path, *, asks_certificates: bool) -> Iterator[tuple[str, Authority]]:
    """A Dragoman server over TLS, and the authority of its certificate and of its callers'."""
    authority = Authority(folder)
    issued = authority.issue()
    settings = f"tls_cert={str(issued.cert)!r}, tls_key={str(issued.key)!r}, api_key={KEY!r}"
    if asks_certificates:
        settings += f", tls_client_ca={str(authority.path)!r}"
    with demo_agents_with(settings) as url:
        yield url.replace("http://", "https://"), authority


@requirement("AUTH_003", "EXIT_001", on="tls-server")
def test_credentials_over_an_unverified_connection_raise_a_warning(shell: Shell, tmp_path: Path) -> None:
    with tls_server(tmp_path, asks_certificates=False) as (url, authority):
        words = ("send", "hello", "-a", url, "-o", "json", "--api-key", KEY)
        refused = shell.run(*words)
        assert (refused.status, refused.json["error"]["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")
        trusted = shell.run(*words, "--ca-cert", str(authority.path))
        assert (trusted.status, "INSECURE" in trusted.err) == (0, False), trusted.err
        insecure = shell.run(*words, "--insecure")
        assert insecure.status == 0, insecure.err
        assert "INSECURE: credentials are sent over a connection whose certificate is not verified" in insecure.err


@requirement("AUTH_009", on="tls-server")
def test_a_client_certificate_opens_the_agent(shell: Shell, tmp_path: Path) -> None:
    with tls_server(tmp_path, asks_certificates=True) as (url, authority):
        client = authority.issue("client")
        words = ("send", "hello", "-a", url, "-o", "json", "--api-key", KEY, "--ca-cert", str(authority.path))
        shown = shell.run(*words, "--client-cert", str(client.cert), "--client-key", str(client.key))
        assert (shown.status, shown.json["task"]["status"]["state"]) == (0, "TASK_STATE_COMPLETED"), shown.err
        assert shell.run(*words).status == 3


@requirement("DEMO_SERVER_001", on=DEMO)
def test_the_demo_server_says_where_its_agents_are_and_ends_when_it_is_told(shell: Shell) -> None:
    server = shell.start("demo-server")
    try:
        assert server.stdout is not None
        url = server.stdout.readline().removeprefix("Demo agents at ").strip()
        ran = shell.run("send", "hello", "-a", url)
        assert ran.fields["State"] == "TASK_STATE_COMPLETED"
    finally:
        server.terminate()
        server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0
    assert [path for path in shell.work.iterdir() if path.suffix == ".db"] == []
