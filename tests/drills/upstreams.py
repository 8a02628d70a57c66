"""Servers of others, each behind a door that loses requests and answers, and each with a ledger of its own.

Invariant: what a door passes on is the caller's request, or the server's answer, with the server's address replaced by
the door's. Each call has a connection of its own. A fault happens to a send, but connections may be lost before anybody
knows what they are for.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.client.proxy import Fault, Proxy
from tests.kit.loopback import listening
from tests.kit.processes import ServerProcess
from tests.peers.test_servers import started
from tests.ports import kept_port

SEND = re.compile(rb'"(?:Send(?:Streaming)?Message|message/(?:send|stream))"')
"""The methods of JSON-RPC that send a message, in both versions."""


def _refusal(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {line}", "Content-Length: 0", "Connection: close", *headers, "", "")).encode()


FAULTS: Mapping[str, Fault] = {
    "lost in the middle": Fault(reads=0.5),
    "lost after its last byte": Fault(reads=1.0),
    "hangs, unseen": Fault(reads=1.0, stall=0),
    "hangs, executed": Fault(stall=0),
    "answer lost": Fault(cut=0),
    "answer cut": Fault(cut=600),
    "stream cut": Fault(cut=3000),
    "429": Fault(refuses=_refusal("429 Too Many Requests")),
    "503 with Retry-After": Fault(refuses=_refusal("503 Service Unavailable", "Retry-After: 30")),
    "500, unseen": Fault(refuses=_refusal("500 Internal Server Error")),
    "500, executed": Fault(refuses=_refusal("500 Internal Server Error"), late=True),
    "502, unseen": Fault(refuses=_refusal("502 Bad Gateway")),
    "502, executed": Fault(refuses=_refusal("502 Bad Gateway"), late=True),
    "504 with Retry-After, executed": Fault(refuses=_refusal("504 Gateway Timeout", "Retry-After: 1"), late=True),
}
"""The faults that befall one send, by name. The rest befall a connection, or a door: it is closed, or speaks no TLS."""

LOST = "lost before its first byte"


class Door:
    """The place where one upstream is reached. `share` of its sends meet a fault, one of those in `faults`, by chance.

    `met` counts the faults. A closed door refuses connections, as a port where nobody listens does.
    """

    def __init__(self, url: str, chance: random.Random) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self.port = kept_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.share = 0.0
        self.faults: Sequence[str] = (LOST, *FAULTS)
        self.met: Counter[str] = Counter()
        self._chance = chance
        self._proxy = Proxy(host, int(port), renames=self.port)
        self._proxy.choose = self._choose
        self._listening: AsyncExitStack | None = None

    def _choose(self, begun: bytes) -> Fault | None:
        if not SEND.search(begun):
            return None
        if self._chance.random() >= self.share:
            return None
        name = self._chance.choice([each for each in self.faults if each != LOST])
        self.met[name] += 1
        return FAULTS[name]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if LOST in self.faults and self._chance.random() < self.share / (2 * len(self.faults)):
            self.met[LOST] += 1
            writer.transport.abort()
            return
        await self._proxy.serve(reader, writer)

    async def open(self) -> None:
        """Let callers in."""
        if self._listening is None:
            self._listening = AsyncExitStack()
            await self._listening.enter_async_context(listening(self._serve, port=self.port))

    async def close(self) -> None:
        """Refuse connections from now on, and break those that are open."""
        if self._listening is not None:
            await self._listening.aclose()
            self._listening = None


@dataclass(frozen=True)
class Upstreams:
    """The doors by name, `KIND/NUMBER`, and the ledgers and URLs of the servers behind them."""

    doors: Mapping[str, Door]
    urls: Mapping[str, str]
    ledgers: Mapping[str, Path]

    def of_kind(self, kind: str) -> list[Door]:
        """The doors of one kind of server."""
        return [door for name, door in self.doors.items() if name.partition("/")[0] == kind]


OURS = "dragoman"
AGENT = '''
import json, os
from dragoman import Agent, Context

do = Agent("dragoman", restartable=True)


@do.skill
async def execute(ctx: Context) -> str:
    """Writes each execution down, and gives the text back."""
    with open("LEDGER", "ab", 0) as ledger:
        ledger.write(json.dumps({"text": ctx.text}).encode() + b"\\n")
        os.fsync(ledger.fileno())
    return ctx.text
'''


@asynccontextmanager
async def upstreams(folder: Path, names: Sequence[str], chance: random.Random) -> AsyncIterator[Upstreams]:
    """The servers of these names, with open doors and no faults. A kind is one of `SERVERS`, or `dragoman`."""
    ledgers = {name: folder / f"{name.replace('/', '-')}.ledger" for name in names}
    theirs = [name for name in names if not name.startswith(OURS)]
    async with AsyncExitStack() as stack:
        urls = stack.enter_context(started(theirs, folder, ledgers))
        assert set(urls) == set(theirs), "an environment of a peer is missing: run `make peers`"
        for name in names:
            if name not in theirs:
                at = folder / name.replace("/", "-")
                at.mkdir()
                (at / "do.py").write_text(AGENT.replace("LEDGER", str(ledgers[name])))
                server = ServerProcess(at, "do.py:do", "--store", "sqlite:///tasks.db", "--port", "0")
                stack.push_async_callback(server.kill)
                await server.start()
                urls[name] = server.url
        doors = {name: Door(urls[name], chance) for name in names}
        for door in doors.values():
            stack.push_async_callback(door.close)
            await door.open()
        yield Upstreams(doors, urls, ledgers)
