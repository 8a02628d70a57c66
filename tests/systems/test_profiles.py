"""`--profile NAME`: the server is that system, as a process of its own."""

import json
import os
import re
import select
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dragoman.config import ConfigError, load
from tests.dialects.shown import holds
from tests.processes import ENDS_WITH_US
from tests.systems.speakers import BEEOS, EVOAI, KAOS, PROTOAGENT, Speaker

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
AGENTS = f"{ROOT}/examples/agents.py"
DEADLINE_S = 60.0

Json = dict[str, Any]
Serve = Callable[..., "Server"]


class Server:
    """A process that serves."""

    def __init__(self, folder: Path, arguments: tuple[str, ...], environ: Mapping[str, str]) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
        self.process = subprocess.Popen(
            [*ENDS_WITH_US, Path(sys.executable).with_name("dragoman"), "serve", *arguments],
            cwd=folder,
            env={**clean, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = ""
        self.banner = ""

    def listens(self) -> "Server":
        """Wait until it says that it listens."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        deadline = time.monotonic() + DEADLINE_S
        while "Ctrl-C" not in self.banner:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 65_536) if ready else b""
            if not chunk:
                self.process.kill()
                pytest.fail(f"the server said only {self.banner!r} and {self.process.stderr.read()}")
            self.banner += chunk.decode()
        (self.url,) = re.findall(r"listens on (http://\S+?)/? ", self.banner)
        return self

    def refuses(self) -> str:
        """It does not start, and says why."""
        _, error = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode != 0
        assert "Traceback" not in error
        return error

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """One request: its status and its JSON."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **sent})
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def rpc(self, path: str, method: str, params: Json, **headers: str) -> Json:
        """The whole answer of a call."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer: Json = self.ask(path, body, **headers)[1]
        return answer


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start `dragoman serve` with these arguments and variables, in an empty directory."""
    started: list[Server] = []

    def start(*arguments: str, **environ: str) -> Server:
        started.append(Server(tmp_path, (AGENTS, *arguments), environ))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.communicate()


PORTS = {"beeos": 8092, "kaos": 8000, "evoai": 8000, "protoagent": 7870}


@pytest.mark.parametrize("profile", PORTS)
def test_a_profile_has_the_port_of_its_system_unless_another_is_given(profile: str) -> None:
    assert load(None, {}, {"profile": profile}).port == PORTS[profile]
    assert load(None, {"DRAGOMAN_PROFILE": profile}, {"port": "1234"}).port == 1234
    assert load(None, {"DRAGOMAN_PORT": "1235"}, {"profile": profile}).port == 1235


@pytest.mark.parametrize(
    ("profile", "environ", "setting", "value"),
    [
        ("kaos", {"AGENT_PORT": "1"}, "port", 1),
        ("kaos", {"AGENT_LOG_LEVEL": "DEBUG"}, "log_level", "debug"),
        ("kaos", {"TASK_STORE_TYPE": "null"}, "tasks", False),
        ("kaos", {"TASK_STORE_TYPE": "local"}, "tasks", True),
        ("kaos", {"TASK_STORE_TYPE": "local"}, "store", "memory:"),
        ("kaos", {}, "telemetry_prefix", "kaos"),
        ("evoai", {"PORT": "2"}, "port", 2),
        ("evoai", {"HOST": "127.0.0.2"}, "host", "127.0.0.2"),
        ("evoai", {"API_URL": "https://evo.example.org"}, "public_url", "https://evo.example.org"),
        ("evoai", {"CORS_ORIGINS": "*"}, "cors_origins", ("*",)),
        ("evoai", {"API_KEY": "k"}, "api_key", "k"),
        ("evoai", {"API_KEY": "k", "EVO_AI_API_KEY": "e"}, "api_key", "e"),
        ("protoagent", {"PROTOAGENT_HOST": "127.0.0.3"}, "host", "127.0.0.3"),
        ("protoagent", {"A2A_PUBLIC_URL": "https://p.example.org"}, "public_url", "https://p.example.org"),
        ("protoagent", {"A2A_AUTH_TOKEN": "t"}, "api_key", "t"),
        ("protoagent", {"PROTOAGENT_API_KEY": "p"}, "api_key", "p"),
        ("protoagent", {"AGENT_NAME": "my-agent", "MY_AGENT_API_KEY": "m"}, "api_key", "m"),
    ],
)
def test_a_profile_reads_the_variables_of_its_system(
    profile: str, environ: dict[str, str], setting: str, value: object
) -> None:
    assert getattr(load(None, environ, {"profile": profile}), setting) == value
    assert load(None, environ, {}) == load(None, {}, {}), "without the profile they mean nothing"


def test_a_wrong_variable_of_a_system_is_named() -> None:
    with pytest.raises(ConfigError, match="TASK_STORE_TYPE"):
        load(None, {"TASK_STORE_TYPE": "redis"}, {"profile": "kaos"})
    with pytest.raises(ConfigError, match="AGENT_PORT"):
        load(None, {"AGENT_PORT": "http"}, {"profile": "kaos"})


KEY = {"x_api_key": "k"}
PROFILES: list[tuple[Speaker, str, dict[str, str]]] = [
    (BEEOS, "/echo", {}),
    (KAOS, "/", {}),
    (EVOAI, "/api/v1/a2a/echo", KEY),
    (PROTOAGENT, "/a2a", {}),
]


@pytest.mark.parametrize(("speaker", "path", "key"), PROFILES, ids=lambda value: getattr(value, "name", ""))
def test_the_server_is_that_system_and_nothing_else(
    serve: Serve, speaker: Speaker, path: str, key: dict[str, str]
) -> None:
    server = serve("--profile", speaker.name, "--port", "0", "--store", "memory:", API_KEY="k").listens()
    assert f"{server.url}{path}" in server.banner
    told = server.rpc(path, speaker.methods[0], speaker.said("hello"), **key)
    assert told["result"]["status"]["state"] == "completed", told
    (sample,) = re.findall(r"^Send: +curl (.*)$", server.banner, re.MULTILINE)
    url, *arguments = shlex.split(sample.replace("YOUR-KEY", "k"))
    named = dict(line.replace("-", "_").split(": ") for line in arguments[1:-1:2])
    assert server.ask(url.removeprefix(server.url), json.loads(arguments[-1]), **named)[1]["result"]["status"]
    card = server.ask("/.well-known/agent.json")[1]
    assert card == server.ask("/.well-known/agent-card.json")[1]
    assert {each["url"].rstrip("/") for each in card["supportedInterfaces"]} == {(server.url + path).rstrip("/")}
    assert card["url"] == server.url + path
    assert bool(card.get("security")) == bool(key)
    for _, other, _ in PROFILES:
        if other != path:
            body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
            assert server.ask(other, body, **key)[0] == 404, other
    for other in ("/agents/echo", "/agents", "/message:send", "/tasks"):
        if path != "/" or other.startswith("/agents"):
            assert server.ask(other, {})[0] == 404, other
    assert server.ask("/health")[0] == 200
    chat = server.ask("/v1/models", **key)[0]
    assert chat == (200 if speaker is KAOS else 404)


def test_evo_ai_does_not_start_where_no_key_could_be_made(serve: Serve) -> None:
    error = serve("--profile", "evoai", "--port", "0", "--store", "memory:").refuses()
    assert "EVO_AI_API_KEY" in error
    assert "api_key" in error


def test_evo_ai_asks_for_the_key(serve: Serve) -> None:
    server = serve("--profile", "evoai", "--port", "0", "--store", "memory:", EVO_AI_API_KEY="k").listens()
    body = {"jsonrpc": "2.0", "id": "r", "method": "message/send", "params": EVOAI.said("x")}
    for headers, detail in (({}, "API key not provided"), ({"x_api_key": "no"}, "Invalid API key")):
        assert server.ask("/api/v1/a2a/echo", body, **headers) == (401, {"detail": detail})
    assert server.ask("/api/v1/a2a/nobody", body, x_api_key="k")[0] == 404


KAOS_CARD = {
    "name": "echo",
    "protocolVersion": "0.3.0",
    "supportedProtocols": ["jsonrpc"],
    "capabilities": {"streaming": True, "pushNotifications": False, "stateTransitionHistory": True},
}


def test_the_card_of_kaos_is_as_its_text_shows_it(serve: Serve) -> None:
    server = serve("--profile", "kaos", "--port", "0").listens()
    card = server.ask("/.well-known/agent.json")[1]
    assert "memory:" in server.banner
    assert holds(KAOS_CARD, card, frozenset(card) | frozenset(card["capabilities"])), card


def test_kaos_without_tasks_shows_no_a2a_and_keeps_nothing(serve: Serve) -> None:
    server = serve("--profile", "kaos", "--port", "0", TASK_STORE_TYPE="null").listens()
    card = server.ask("/.well-known/agent.json")[1]
    assert (card["supportedProtocols"], card["capabilities"]["stateTransitionHistory"]) == ([], False)
    stub = server.rpc("/", "SendMessage", KAOS.said("hello"))["result"]
    assert re.fullmatch(r"null_task_[0-9a-f]{8}", stub["id"])
    assert (stub["sessionId"], stub["status"]["state"]) == ("null-session", "completed")
    for method in ("GetTask", "CancelTask"):
        assert server.rpc("/", method, {"id": stub["id"]})["error"]["code"] == -32001
    assert server.rpc("/", "ListTasks", {})["result"] == {"tasks": [], "count": 0}
    chat = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}
    answer = server.ask("/v1/chat/completions", chat)[1]
    assert answer["choices"][0]["message"]["content"] == "hello"
