"""The live agents that the commands are tried against, and how to make each of them do the same thing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tests.cli.a2a.command import Ran, Shell, demo_agents_with
from tests.compliance.evidence import JAVASCRIPT, KEYED, PYTHON
from tests.peers.test_servers import started
from tests.ports import kept_port

OFFICIAL = {PYTHON: "python-1", JAVASCRIPT: "js-1"}
"""The servers of the official SDKs, with their names in `tests/peers`."""

KEY = "k3y-of-the-keyed-server"

_OFFICIAL = {
    "echo": "hello",
    "count": "count 3",
    "ask": "ask me",
    "fail": "fail",
    "slow": "slow",
    "direct": "direct good day",
}
"""The first word of a text, which makes the servers of the official SDKs do something."""

_OURS = {
    "echo": ("/agents/echo", "hello"),
    "count": ("/agents/counter", "3 every 0.01"),
    "ask": ("/agents/booking", "Book"),
    "fail": ("/agents/breaker", "Try"),
    "slow": ("/agents/counter", "600 every 0.1"),
    "direct": ("/agents/greeter", "good day"),
}
"""The demo agents that do the same, and what they are told."""


class Live(Struct, frozen=True):
    """A live agent. `options` go with every command."""

    name: str
    url: str
    options: tuple[str, ...] = ()

    def reference(self, what: str) -> str:
        """The agent that does something."""
        return self.url if self.name in OFFICIAL else self.url + _OURS[what][0]

    def text(self, what: str) -> str:
        """The message that makes it do so."""
        return _OFFICIAL[what] if self.name in OFFICIAL else _OURS[what][1]


class Caller:
    """A user's shell, and the agent that they talk to."""

    def __init__(self, shell: Shell, live: Live) -> None:
        self.shell = shell
        self.live = live
        if live.name == KEYED:
            shell.environment["A2ACLI_API_KEY"] = KEY

    def to(self, what: str) -> tuple[str, ...]:
        """The options that name the agent which does something."""
        return ("-a", self.live.reference(what), *self.live.options)

    def send(self, what: str, *words: str) -> Ran:
        """Send the message that makes the agent do something."""
        return self.shell.run("send", self.live.text(what), *words, *self.to(what))

    def wait_in_vain(self, *words: str) -> Ran:
        """Run a command until its timeout, which is long enough to learn of its task on a busy machine."""
        for timeout in ("1s", "5s", "25s", "125s"):
            ran = self.shell.run(*words, "--timeout", timeout, "-o", "json")
            assert (ran.status, ran.json["error"]["code"]) == (5, "A2ACLI_ERR_TIMEOUT"), ran.err
            if ran.json["error"]["hint"]:
                break
        return ran

    def task(self, command: str, *words: str, what: str) -> Ran:
        """Run a command of `dragoman task`."""
        return self.shell.run("task", command, *words, *self.to(what))


@contextmanager
def official(folder: Path) -> Iterator[dict[str, Live]]:
    """Start the servers of the official SDKs. Fails if an environment is missing."""
    with started(OFFICIAL.values(), folder) as urls:
        for name, server in OFFICIAL.items():
            assert server in urls, f"the environment of {name} is missing: run `make peers`"
        yield {name: Live(name, urls[server]) for name, server in OFFICIAL.items()}


@contextmanager
def keyed() -> Iterator[Live]:
    """Start a Dragoman server that wants an API key, and also speaks gRPC."""
    settings = f"api_key={KEY!r}, grpc_port={kept_port()}, push_allowed_hosts=('127.0.0.1',)"
    with demo_agents_with(settings) as url:
        yield Live(KEYED, url)
