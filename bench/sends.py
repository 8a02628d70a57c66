"""The rows of SendMessage: how many a second, and what a dialect or a question who is calling adds to one."""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import servers
from generators import ID_SLOT, Generators, Measured, message, rpc
from plan import ECHO, QUESTION, Figures, Plan, answered, clocked
from servers import HERE, Broken, Kind, Server, running


def send(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """A blocking SendMessage of one text to the echo, each with a new message id: a repeated one would cost less."""
    body, seed = rpc("SendMessage", message(QUESTION)), uuid.uuid4().hex[:8]
    with running(kind) as server:

        def measure() -> tuple[Measured, float]:
            return answered(load.unary(server.port, ECHO, body, "send.lua", seed, plan.seconds))

        return clocked(server, "rate", measure)


@dataclass(frozen=True)
class Spoken:
    """A blocking send to the echo as one dialect has it; `version` is the header, empty for none."""

    path: str
    version: str
    method: str
    message: dict[str, Any]


SPOKEN = {
    "1.0": Spoken(ECHO, "1.0", "SendMessage", message(QUESTION)["message"]),
    "beeos": Spoken("/echo", "1.0", "SendMessage", {"role": "user", "parts": [{"kind": "text", **QUESTION}]}),
    "kaos": Spoken("/", "", "SendMessage", {"role": "user", "parts": [{"type": "text", **QUESTION}]}),
    "evoai": Spoken(
        "/api/v1/a2a/echo",
        "",
        "message/send",
        {"role": "user", "parts": [{"type": "text", **QUESTION}], "messageId": ID_SLOT},
    ),
    "protoagent": Spoken("/a2a", "", "message/send", {"role": "user", "parts": [QUESTION]}),
}
"""The sends of each system's own clients. The message's id is new in every request, else that of the request."""


def dialects(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Compare the cost of a send in each dialect with that in 1.0.

    Each is measured between two measurements of 1.0, a second at a time, and the median of these ratios counts: so
    neither the growing store nor other work on the machine weighs on one more than on the other.
    """
    others = [name for name in SPOKEN if name != "1.0"]
    plain_us: list[float] = []
    ratios: dict[str, list[float]] = {name: [] for name in others}
    with running(kind) as server:
        plain_us.append(spoken_us(load, server, SPOKEN["1.0"]))
        for name in others * max(1, round(plan.seconds)):
            cost_us = spoken_us(load, server, SPOKEN[name])
            plain_us.append(spoken_us(load, server, SPOKEN["1.0"]))
            ratios[name].append(cost_us / statistics.mean(plain_us[-2:]))
    return {"1.0_us": statistics.median(plain_us)} | {name: statistics.median(seen) for name, seen in ratios.items()}


def spoken_us(load: Generators, server: Server, spoken: Spoken) -> float:
    """The server's own processor time for one send, measured for a second."""
    body = rpc(spoken.method, {"message": spoken.message}, 1 if "messageId" in spoken.message else ID_SLOT)
    before, began = server.cpu_s(), time.monotonic()
    measured = load.unary(server.port, spoken.path, body, "send.lua", uuid.uuid4().hex[:8], 1, spoken.version)
    used = (server.cpu_s() - before) / (time.monotonic() - began)
    return used / measured.requests_per_s * 1e6


AUDIENCE = "dragoman-bench"


def auth(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Compare the cost of a send to servers that ask for a key or a JWT with that to one that asks nobody.

    Three servers run at once, each with a store of its own, and are measured in turn, a second each: the two between
    two measurements of the one that asks nobody, so that what grows and what others do weighs on all alike.
    """
    body = rpc("SendMessage", message(QUESTION))
    headers: dict[str, str] = {"nobody": ""}

    def make_key(directory: Path) -> None:
        headers["key"] = key_header(kind, directory)

    with issuer(kind) as (url, token), ExitStack() as stack:
        headers["jwt"] = f"Authorization: Bearer {token}"
        tokens = kind.asked("dragoman-jwt", ("DRAGOMAN_JWT_ISSUER", url), ("DRAGOMAN_JWT_AUDIENCE", AUDIENCE))
        running_by = {
            "nobody": stack.enter_context(running(kind)),
            "key": stack.enter_context(running(replace(kind, name="dragoman-key"), prepare=make_key)),
            "jwt": stack.enter_context(running(tokens)),
        }
        for name in ("key", "jwt"):
            refused(running_by[name])
        return compared(plan, {
            name: partial(cost_us, load, server, body, headers[name]) for name, server in running_by.items()
        })  # fmt: skip


def key_header(kind: Kind, directory: Path, store: str = "", *more: str) -> str:
    """The header of a new key, in the store that a server in that directory will have, or in `store`, a URL."""
    place = store or f"sqlite:///{directory}/bench.db"
    command = [kind.program, "keys", "create", "bench", "--json", "--store", place, *more]
    made = subprocess.run(command, capture_output=True, check=False, cwd=directory, env=kind.environment(), text=True)
    if made.returncode:
        raise Broken(f"no key was made: {made.stderr[-400:]}")
    return f"x-api-key: {json.loads(made.stdout)['key']}"


def mounted(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Compare the cost of a send to a mounted application, under uvicorn, with that to our own server.

    As in `auth`, three servers run at once: ours, the application alone, and the application below FastAPI.
    """
    body = rpc("SendMessage", message(QUESTION))
    uvicorn = (str(kind.program.with_name("uvicorn")), "--app-dir", str(HERE), "--port", "{port}", "--no-access-log")
    under = kind.asked("mounted", ("DRAGOMAN_STORE", "sqlite:///bench.db"))
    with ExitStack() as stack:
        own = stack.enter_context(running(kind))
        alone = stack.enter_context(running(replace(under, command=(*uvicorn, "mounted:app"))))
        below = stack.enter_context(running(replace(under, command=(*uvicorn, "mounted:api"))))
        return compared(
            plan,
            {
                "own": partial(cost_us, load, own, body, ""),
                "alone": partial(cost_us, load, alone, body, ""),
                "below": partial(cost_us, load, below, body, "", "/a2a" + ECHO),
            },
        )


def tool_calls(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Compare the cost of a tool call of MCP 2026-07-28 with that of one in a session of 2025-11-25.

    `tasks` is one of a client that also shows forms and knows tasks. One server, measured in turn, a second each.
    """
    params = {"name": "echo", "arguments": {"message": QUESTION["text"]}}
    stateless = f"MCP-Protocol-Version: {STATELESS}\r\nMcp-Method: tools/call\r\nMcp-Name: echo"
    with running(kind) as server:
        session = f"MCP-Protocol-Version: {IN_SESSIONS}\r\nMcp-Session-Id: {begun(server)}"
        costs = {"session": partial(cost_us, load, server, rpc("tools/call", params), session, MCP)}
        for name, able in (("stateless", {}), ("tasks", {"elicitation": {}, "extensions": {f"{META}tasks": {}}})):
            client = {"name": "bench", "version": "1"}
            meta = {"protocolVersion": STATELESS, "clientInfo": client, "clientCapabilities": able}
            said = {**params, "_meta": {f"{META}{key}": value for key, value in meta.items()}}
            costs[name] = partial(cost_us, load, server, rpc("tools/call", said), stateless, MCP)
        return compared(plan, costs)


MCP = "/mcp"
META = "io.modelcontextprotocol/"
STATELESS, IN_SESSIONS = "2026-07-28", "2025-11-25"


def begun(server: Server) -> str:
    """The id of a new session of MCP."""
    hello = {"protocolVersion": IN_SESSIONS, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", MCP, rpc("initialize", hello), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    session = answer.headers["Mcp-Session-Id"]
    connection.close()
    if session is None:
        raise Broken(f"a session was refused: {answer.status}")
    return str(session)


def compared(plan: Plan, costs: dict[str, Callable[[], float]]) -> Figures:
    """The first cost, and the others relative to it. They are measured in turn, those between two of the first."""
    first, *others = costs
    found: dict[str, list[float]] = {name: [] for name in costs}
    for cost in costs.values():
        cost()
    for _ in range(max(2, round(plan.seconds))):
        for name, cost in costs.items():
            found[name].append(cost())
    found[first].append(costs[first]())
    plain = [statistics.mean(pair) for pair in zip(found[first], found[first][1:], strict=False)]
    ratios = {
        name: statistics.median(cost / beside for cost, beside in zip(found[name], plain, strict=True))
        for name in others
    }
    return {f"{first}_us": statistics.median(found[first])} | ratios


def refused(server: Server) -> None:
    """A server that is to ask who is calling has to do so, or the figure means nothing."""
    try:
        server.call(ECHO, "GetTask", {"id": ID_SLOT})
    except Broken as error:
        if "401" in str(error) or "-31401" in str(error) or "asks who is calling" in str(error):
            return
        raise
    raise Broken(f"{server.kind.name} answers callers that it does not know")


def cost_us(load: Generators, server: Server, body: str, header: str, path: str = ECHO) -> float:
    """The server's own processor time for one send, measured for a second with every answer checked."""
    before = server.cpu_s()
    options = ("--seconds", "1", "--warmup", "0", "--header", header)
    measured = load.loop(server.port, path, body, *options)
    return (server.cpu_s() - before) / measured.finished * 1e6


@contextmanager
def issuer(kind: Kind) -> Iterator[tuple[str, str]]:
    """An issuer of tokens on the load's core: its URL, and a token of it."""
    process = subprocess.Popen(
        [kind.python, HERE / "issuer.py", AUDIENCE],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: servers.pin(servers.LOAD_CORE),
    )
    assert process.stdout is not None
    try:
        said = json.loads(process.stdout.readline() or b"{}")
        if "token" not in said:
            raise Broken("the issuer of tokens did not start")
        yield said["url"], said["token"]
    finally:
        servers.end(process)
        process.stdout.close()
