"""No secret is printed: all that commands and servers say in a session is searched for every secret that was used."""

import json
import secrets
import sqlite3
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.transcript import DEADLINE_S, Stranger, Transcript

AGENTS = '''
from dragoman import Agent, Context

echo = Agent("echo")
asks = Agent("asks")


@echo.skill
async def give_back(ctx: Context) -> str:
    """Say it again."""
    return ctx.text


@asks.skill
async def ask(ctx: Context) -> str:
    """Ask."""
    return f"so {await ctx.ask('Which way?')}"
'''

UPSTREAMS = """
push_allowed_hosts = ["127.0.0.1"]

[[agents]]
id = "partner"
run = "a2a:{url}"
credentials = {{ header = "x-api-key", env = "PARTNER_KEY" }}

[[agents]]
id = "bearer"
run = "a2a:{url}"
credentials = {{ token_url = "{url}/token", client_id = "me", env = "CLIENT_SECRET" }}

[[agents]]
id = "model"
run = "openai:{url}/v1"
model = "m"
credentials = {{ env = "MODEL_KEY" }}
"""

GIVEN = (
    "shared api key",
    "upstream key",
    "client secret",
    "access token",
    "model key",
    "webhook token",
    "webhook credentials",
    "database password",
    "bus password",
    "bearer of .env",
    "key of .env",
)
"""The kinds of secrets that users choose."""

MADE = ("caller key", "operator key", "operator token", "session cookie", "signing key")
"""The kinds of secrets that Dragoman makes."""

ARRIVE = (
    "upstream key",
    "client secret",
    "access token",
    "model key",
    "webhook token",
    "webhook credentials",
    "bearer of .env",
    "key of .env",
)
"""The kinds that reach the stranger, who repeats them."""

SHOWN = ("caller key", "operator key", "session cookie", "webhook token")
"""The kinds that something is made to show: the command that makes a key, the cookie, what a webhook's owner reads."""


class Session:
    """The transcript of everything that was printed, and the secrets by kind."""

    def __init__(self, folder: Path) -> None:
        self.said = Transcript(folder)
        self.secrets = {
            kind: f"{secrets.token_hex(12)}+{secrets.token_hex(6)}/{secrets.token_hex(6)}" for kind in GIVEN
        }
        self.stranger = Stranger(self.secrets["access token"])

    def play(self) -> None:
        """Use every secret."""
        (self.said.folder / "agents.py").write_text(AGENTS)
        with self.stranger.listening():
            self._make_keys()
            self._serve_with_keys()
            self._serve_without_keys()
            self._fail_to_reach()
            self._call_with_env_file()
            self._log_in()

    def _make_keys(self) -> None:
        run = self.said.run
        for kind, name, *more in (("caller key", "ann"), ("operator key", "root", "--role", "operator")):
            made = run("keys", "create", name, *more, "--json", "--store", "sqlite:///keyed.db", shows=kind)
            self.secrets[kind] = json.loads(made)["key"]
        run("keys", "list", "--json", "--store", "sqlite:///keyed.db")

    def _serve_with_keys(self) -> None:
        (self.said.folder / "dragoman.toml").write_text(UPSTREAMS.format(url=self.stranger.url))
        environment = {
            "DRAGOMAN_API_KEY": self.secrets["shared api key"],
            "PARTNER_KEY": self.secrets["upstream key"],
            "CLIENT_SECRET": self.secrets["client secret"],
            "MODEL_KEY": self.secrets["model key"],
        }
        flags = ("agents.py", "--port", "0", "--store", "sqlite:///keyed.db", "--access-log", "json")
        with self.said.serving(*flags, "--log-level", "debug", **environment) as url:
            self._call(url)
            self._be_told(url)
            self._operate(url)
            self._ask(url)
            self._sign_in(url)
        for words in (("store", "backup", "keyed.tar"), ("store", "check"), ("admin", "usage")):
            self.said.run(*words, "--store", "sqlite:///keyed.db")
        with sqlite3.connect(self.said.folder / "keyed.db") as file:
            self.secrets["signing key"] = json.loads(file.execute("SELECT jwk FROM signing_keys").fetchone()[0])["d"]
        file.close()
        for words in (("store", "backup", "copy.tar"), ("store", "check", "sqlite:///keyed.db"), ("audit", "--json")):
            self.said.run(*words, DRAGOMAN_STORE="sqlite:///keyed.db", **environment)

    def _call(self, url: str) -> None:
        key, run = self.secrets["caller key"], self.said.run
        run("send", "-a", f"{url}/agents/echo", "hi", "--debug", "--verbose", "-o", "json", A2ACLI_API_KEY=key)
        run("send", "-a", f"{url}/agents/echo", "hi", "--debug", "--bearer", f"{key}x")
        run("send", "-a", f"{url}/agents/echo", "hi", "--debug", A2ACLI_API_KEY=self.secrets["shared api key"])
        for agent in ("partner", "bearer", "model"):
            run("send", "-a", f"{url}/agents/{agent}", "hi", "--debug", "-o", "json", A2ACLI_API_KEY=key)
        for command in ("doctor", "conformance"):
            agent = (url,) if command == "doctor" else ("-a", url)
            run(command, *agent, "-o", "json", "--debug", A2ACLI_API_KEY=key)

    def _be_told(self, url: str) -> None:
        environment = {"A2ACLI_API_KEY": self.secrets["caller key"], "A2ACLI_AGENT_CARD": f"{url}/agents/asks"}
        sent = json.loads(self.said.run("send", "hi", "-o", "json", **environment))
        task, hook = sent["task"]["id"], ("task", "push-config")
        token = self.secrets["webhook token"]
        words = ("--url", f"{self.stranger.url}/hook", "--id", "h1", "--token", token, "--auth-scheme", "Bearer")
        credentials = ("--auth-credentials", self.secrets["webhook credentials"])
        kind = "webhook token"  # its owner reads it back (A2A 1.0 §3.1.8)
        self.said.run(*hook, "create", task, *words, *credentials, "-o", "json", "--debug", shows=kind, **environment)
        self.said.run(*hook, "list", task, "-o", "json", shows=kind, **environment)
        self.said.run("send", "--task-id", task, "left", "-o", "json", **environment)
        assert self.stranger.hooked.wait(DEADLINE_S)

    def _operate(self, url: str) -> None:
        environment = {"DRAGOMAN_SERVER": url, "DRAGOMAN_API_KEY": self.secrets["operator key"]}
        listed = json.loads(self.said.run("admin", "tasks", "list", "-o", "json", **environment))
        task = listed["tasks"][0]["id"]
        keys = ("keys", "list", "--server", url)
        for words in (("admin", "tasks", "log", task), ("admin", "upstreams"), ("webhooks", "list"), ("audit",), keys):
            self.said.run(*words, **environment)
        self.said.run("admin", "stats", DRAGOMAN_SERVER=url, DRAGOMAN_API_KEY=self.secrets["caller key"])
        for page in ("tasks", "agents", "upstreams", "webhooks", "audit", "keys", "usage", "replicas", f"tasks/{task}"):
            self.said.ask("GET", f"{url}/admin/v1/{page}", x_api_key=self.secrets["operator key"])

    def _ask(self, url: str) -> None:
        key = self.secrets["caller key"]
        for path in ("/ready", "/.well-known/agent-card.json", "/.well-known/jwks.json", f"/nowhere?api_key={key}"):
            self.said.ask("GET", url + path)
        self.said.ask("GET", f"{url}/metrics", x_api_key=self.secrets["operator key"])
        self.said.ask("GET", f"{url}/metrics", x_api_key=key)
        for headers in ({"x_api_key": f"{key}x"}, {"authorization": f"Basic {key}"}, {"authorization": f"{key} {key}"}):
            self.said.ask("GET", f"{url}/agents/echo/tasks", **headers)
        wrong = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": 1}}
        self.said.ask("POST", f"{url}/agents/echo", wrong, x_api_key=self.secrets["shared api key"])

    def _sign_in(self, url: str) -> None:
        session = f"{url}/console/session"
        self.said.ask("POST", session, {"secret": self.secrets["caller key"]})
        self.said.ask("POST", session, {"secret": [self.secrets["operator key"]]})
        begun = self.said.ask(
            "POST", session, {"secret": self.secrets["operator key"]}, shows="session cookie", origin=url
        )
        name, _, rest = begun["set-cookie"].partition("=")
        self.secrets["session cookie"] = rest.partition(";")[0]
        cookie = f"{name}={self.secrets['session cookie']}"
        self.said.ask("GET", session, cookie=cookie)
        for method in ("GET", "POST"):
            self.said.ask(method, f"{url}/admin/v1/keys", cookie=cookie)

    def _serve_without_keys(self) -> None:
        (self.said.folder / "dragoman.toml").unlink()
        kind, flags = "operator token", ("agents.py", "--port", "0", "--store", "sqlite:///open.db")
        with self.said.serving(*flags, "--access-log", "text") as url:
            self.secrets[kind] = (self.said.folder / "open.db.operator").read_text().strip()
            self.said.run("admin", "stats", "-o", "json", "--server", url, DRAGOMAN_API_KEY=self.secrets[kind])
            self.said.run("admin", "tasks", "list", "--store", "sqlite:///open.db")
            self.said.ask("GET", f"{url}/admin/v1/agents", authorization=f"Bearer {self.secrets[kind]}x")
            self.said.ask("GET", f"{url}/admin/v1/openapi.json", authorization=f"Bearer {self.secrets[kind]}")

    def _fail_to_reach(self) -> None:
        password = self.secrets["database password"]
        for written in (quote(password, safe=""), password):  # the second is no URL
            url = f"postgresql://ann:{written}@127.0.0.1:1/tasks"
            self.said.run_process("serve", "agents.py", "--port", "0", "--store", url)
        self.said.run_process("keys", "list", "--store", url)
        self.said.run_process("admin", "tasks", "list", "--store", url)
        self.said.run_process("store", "copy", url, "sqlite:///copy.db")
        bus = f"nats://ann:{quote(self.secrets['bus password'], safe='')}@127.0.0.1:1"
        self.said.run_process("serve", "agents.py", "--port", "0", "--store", "sqlite:///bus.db", "--bus", bus)

    def _call_with_env_file(self) -> None:
        card = f"A2ACLI_AGENT_CARD={self.stranger.url}\n"
        bearer, key = self.secrets["bearer of .env"], self.secrets["key of .env"]
        for line in (f"A2ACLI_BEARER={bearer}\n", f"A2ACLI_API_KEY={key}\n"):
            (self.said.folder / ".env").write_text(card + line)
            for words in (("config", "show", "-o", "json"), ("send", "hi", "--debug"), ("card", "get", "--debug")):
                self.said.run(*words)
            for words in (("doctor", "--active", "--verbose"), ("conformance", "-o", "json"), ("chat", "--debug")):
                self.said.run(*words, stdin="hi\n")
        (self.said.folder / ".env").unlink()

    def _log_in(self) -> None:
        """The issuer grants the access token, and the agent repeats it."""
        agent = ("-a", self.stranger.url)
        secret = {"A2ACLI_CLIENT_SECRET": self.secrets["client secret"]}
        issuer = ("--client-id", "me", "--token-url", f"{self.stranger.url}/token")
        self.said.run("auth", "login", *agent, *issuer, "--debug", **secret)
        for words in (("send", "hi"), ("doctor", "--active"), ("task", "get", "t1"), ("auth", "status")):
            self.said.run(*words, *agent, "--debug")
        self.said.run("auth", "logout", *agent)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    played = Session(tmp_path_factory.mktemp("secrets"))
    played.play()
    return played


@pytest.mark.parametrize("kind", [*GIVEN, *MADE])
def test_a_secret_is_nowhere_but_where_it_is_meant_to_be(session: Session, kind: str) -> None:
    assert session.said.places_of(kind, session.secrets[kind]) == []


def test_the_secrets_were_used_and_shown_where_they_are_meant_to_be(session: Session) -> None:
    assert [kind for kind in ARRIVE if not session.stranger.was_given(session.secrets[kind])] == []
    assert [kind for kind in SHOWN if not session.said.shown(kind, session.secrets[kind])] == []
    assert session.secrets.keys() == {*GIVEN, *MADE}


def test_the_token_of_a_login_was_repeated_by_its_agent(session: Session) -> None:
    """Else its absence from the log of the wire would show nothing."""
    logs = [each.text for each in session.said.noted if "--debug: stderr" in each.name and "send hi -a" in each.name]
    assert len(logs) == 1
    assert "this is wrong" in logs[0]
    assert "[redacted]" in logs[0].partition("this is wrong")[2]
