"""A server with TLS: what it says at start, its callers, and the renewal of its certificate."""

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from dragoman import Agent, Context
from dragoman.cli.serve import banner
from dragoman.client import connect
from dragoman.client.errors import NoAnswer, NotReached
from dragoman.config import Config
from dragoman.model.task import Task
from dragoman.model.updates import ArtifactUpdate
from dragoman.net.tls import ClientTls
from dragoman.server import ListeningServer, StartError, running
from dragoman.server import tls as server_tls
from dragoman.testing.agents import echo
from tests.certificates import Authority, Issued
from tests.kit.waiting import until
from tests.processes import ENDS_WITH_US

ROOT = Path(__file__).parent.parent.parent
DEADLINE_S = 60.0
SEND = ("-H", "A2A-Version: 1.0", "-H", "Content-Type: application/json", "-d")
HELLO = '{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}'

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the files all the time."""
    monkeypatch.setattr(server_tls, "LOOK_S", 0.01)


def config(issued: Issued, client_ca: Authority | None = None, **settings: object) -> Config:
    asks = {} if client_ca is None else {"tls_client_ca": str(client_ca.path)}
    tls = {"tls_cert": str(issued.cert), "tls_key": str(issued.key), **asks}
    return Config(**{"port": 0, "store": "memory:", "shutdown_grace_s": 0.2, **tls, **settings})  # type: ignore[arg-type]


def trusting(authority: Authority, shown: Issued | None = None) -> ClientTls:
    certificate = {} if shown is None else {"certificate_file": str(shown.cert), "key_file": str(shown.key)}
    return ClientTls(ca_file=str(authority.path), **certificate)


async def curl(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *("curl", "-sS", "--noproxy", "*", "--max-time", str(DEADLINE_S), *arguments), stdout=subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode()


async def serial(server: ListeningServer, authority: Authority) -> int:
    """The number of the certificate that new connections get."""
    context = authority.client_context()
    _, writer = await asyncio.open_connection("127.0.0.1", server.config.port, ssl=context)
    found = int(writer.get_extra_info("peercert")["serialNumber"], 16)
    writer.close()
    return found


@pytest.mark.parametrize("dialect", ["1.0", "0.3"])
async def test_our_client_calls_it(authority: Authority, dialect: str) -> None:
    async with running(config(authority.issue()), [echo]) as server:
        assert server.url.startswith("https://127.0.0.1:")
        async with connect(server.url, version=dialect, tls=trusting(authority)) as agent:
            answer = await agent.send("hello")
            assert isinstance(answer, Task)
            assert answer.artifacts[0].parts[0].text == "hello"
            assert agent.card is not None
            assert agent.interface.url.startswith(server.url)
        with pytest.raises(NoAnswer, match="check its certificate"):
            async with connect(server.url):
                pass


@needs_curl
async def test_curl_calls_it(authority: Authority) -> None:
    async with running(config(authority.issue()), [echo]) as server:
        trusts = ("--cacert", str(authority.path))
        told = await curl(*trusts, f"{server.url}/health", "-w", " %{http_code} %{http_version}")
        assert told.endswith(" 200 1.1")
        answer = json.loads(await curl(*trusts, f"{server.url}/message:send", *SEND, HELLO))
        assert answer["task"]["artifacts"][0]["parts"] == [{"text": "hello"}]
        card = json.loads(await curl(*trusts, f"{server.url}/.well-known/agent-card.json"))
        assert {each["url"].partition("://")[0] for each in card["supportedInterfaces"]} == {"https"}
        plain = await curl(server.url.replace("https", "http") + "/health")
        assert plain == "This port speaks HTTPS: use https:// in the URL."


async def test_the_banner_has_the_scheme(authority: Authority) -> None:
    said = banner(config(authority.issue(), port=8443), [echo])
    assert "http://" not in said
    assert said.count("https://127.0.0.1:8443/") > 4


async def test_only_clients_with_a_certificate_are_served(tmp_path: Path, authority: Authority) -> None:
    clients = Authority(tmp_path, "clients")
    async with running(config(authority.issue(), clients), [echo]) as server:
        async with connect(server.url, tls=trusting(authority, clients.issue("client"))) as agent:
            assert isinstance(await agent.send("hello"), Task)
        for shown in (None, authority.issue("stranger")):
            with pytest.raises(NotReached, match="only clients with a certificate"):
                async with connect(server.url, tls=trusting(authority, shown)):
                    pass


async def test_a_client_whose_certificate_is_revoked_is_refused(
    tmp_path: Path, authority: Authority, quick_looks: None
) -> None:
    clients = Authority(tmp_path, "clients")
    good, lost = clients.issue("client"), clients.issue("lost")
    revoked = clients.revoke()
    async with running(config(authority.issue(), clients, tls_client_crl=str(revoked)), [echo]) as server:
        for shown in (good, lost):
            async with connect(server.url, tls=trusting(authority, shown)) as agent:
                assert isinstance(await agent.send("hello"), Task)
        clients.revoke(lost)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    async with connect(server.url, tls=trusting(authority, lost)):
                        await asyncio.sleep(0.01)  # until the server has looked at the list
                except NotReached as error:
                    assert "only clients with a certificate" in str(error)  # noqa: PT017  what ends the wait
                    break
        async with connect(server.url, tls=trusting(authority, good)) as agent:
            assert isinstance(await agent.send("hello"), Task)


def test_revocation_lists_that_cannot_work(tmp_path: Path, authority: Authority) -> None:
    issued, clients, others = authority.issue(), Authority(tmp_path, "clients"), Authority(tmp_path, "others")
    served = {"tls_cert": str(issued.cert), "tls_key": str(issued.key)}
    asks = {**served, "tls_client_ca": str(clients.path)}
    assert refused(tls_client_crl="x.crl").startswith("tls_client_crl is set without tls_cert: ")
    assert refused(**served, tls_client_crl="x.crl").startswith("tls_client_crl is set without tls_client_ca: ")
    assert "holds no revocation list in PEM" in refused(**asks, tls_client_crl=str(clients.path))
    assert "a list is outdated since" in refused(**asks, tls_client_crl=str(clients.revoke(days=-1)))
    strange = refused(**asks, tls_client_crl=str(others.revoke(name="strange")))
    assert "has no list of CN=clients, which is in tls_client_ca: add its list" in strange
    assert "leave out one of the two" in refused(**asks, tls_client_crl=str(clients.revoke()), grpc_port=1)


async def test_clients_with_certificates_are_no_strangers(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The server may listen everywhere then, and says that it does not tell them apart."""
    clients, issued = Authority(tmp_path, "clients"), authority.issue()
    with pytest.raises(StartError, match=r"ask clients for certificates \(tls_client_ca\)"):
        async with running(config(issued, host="0.0.0.0"), [echo]):
            pass
    async with running(config(issued, clients, host="0.0.0.0"), [echo]) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        async with connect(url, tls=trusting(authority, clients.issue("client"))) as agent:
            assert isinstance(await agent.send("hello"), Task)
    said = [record.getMessage() for record in caplog.records if "tls_client_ca" in record.getMessage()]
    assert len(said) == 1
    assert "are not told apart: they share their tasks with echo" in said[0]
    caplog.clear()
    async with running(config(issued, clients, host="0.0.0.0", api_key="sesame", admin_runs_workers=False), [echo]):
        assert not caplog.records


async def test_a_renewed_certificate_is_taken_and_open_streams_go_on(
    authority: Authority, quick_looks: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gate = asyncio.Event()
    waits = Agent("waits")

    @waits.skill
    async def wait(ctx: Context) -> AsyncIterator[str]:
        yield "one"
        await gate.wait()
        yield "two"

    first = authority.issue()
    async with (
        running(config(first), [waits]) as server,
        connect(server.url, tls=trusting(authority)) as agent,
        asyncio.timeout(DEADLINE_S),
    ):
        texts = []
        async for update in agent.stream("go"):
            if isinstance(update, ArtifactUpdate):
                texts.append(update.artifact.parts[0].text)
            if texts == ["one"] and not gate.is_set():
                assert await serial(server, authority) == first.serial
                renewed = authority.issue(rsa_bits=2048)
                while await serial(server, authority) != renewed.serial:
                    await asyncio.sleep(0.01)
                gate.set()
        assert texts == ["one", "two"]
    said = [record.getMessage() for record in caplog.records if record.name == server_tls.__name__]
    assert len(said) == 1
    assert said[0].startswith("new certificate of localhost, 127.0.0.1, ::1, valid until 2")


async def test_files_that_cannot_be_used_change_nothing_and_are_reported_once(
    authority: Authority, quick_looks: None, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == server_tls.__name__]

    first = authority.issue()
    async with running(config(first), [echo]) as server:
        await asyncio.to_thread(first.cert.write_text, "no certificate")
        await until(lambda: len(said()) == 1)
        assert re.fullmatch(
            r"tls_cert '.*server\.pem' holds no certificate in PEM: .*; the certificate of before stays in use "
            r"\(valid until .* UTC\)",
            said()[0],
        )
        assert await serial(server, authority) == first.serial
        caplog.clear()
        first.cert.unlink()
        await until(lambda: len(said()) == 1)
        assert "No such file or directory" in said()[0]
        fixed = authority.issue()
        async with asyncio.timeout(DEADLINE_S):
            while await serial(server, authority) != fixed.serial:
                await asyncio.sleep(0.01)
        assert len(said()) == 1


async def test_a_reload_reads_the_files_at_once(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_tls, "LOOK_S", 1000.0)
    async with running(config(authority.issue()), [echo]) as server, asyncio.timeout(DEADLINE_S):
        renewed = authority.issue()
        server.reload()
        while await serial(server, authority) != renewed.serial:
            await asyncio.sleep(0.01)


async def test_a_certificate_that_nobody_renews_is_reported_before_and_after_it_expires(
    authority: Authority, quick_looks: None, caplog: pytest.LogCaptureFixture
) -> None:
    issued = authority.issue()
    files = server_tls.TlsFiles(str(issued.cert), str(issued.key))
    now = [server_tls.utc_now()]
    tls = server_tls.ServerTls(files, lambda: now[0])
    watching = asyncio.create_task(tls.run())
    now[0] = tls.identity.expires - timedelta(minutes=1)
    await until(lambda: len(caplog.records) == 1)
    now[0] = tls.identity.expires + timedelta(days=1)
    await until(lambda: len(caplog.records) == 2)
    watching.cancel()
    expires = tls.identity.expires.strftime("%Y-%m-%d %H:%M UTC")
    assert [record.getMessage() for record in caplog.records] == [
        f"tls_cert '{issued.cert}' expires on {expires}: renew it",
        f"tls_cert '{issued.cert}' has expired: clients refuse it: renew it",
    ]


# -- what is wrong is told at start ------------------------------------------------------------------------------------


def refused(**settings: str | None) -> str:
    """Why a server does not start."""

    async def start() -> None:
        async with running(Config(port=0, store="memory:", **settings), [echo]):  # type: ignore[arg-type]
            raise AssertionError("it has started")

    with pytest.raises(StartError) as caught:
        asyncio.run(start())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_and_wrong_files(tmp_path: Path, authority: Authority) -> None:
    good, other = authority.issue(), authority.issue("other")
    cert, key = str(good.cert), str(good.key)
    assert refused(tls_key=key) == "tls_key is set without tls_cert: set tls_cert, too, or leave tls_key out"
    assert refused(tls_client_ca=cert).startswith("tls_client_ca is set without tls_cert: ")
    assert refused(tls_cert="/none.pem", tls_key=key) == (
        "tls_cert '/none.pem': No such file or directory: name a PEM file that this user may read"
    )
    assert "Is a directory" in refused(tls_cert=cert, tls_key=str(tmp_path))
    assert refused(tls_cert=key, tls_key=key).startswith(f"tls_cert {key!r} holds no certificate in PEM: ")
    assert refused(tls_cert=cert, tls_key=cert).startswith(f"tls_key {cert!r} holds no private key in PEM: ")
    assert refused(tls_cert=cert).endswith("holds no private key in PEM: set tls_key to the file of the key")
    assert refused(tls_cert=cert, tls_key=str(other.key)) == (
        f"tls_key {str(other.key)!r} is not the key of tls_cert {cert!r}: name the two that were made together"
    )
    der = tmp_path / "cert.der"
    der.write_bytes(ssl.PEM_cert_to_DER_cert(good.cert.read_text()))
    assert "openssl x509 -in FILE -out FILE.pem" in refused(tls_cert=str(der), tls_key=key)
    turned = tmp_path / "turned.pem"
    turned.write_bytes(authority.path.read_bytes() + good.cert.read_bytes())
    assert "the server's own certificate must come first" in refused(tls_cert=str(turned), tls_key=key)


def test_what_has_expired_is_encrypted_or_too_weak(tmp_path: Path, authority: Authority) -> None:
    expired = authority.issue("expired", days=-1)
    said = refused(tls_cert=str(expired.cert), tls_key=str(expired.key))
    assert re.fullmatch(r"tls_cert '.*expired.pem' expired on \d{4}-\d\d-\d\d \d\d:\d\d UTC: renew it", said)
    sealed = authority.issue("sealed", password=b"secret")
    said = refused(tls_cert=str(sealed.cert), tls_key=str(sealed.key))
    assert said.startswith(f"tls_key {str(sealed.key)!r} is encrypted: decrypt it (openssl pkey -in FILE -out FILE)")
    weak = authority.issue("weak", rsa_bits=1024)
    said = refused(tls_cert=str(weak.cert), tls_key=str(weak.key))
    assert "cannot be used (ee key too small): make a new one with an RSA key of 2048 bits" in said
    good, old = authority.issue(), Authority(tmp_path, "old", days=-1)
    for wrong, why in ((good.cert, "holds no certificate of an authority"), (old.path, "expired on")):
        said = refused(tls_cert=str(good.cert), tls_key=str(good.key), tls_client_ca=str(wrong))
        assert said.startswith(f"tls_client_ca {str(wrong)!r} {why}")


def test_a_certificate_that_is_not_valid_yet(authority: Authority) -> None:
    issued = authority.issue()
    early = server_tls.utc_now().replace(year=2000)
    with pytest.raises(StartError, match=r"is not valid before .*: check the clock of this machine"):
        server_tls.read_identity(server_tls.TlsFiles(str(issued.cert), str(issued.key)), early)


async def test_certificate_and_key_may_be_one_file(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue()
    both = tmp_path / "both.pem"
    both.touch(0o600)
    both.write_bytes(issued.key.read_bytes() + issued.cert.read_bytes())
    one = Config(port=0, store="memory:", shutdown_grace_s=0.2, tls_cert=str(both))
    async with running(one, [echo]) as server:
        assert await serial(server, authority) == issued.serial


@pytest.mark.parametrize(("mode", "who"), [(0o640, "its group"), (0o604, "everybody on this machine"), (0o600, "")])
async def test_a_key_that_others_may_read_is_warned_about(
    authority: Authority, caplog: pytest.LogCaptureFixture, mode: int, who: str
) -> None:
    issued = authority.issue()
    issued.key.chmod(mode)
    async with running(config(issued), [echo]):
        pass
    said = [record.getMessage() for record in caplog.records if record.name == server_tls.__name__]
    expected = f"the private key {issued.key} can be read by {who} (mode {mode:03o}): chmod 600"
    assert said == ([expected] if who else [])


# -- as a process ------------------------------------------------------------------------------------------------------


def started(folder: Path, *flags: str) -> "tuple[subprocess.Popen[str], str]":
    """A server as a process, and its URL."""
    process = subprocess.Popen(
        [*ENDS_WITH_US, sys.executable, "-m", "dragoman", "serve", str(ROOT / "examples/agents.py"), *flags],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    found = re.search(r"listens on (https\S+)/ ", process.stdout.readline())
    if found is None:
        process.kill()
        raise AssertionError(process.communicate())
    return process, found[1]


@pytest.mark.slow
async def test_it_ends_at_once_whatever_its_clients_do(tmp_path: Path, authority: Authority) -> None:
    """The grace period is an hour: only what waits for nobody ends before the test's deadline."""
    issued = authority.issue()
    tls = ("--tls-cert", str(issued.cert), "--tls-key", str(issued.key))
    process, url = await asyncio.to_thread(
        started, tmp_path, *tls, "--port", "0", "--store", "memory:", "--shutdown-grace-s", "3600"
    )
    try:
        port = int(url.rpartition(":")[2])
        idle, idler = await asyncio.open_connection("127.0.0.1", port, ssl=authority.client_context())
        idler.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await idle.readuntil(b"\r\n\r\n")
        idler.transport.pause_reading()
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0
        idler.transport.abort()
        silent.close()
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)


@pytest.mark.slow
async def test_several_processes_have_it_and_renew_it(tmp_path: Path, authority: Authority, postgres_url: str) -> None:
    issued = authority.issue()
    tls = ("--tls-cert", str(issued.cert), "--tls-key", str(issued.key))
    flags = (*tls, "--processes", "2", "--port", "0", "--store", postgres_url)
    process, url = await asyncio.to_thread(started, tmp_path, *flags)
    try:
        port = int(url.rpartition(":")[2])

        async def shown() -> int:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority.client_context())
            found = int(writer.get_extra_info("peercert")["serialNumber"], 16)
            writer.close()
            return found

        assert await shown() == issued.serial
        renewed = authority.issue()
        process.send_signal(signal.SIGHUP)
        in_a_row, deadline = 0, time.monotonic() + DEADLINE_S
        while in_a_row < 20:  # the system spreads connections over the processes
            in_a_row = in_a_row + 1 if await shown() == renewed.serial else 0
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)


def test_a_process_says_in_one_line_why_it_does_not_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", "serve", str(ROOT / "examples/agents.py"), "--tls-cert", "none.pem"],
        cwd=tmp_path,
        env={**os.environ, "DRAGOMAN_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "dragoman: tls_cert 'none.pem': No such file or directory: name a PEM file that this user may read\n"
    )
