"""`dragoman doctor` against the demo server, and against agents with faults: its report and its exit status."""

import asyncio
import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from dragoman.doctor import observer
from tests.certificates import Authority, Issued
from tests.cli.a2a.command import Shell, demo_agents_with
from tests.cli.a2a.peer import Asked, serve_http
from tests.cli.a2a.terminal import at_terminal
from tests.doctor.recorded import CARD
from tests.systems.keyed import ANNA, keyed

KEY = "k-51d3c0a8e7"
"""The key of a server, which no output may have."""


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """The demo agents behind that key."""
    with demo_agents_with(f"api_key={KEY!r}") as url:
        yield url


def found(report: Any, color: str) -> list[str]:
    return sorted({each["check"] for each in report["findings"] if each["color"] == color})


def test_the_demo_server_is_green_or_explained(shell: Shell, demo: str) -> None:
    ran = shell.run("doctor", demo, "-o", "json", "--fail-on", "yellow")
    assert ran.status == 0, ran.out
    assert ran.json["server"]["name"] == "Dragoman"
    assert found(ran.json, "red") == found(ran.json, "yellow") == []
    assert found(ran.json, "grey") == ["authentication-declared", "card-signature", "message-answered", "tls"]
    assert {"unknown-task", "unknown-method", "unknown-version", "broken-json"} <= set(found(ran.json, "green"))


def test_the_text_begins_with_what_is_wrong(shell: Shell, demo: str) -> None:
    lines = shell.run("doctor", demo).out.splitlines()
    assert lines[:3] == [
        f"Agent: {demo}",
        f"Card: {demo}/.well-known/agent-card.json",
        "Server: Dragoman (its card declares an extension of Dragoman)",
    ]
    assert lines[3].startswith("Result: 0 red, 0 yellow, ")
    assert lines[-1].startswith("Green: card-found, ")
    assert len(shell.run("doctor", demo, "--verbose").out.splitlines()) > len(lines) + 10


def test_a_terminal_gets_colors_and_whole_words(shell: Shell, demo: str) -> None:
    with at_terminal(shell, "doctor", demo) as terminal:
        assert terminal.end() == 0
    assert "\x1b[32m\x1b[1mGreen\x1b[0m: card-found" in terminal.screen
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.screen)
    assert max(map(len, plain.splitlines())) <= 100
    assert "\r\n  " in plain


def test_authentication_is_measured_with_a_key_and_without_and_the_key_is_not_printed(
    shell: Shell, locked: str
) -> None:
    without = shell.run("doctor", locked, "-o", "json")
    given = shell.run("doctor", locked, "-o", "json", A2ACLI_API_KEY=KEY)
    for ran in (without, given):
        assert ran.status == 0, ran.out
        assert {"authentication-declared", "authentication-enforced", "authentication-challenge"} <= set(
            found(ran.json, "green")
        )
        assert KEY not in ran.out + ran.err
    assert "unknown-task" in found(without.json, "grey")
    assert "unknown-task" in found(given.json, "green")


def test_an_explained_finding_shows_the_exchange_without_the_key(shell: Shell) -> None:
    with site(CARD) as url:
        text = shell.run("doctor", url, "--explain", A2ACLI_API_KEY=KEY)
        document = shell.run("doctor", url, "--explain", "-o", "json", A2ACLI_API_KEY=KEY)
    assert f"  > GET {url}/.well-known/agent-card.json" in text.out
    assert "  < HTTP 200" in text.out
    (found_,) = [each for each in document.json["findings"] if each["check"] == "card-caching"]
    assert found_["exchange"]["request"]["method"] == "GET"
    assert found_["exchange"]["answer"]["status"] == 200
    assert KEY not in text.out + text.err + document.out + document.err


def test_a_key_that_an_agent_sends_back_is_not_printed(shell: Shell) -> None:
    card = {**CARD, "securitySchemes": {"k": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}}

    def answered(asked: Asked) -> tuple[int, Any]:
        return (200, card) if asked.line.endswith("agent-card.json") else (500, {"you": dict(asked.headers)})

    with serve_http(answered) as url:
        card["supportedInterfaces"] = [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
        for words in ((), ("-o", "json"), ("--active",)):
            ran = shell.run("doctor", url, "--explain", *words, "--bearer", KEY)
            assert "[redacted]" in ran.out
            assert KEY not in ran.out + ran.err


def test_watching_ends_with_ctrl_c(shell: Shell, demo: str) -> None:
    with at_terminal(shell, "doctor", demo, "--watch", "--interval", "1") as terminal:
        terminal.until("card-found")
        terminal.type("\x03")
        assert terminal.end() == 0
    assert shell.run("doctor", demo, "--interval", "1").status == 2


def test_the_demo_server_does_right_with_messages(shell: Shell, demo: str) -> None:
    ran = shell.run("doctor", demo, "--active", "--probe-webhooks", "-o", "json")
    assert ran.status == 0, ran.out
    assert set(found(ran.json, "yellow")) == {"webhook-address"}  # it calls webhooks on its own machine
    right = found(ran.json, "green")
    assert {"message-repeated", "stream-resumed", "task-listed", "cancel-ended"} <= set(right)


def test_every_task_that_was_begun_and_has_not_ended_is_canceled(shell: Shell, demo: str) -> None:
    booking = f"{demo}/agents/booking"
    ran = shell.run("doctor", booking, "--active", "-o", "json")
    assert ran.status == 0, ran.out
    assert "cancel" in found(ran.json, "green")
    tasks = shell.run("task", "list", "-a", booking, "-o", "json").json["tasks"]
    assert {each["status"]["state"] for each in tasks} == {"TASK_STATE_CANCELED"}


def where(report: Any, check: str) -> list[str]:
    return sorted(" ".join(each["where"].split()[:2]) for each in report["findings"] if each["check"] == check)


def test_messages_go_to_the_interface_that_is_named_or_to_every_one(shell: Shell, demo: str) -> None:
    command = ("doctor", demo, "--active", "-o", "json", "--fail-on", "yellow")
    url = f"{demo}/agents/echo"
    for named, expected in (
        ("http+json/0.3", ["HTTP+JSON 0.3"]),
        ("JSONRPC", ["JSONRPC 1.0"]),
        ("every", ["HTTP+JSON 0.3", "HTTP+JSON 1.0", "JSONRPC 0.3", "JSONRPC 1.0"]),
    ):
        ran = shell.run(*command, "--interface", named)
        assert ran.status == 0, ran.out
        for check in ("message-answered", "stream", "message-to-unknown", "cancel-ended"):
            assert where(ran.json, check) == expected, named
    for wrong in ("GRPC", "JSONRPC/0.1", "smoke", "https://elsewhere.example/"):
        refused = shell.run("doctor", url, "--active", "--interface", wrong)
        assert (refused.status, f"--interface {wrong!r} is not in the card, which has " in refused.err) == (2, True)


def test_conformance_is_that_of_every_interface(shell: Shell, demo: str) -> None:
    ran = shell.run("conformance", demo, "--interface", "every", "-o", "json")
    assert (ran.status, ran.json["conformant"]) == (0, True), ran.out


def test_the_extended_card_is_asked_for_by_a_stranger(shell: Shell, demo: str, locked: str) -> None:
    given = shell.run("doctor", locked, "-o", "json", A2ACLI_API_KEY=KEY)
    assert "extended-card" in found(given.json, "green")
    asks_nobody = shell.run("doctor", demo, "-o", "json")
    assert not [each for each in asks_nobody.json["findings"] if each["check"] == "extended-card"]


@pytest.mark.parametrize("command", [("doctor",), ("doctor", "--active"), ("conformance",)])
def test_debug_shows_what_is_asked_and_no_key(shell: Shell, locked: str, command: tuple[str, ...]) -> None:
    ran = shell.run(*command, locked, "--debug", "-o", "json", A2ACLI_API_KEY=KEY, A2ACLI_SECOND_KEY="")
    assert ran.json  # the report alone is on stdout
    lines = [line.split(maxsplit=1)[1] for line in ran.err.splitlines()]
    assert any(line.startswith("card from ") for line in lines)
    assert any(line.startswith("> OPTIONS ") for line in lines)
    assert any(line.startswith("> {") and "DragomanDoctorAsks" in line for line in lines)
    assert "< 401" in lines
    sends = [line for line in lines if line.startswith("> {") and "SendMessage" in line]
    assert bool(sends) is (command != ("doctor",))
    assert KEY not in ran.out + ran.err


def test_messages_are_sent_only_with_active(shell: Shell, demo: str) -> None:
    before = shell.run("task", "list", "-a", f"{demo}/agents/papers", "-o", "json").json["totalSize"]
    assert shell.run("doctor", f"{demo}/agents/papers").status == 0
    after = shell.run("task", "list", "-a", f"{demo}/agents/papers", "-o", "json").json["totalSize"]
    assert before == after == 0
    for option in (("--text", "x"), ("--probe-webhooks",), ("--second-key", "x"), ("--interface", "GRPC")):
        assert shell.run("doctor", demo, *option).status == 2


async def test_the_tasks_of_one_key_are_tried_with_another(shell: Shell, tmp_path: Path) -> None:
    async with keyed(tmp_path, ANNA) as house:
        keys = {"A2ACLI_API_KEY": house.keys["anna"], "A2ACLI_SECOND_KEY": house.keys["ben"]}
        command = ("doctor", house.site.url, "--active", "-o", "json")
        other = await asyncio.to_thread(shell.run, *command, **keys)
        same = await asyncio.to_thread(shell.run, *command, **{**keys, "A2ACLI_SECOND_KEY": house.keys["anna again"]})
    assert other.status == 0, other.out
    assert "task-foreign" in found(other.json, "green")
    assert "task-foreign" in found(same.json, "red")
    for key in house.keys.values():
        assert key not in other.out + other.err + same.out + same.err


def test_the_demo_server_is_conformant(shell: Shell, demo: str) -> None:
    ran = shell.run("conformance", "-a", demo, "-o", "json")
    assert ran.status == 0, ran.out
    assert ran.json["conformant"] is True
    results = {rule["id"]: rule["result"] for rule in ran.json["rules"]}
    assert results["message-blocks"] == results["stream"] == results["unknown-version"] == "pass"
    assert results["task-foreign"] == results["tls"] == "not measured"


def test_a_broken_must_gives_status_1(shell: Shell) -> None:
    with site(CARD) as url:
        ran = shell.run("conformance", url)
    assert ran.status == 1
    assert "Fail: " in ran.out


def test_a_key_in_the_url_is_not_printed(shell: Shell, demo: str) -> None:
    for words in (("-o", "json"), ("--verbose",)):
        ran = shell.run("doctor", f"{demo}/.well-known/agent-card.json?key={KEY}", *words)
        assert ran.status == 0, ran.out
        assert KEY not in ran.out + ran.err


def test_a_host_where_nobody_listens_is_an_error_of_status_3(shell: Shell, unused_port: int) -> None:
    ran = shell.run("doctor", f"http://127.0.0.1:{unused_port}", "-o", "json")
    assert (ran.status, ran.json["error"]["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")


def test_a_host_that_does_not_answer_is_given_up(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "CARD_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it listens, and reads nothing
        ran = shell.run("doctor", f"http://127.0.0.1:{silent.getsockname()[1]}", "-o", "json")
    assert (ran.status, ran.json["error"]["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")
    assert "0.3 s" in ran.json["error"]["message"]


def test_an_agent_that_is_named_twice_is_a_mistake(shell: Shell, demo: str) -> None:
    assert shell.run("doctor", demo, "-a", demo).status == 2


def test_a_site_without_a_card_is_red(shell: Shell) -> None:
    with site({}) as url:
        ran = shell.run("doctor", url, "-o", "json")
        assert ran.status == 1
        assert "card-found" in found(ran.json, "red")
        assert shell.run("doctor", url, "--fail-on", "never").status == 0


def test_endpoints_at_private_addresses_are_reported_and_not_dialled(shell: Shell) -> None:
    with site({}) as other:
        interfaces = [{"url": f"{other}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
        with site({**CARD, "supportedInterfaces": interfaces}) as url:
            ran = shell.run("doctor", url, "-o", "json")
            assert "endpoint-private" in found(ran.json, "yellow")
            named = shell.run("doctor", url, "--active", "--interface", f"{other}/rpc", "-o", "json")
            assert "message-answered" in found(named.json, "grey")
            assert asked(other) == []
            trusting = shell.run("doctor", url, "-o", "json", "--trust-origin", other)
    assert "endpoint-answers" in found(trusting.json, "red")
    assert "POST /rpc" in asked(other)


def test_of_very_many_endpoints_the_named_one_is_asked_and_the_rest_is_counted(shell: Shell, demo: str) -> None:
    card = shell.run("card", "get", "-a", demo, "-o", "json").json
    (speaking,) = [each for each in card["supportedInterfaces"] if is_jsonrpc_1(each)]
    with site({}) as other:
        silent = [{**speaking, "url": f"{other}/{number}"} for number in range(9)]
        (shell.work / "many.json").write_text(json.dumps({**card, "supportedInterfaces": [*silent, speaking]}))
        words = ("doctor", "./many.json", "--active", "--interface", speaking["url"], "-o", "json")
        ran = shell.run(*words, "--fail-on", "never")
    (counted,) = [each for each in ran.json["findings"] if each["check"] == "card-endpoints"]
    assert (counted["color"], counted["observed"].partition(" more")[0]) == ("grey", "not tried: 2")
    (answered,) = [each for each in ran.json["findings"] if each["check"] == "message-answered"]
    assert (answered["color"], answered["where"].split()[-1]) == ("green", speaking["url"])


def is_jsonrpc_1(interface: Any) -> bool:
    return (interface["protocolBinding"], interface["protocolVersion"]) == ("JSONRPC", "1.0")


@pytest.fixture
def unused_port() -> int:
    with site({}) as url:
        port = int(url.rpartition(":")[2])
    return port


_LOGS: dict[str, list[str]] = {}


def asked(url: str) -> list[str]:
    return _LOGS[url]


def test_the_certificate_is_examined(shell: Shell, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with site(CARD, authority.issue(days=5)) as url:
        trusted = shell.run("doctor", url, "-o", "json", "--ca-cert", str(authority.path), "--fail-on", "never")
        stranger = shell.run("doctor", url, "-o", "json")
    (soon,) = [each for each in trusted.json["findings"] if each["check"] == "tls"]
    assert (soon["color"], soon["observed"]) == ("yellow", "TLSv1.3; the certificate is valid for 4 more days")
    (browsers,) = [each for each in trusted.json["findings"] if each["check"] == "transport-security"]
    assert browsers["color"] == "grey"
    (red,) = stranger.json["findings"]
    assert (red["check"], red["color"]) == ("tls", "red")
    assert "--ca-cert" in red["fix"]
    assert stranger.status == 1


@contextmanager
def site(card: dict[str, Any], issued: Issued | None = None) -> Iterator[str]:
    """A site that serves a card and nothing else; an empty card: nothing. With a certificate it serves https."""
    log: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            log.append(f"GET {self.path}")
            right = bool(card) and self.path == "/.well-known/agent-card.json"
            self._answer(200 if right else 404, json.dumps(card).encode() if right else b"nothing here")

        def do_POST(self) -> None:
            log.append(f"POST {self.path}")
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self._answer(404, b"nothing here")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if status == 200 else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    if issued is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(issued.cert, issued.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"{'http' if issued is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    _LOGS[url] = log
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
