"""McpTools: the tools of MCP servers, as a model may call them.

Invariant: whatever a server does, the run continues: a call ends with a result, which may be a failure. A name stands
for the same tool as long as the process lasts, and a model's API accepts it: 1 to 64 letters, digits, `_` and `-`.
Files and links, which a model cannot be given, are described to it in words. A check calls no tool, and closes the
session that it opens. A server that is called in its callers' names has a session for each token of a caller, which is
used with no other, and no longer than the token lives.
"""

import asyncio
import hashlib
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from dragoman.agents.exchange_check import check_exchange
from dragoman.agents.masking import NO_MASKING, Masking
from dragoman.agents.mcp.calls import ServerCall, read_handle
from dragoman.agents.mcp.link import Away, Reach
from dragoman.agents.mcp.session import McpServer
from dragoman.agents.tools import ModelTool, ToolAnswer, ToolPending, ToolResult, Tools
from dragoman.client.token_exchange import TokenExchange, present_subject
from dragoman.dialects.mcp.client import ToolOffer, ToolProgress
from dragoman.dialects.mcp.outcomes import ToolOutcome
from dragoman.engine.api import CheckResult, Run
from dragoman.model.message import Part
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.mcp")

TELL_EVERY_S = 0.25
"""Shortest time between two statuses that report a call's progress: a server may report every byte."""

PROGRESS_CHARS_MAX = 500

CHARS_MAX = 64
DIGEST_CHARS = 8
_OTHER = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)

TEXT_CHARS_MAX = 200_000
"""The longest text of one result that a model is given: it must fit into the model's input with everything else."""

CALLERS_MAX = 1000
"""Most tokens of callers that have a session of their own, with all servers together."""

CHECK_S = 6.0
"""How long a server and its tools are waited for, together; ending a program takes up to three seconds more."""

FIX = "start it, or fix `run` of this tool; run a program once by itself: it may have to download something first"


class McpGrant(Struct, frozen=True, kw_only=True):
    """The permissions of a model on a server: it may call the tools in `allow`, all if that is None.

    `approve` names the tools whose calls the caller of a task must approve first, `at_most_once` those that are not
    called again after a crash, beside those of which the server says so; "never" overrides the server. `task_s` bounds
    how long a task of the server may work; with `elicitation` the server may ask the caller of our task.
    """

    name: str
    reach: Reach
    allow: frozenset[str] | None = None
    approve: Literal["always", "never"] | frozenset[str] = "never"
    at_most_once: Literal["hints", "always", "never"] | frozenset[str] = "hints"
    start_s: float = 30.0
    call_s: float = 120.0
    task_s: float = 3600.0
    elicitation: bool = True

    def make_server(self, group: JobGroup, start_s: float) -> McpServer:
        """The server, which may take `start_s` to start. Its messages are read in `group`."""
        make_link = partial(self.reach.link, group)
        return McpServer(self.name, make_link, start_s=start_s, call_s=self.call_s, elicits=self.elicitation)

    def allows(self, tool: str) -> bool:
        """Whether the model may call the tool."""
        return self.allow is None or tool in self.allow

    def asks(self, tool: str) -> bool:
        """Whether the caller must approve calls of the tool."""
        return self.approve == "always" or (self.approve != "never" and tool in self.approve)

    def calls_once(self, tool: str, *, hinted: bool) -> bool:
        """Whether the tool is called at most once. `hinted`: its server says that a second call may do harm."""
        if self.at_most_once in ("always", "never"):
            return self.at_most_once == "always"
        return hinted or (self.at_most_once != "hints" and tool in self.at_most_once)

    def missing(self, there: Collection[str]) -> tuple[tuple[str, str], ...]:
        """The configured tools that are not in `there`, each after its key: nobody is asked to approve those."""
        named = {"allow": self.allow or frozenset()}
        for key, tools in (("approve", self.approve), ("at_most_once", self.at_most_once)):
            if not isinstance(tools, str):
                named[key] = tools
        return tuple((key, tool) for key, tools in named.items() for tool in sorted(tools.difference(there)))


class _Granted(Struct):
    """An open server, why it was away when its tools were last listed, the configured tools that it lacked, and those
    of which it has said that a second call may do harm."""

    grant: McpGrant
    server: McpServer
    away: str = ""
    missing: tuple[tuple[str, str], ...] = ()
    hinted: frozenset[str] = frozenset()

    def note_away(self, error: str) -> bool:
        """Note why the server is away; empty if it is not. Returns whether that is new."""
        before, self.away = self.away, error
        return before != error

    @property
    def masking(self) -> Masking:
        """Removes what the server is shown in the present caller's name."""
        exchange, subject = self.grant.reach.exchange, present_subject.get()
        return NO_MASKING if exchange is None else Masking(exchange.shown_for(subject))

    def masked(self, came: ToolResult | ToolPending) -> ToolResult | ToolPending:
        """The outcome of a call without what the server was shown."""
        masking = self.masking
        if not masking.active:
            return came
        if isinstance(came, ToolPending):
            asked = [
                replace(each, text=masking.text(each.text), form=masking.any(each.form)) for each in came.questions
            ]
            return replace(came, questions=tuple(asked))
        return replace(came, text=masking.text(came.text), parts=tuple(masking.parts(came.parts)))

    def masked_offers(self, offers: Iterable[ToolOffer]) -> tuple[ToolOffer, ...]:
        """Tools without what the server was shown: the model reads what they say of themselves."""
        masking = self.masking
        if not masking.active:
            return tuple(offers)
        return tuple(
            replace(offer, description=masking.text(offer.description), schema=masking.any(offer.schema))
            for offer in offers
        )

    def note_missing(self, missing: tuple[tuple[str, str], ...]) -> bool:
        """Note the configured tools that it lacks. Returns whether these are others than before."""
        before, self.missing = self.missing, missing
        return before != missing


class McpTools(Tools):
    """The tools of the servers in `grants`.

    With several servers, the name of each tool begins with its server's: `files__read`.
    """

    def __init__(self, grants: Sequence[McpGrant]) -> None:
        self._grants = tuple(grants)
        self._names = ToolNames(tuple(grant.name for grant in self._grants))
        self._open: tuple[_Granted, ...] = ()
        self._group: JobGroup | None = None
        self._callers: OrderedDict[tuple[str, str], _Granted] = OrderedDict()
        """The servers that are called in their callers' names, by their own names and the digests of the tokens."""

    @property
    def exchanges(self) -> tuple[TokenExchange, ...]:
        """See `Tools`."""
        return tuple(grant.reach.exchange for grant in self._grants if grant.reach.exchange is not None)

    async def open(self, group: JobGroup) -> None:
        """Get ready. Servers are reached when they are first needed; their messages are read in `group`."""
        self._group = group
        self._open = tuple(_Granted(grant, grant.make_server(group, grant.start_s)) for grant in self._grants)

    async def close(self) -> None:
        """End all sessions."""
        granted, self._open = (*self._open, *self._callers.values()), ()
        self._callers.clear()
        self._group = None
        await asyncio.gather(*(one.server.close() for one in granted))
        await asyncio.gather(*(grant.reach.close() for grant in self._grants))

    @property
    def degraded(self) -> str | None:
        """Names the servers that were away when they were last needed; None if there are none."""
        away = [granted.grant.name for granted in self._open if granted.away]
        return f"its tools of {', '.join(away)} are away" if away else None

    async def list_tools(self) -> tuple[ModelTool, ...]:
        """The tools of all reachable servers, in the order of the servers."""
        offers = await asyncio.gather(*(self._offers(self._of_caller(granted)) for granted in self._open))
        return tuple(
            _tool(self._names.name(ServerTool(server, offer.name)), offer)
            for server, offered in enumerate(offers)
            for offer in offered
        )

    def needs_approval(self, name: str) -> bool:
        """Whether the caller must approve the tool. A name that was never offered cannot be called either."""
        meant = self._names.resolve(name)
        return meant is not None and self._grants[meant.server].asks(meant.tool)

    def at_most_once(self, name: str) -> bool:
        """Whether a call of the tool is not made again after a crash, as the table or else its server says."""
        meant = self._names.resolve(name)
        if meant is None or not self._open:
            return False
        granted = self._of_caller(self._open[meant.server])
        return granted.grant.calls_once(meant.tool, hinted=meant.tool in granted.hinted)

    async def call(self, run: Run, name: str, arguments: dict[str, Any], key: str) -> ToolResult | ToolPending:
        """Call a tool that was offered before. The server is told if the call is given up, the caller of progress."""
        meant = self._names.resolve(name)
        if meant is None or not self._open:
            return ToolResult(text=f"There is no tool {name[:100]!r}.", error=True)
        granted = self._of_caller(self._open[meant.server])
        return await _report(granted, run, name, key, lambda call: call.begin(meant.tool, arguments))

    async def resume(
        self, run: Run, arguments: dict[str, Any], key: str, handle: str, answers: Mapping[str, ToolAnswer]
    ) -> ToolResult | ToolPending:
        """Go on with a call that is pending. Its server need not have listed its tools since."""
        held = read_handle(handle)
        granted = self._named(held.server)
        if granted is None:
            return ToolResult(text=f"There is no server {held.server!r} any more.", error=True)
        return await _report(granted, run, held.tool, key, lambda call: call.resume(held, arguments, answers))

    async def give_up(self, handle: str) -> None:
        """Tell the server that nobody waits for its task any more, if the call has become one.

        One that is called in callers' names is told only by a run, which has the caller's token.
        """
        held = read_handle(handle)
        granted = self._named(held.server) if held.task else None
        if granted is not None and (granted.grant.reach.exchange is None or present_subject.get() is not None):
            await granted.server.cancel_task(held.task)

    async def check(self) -> AsyncIterator[CheckResult]:
        """Check whether each server can be reached, and has the configured tools."""
        found = await asyncio.gather(*map(_check_server, self._grants))
        if not self._open:
            await asyncio.gather(*(grant.reach.close() for grant in self._grants))
        for findings in found:
            for finding in findings:
                yield finding

    def _named(self, server: str) -> _Granted | None:
        found = next((granted for granted in self._open if granted.grant.name == server), None)
        return None if found is None else self._of_caller(found)

    def _of_caller(self, granted: _Granted) -> _Granted:
        """The server as it is open for the present caller, if it is called in callers' names."""
        grant, subject, group = granted.grant, present_subject.get(), self._group
        if grant.reach.exchange is None or subject is None or group is None:
            return granted
        key = grant.name, subject.digest
        if (known := self._callers.get(key)) is not None:
            self._callers.move_to_end(key)
            return known
        own = self._callers[key] = _Granted(grant, grant.make_server(group, grant.start_s))
        if subject.expires_ms is not None:
            left_s = max(subject.expires_ms / 1000 - time.time(), 0.0)
            asyncio.get_running_loop().call_later(left_s, self._drop_caller, key)
        if len(self._callers) > CALLERS_MAX:
            self._drop_caller(next(iter(self._callers)))
        return own

    def _drop_caller(self, key: tuple[str, str]) -> None:
        """Close the session of a caller whose token is over, or who has not been here for the longest time."""
        if self._group is not None and (granted := self._callers.pop(key, None)) is not None:
            self._group.create_task(granted.server.close(), name=f"close {granted.grant.name}")

    async def _offers(self, granted: _Granted) -> tuple[ToolOffer, ...]:
        """The server's tools that the model may call, each once; none if the server is away."""
        try:
            offers = await granted.server.offers()
        except Away as error:
            told = granted.masking.text(str(error))
            if granted.note_away(told):
                log.warning("mcp server %s is away, and offers no tools: %s", granted.grant.name, told)
            return ()
        granted.note_away("")
        if granted.note_missing(missing := granted.grant.missing([offer.name for offer in offers])):
            for key, tool in missing:  # a misspelled tool would never be asked about
                log.warning("mcp server %s has no tool %r: fix `%s`", granted.grant.name, tool, key)
        granted.hinted = frozenset(offer.name for offer in offers if offer.harmful_twice)
        first: dict[str, ToolOffer] = {}
        for offer in offers:
            if granted.grant.allows(offer.name):
                first.setdefault(offer.name, offer)
        return granted.masked_offers(first.values())


async def _report(
    granted: _Granted, run: Run, name: str, key: str, go: Callable[[ServerCall], Awaitable[ToolOutcome | ToolPending]]
) -> ToolResult | ToolPending:
    """Go a leg of a call, and tell the caller of its progress meanwhile. A failure is a result."""
    reports = _ProgressReports(run, name, granted.masking)
    call = ServerCall(granted.server, run, key, reports.take, task_s=granted.grant.task_s)
    async with asyncio.TaskGroup() as group:
        reporting = group.create_task(reports.send(), name=f"tell of {key}")
        try:
            came = await go(call)
            result = came if isinstance(came, ToolPending) else _result_of(came)
        except Away as error:
            told = granted.masking.text(str(error))
            log.info("mcp server %s: the call of %s failed: %s", granted.grant.name, name, told)
            result = ToolResult(text=f"The tool failed: {error.told}.", error=True)
        finally:
            reporting.cancel()
    return granted.masked(result)


class ServerTool(Struct, frozen=True):
    """A tool: the number of its server, and its name there."""

    server: int
    tool: str


class ToolNames:
    """The names given so far.

    With several servers, each name begins with its server's, whether needed or not. So the meaning of a name does not
    depend on which servers could be reached.
    """

    def __init__(self, servers: tuple[str, ...]) -> None:
        self._prefixes = tuple(f"{server}__" if len(servers) > 1 else "" for server in servers)
        self._meant: dict[str, ServerTool] = {}
        self._names: dict[ServerTool, str] = {}

    def name(self, tool: ServerTool) -> str:
        """The name under which a model calls the tool."""
        if (name := self._names.get(tool)) is None:
            name = _spell(self._prefixes[tool.server], tool.tool)
            if name in self._meant:  # two tools of this server are spelled alike
                name = _cut(name, tool.tool)
            self._names[tool] = name
            self._meant[name] = tool
        return name

    def resolve(self, name: str) -> ServerTool | None:
        """The tool with that name; None if no such tool was ever offered to a model."""
        return self._meant.get(name)


class _ProgressReports:
    """Reports a call's progress to the caller of a task. Reports that come too fast are left out."""

    def __init__(self, run: Run, name: str, masking: Masking) -> None:
        self._run = run
        self._name = name
        self._masking = masking
        self._newest: ToolProgress | None = None
        self._news = asyncio.Event()

    def take(self, progress: ToolProgress) -> None:
        """Take the newest progress."""
        self._newest = progress
        self._news.set()

    async def send(self) -> None:
        """Report progress until canceled."""
        while True:
            await self._news.wait()
            self._news.clear()
            progress = self._newest
            if progress is not None and (progress.steps is not None or progress.message):
                text = self._masking.text(progress.message)[:PROGRESS_CHARS_MAX] or f"{self._name} is at work"
                await self._run.status((Part(text=text),), progress=progress.steps)
            await asyncio.sleep(TELL_EVERY_S)


def _tool(name: str, offer: ToolOffer) -> ModelTool:
    """Describe a tool to the model. The API requires an object with properties, even if there are none."""
    schema = {"properties": {}, **offer.schema, "type": "object"}
    return ModelTool(name=name, description=offer.description, parameters=schema)


def _spell(prefix: str, tool: str) -> str:
    name = prefix + (_OTHER.sub("_", tool) or "_")
    return name if len(name) <= CHARS_MAX else _cut(name, tool)


def _cut(name: str, tool: str) -> str:
    digest = hashlib.sha256(tool.encode(errors="replace")).hexdigest()[:DIGEST_CHARS]
    return f"{name[: CHARS_MAX - DIGEST_CHARS - 1]}_{digest}"


def _result_of(outcome: ToolOutcome) -> ToolResult:
    """The result of a call. Files, web links, and data without a text are for the caller, too."""
    text = "\n".join(map(_describe, outcome.parts))
    if len(text) > TEXT_CHARS_MAX:
        text = f"{text[:TEXT_CHARS_MAX]}\n[cut: the result has {len(text)} characters]"
    if outcome.failed:
        return ToolResult(text=text or "The tool failed and does not say why.", error=True)
    given = tuple(part for part in outcome.parts if _is_given(part))
    return ToolResult(text=text or "The tool is done; it gives no result.", parts=given)


def _is_given(part: Part) -> bool:
    if part.url is not None:
        return urlsplit(part.url).scheme in ("http", "https")
    return part.text is None


def _describe(part: Part) -> str:
    named = f" {part.filename}" if part.filename else ""
    kind = f" ({part.media_type})" if part.media_type else ""
    if part.text is not None:
        return f"{part.filename}:\n{part.text}" if part.filename else part.text
    if part.raw is not None:
        return f"[file{named}{kind}, {len(part.raw)} bytes: the user is given it]"
    if part.url is not None:
        return f"[link{named}{kind}: {part.url}]"
    return "" if part.data is UNSET else msgspec.json.encode(part.data).decode()


async def _check_server(grant: McpGrant) -> list[CheckResult]:
    """Check a server: whether it can be reached, its tools, and whether it has the configured ones.

    One that is called in its callers' names lists its tools to them alone: then the exchange is checked.
    """
    what = f"mcp server {grant.name} ({grant.reach.place})"
    if grant.reach.exchange is not None:
        own = CheckResult(True, f"{what}: is called with tokens for its callers: whether it accepts them was not tried")
        return [own, *[finding async for finding in check_exchange(grant.reach.exchange)]]
    try:
        async with asyncio.timeout(CHECK_S), asyncio.TaskGroup() as group:
            server = grant.make_server(JobGroup(group), min(grant.start_s, CHECK_S))
            try:
                offers, says = await server.offers(), server.says
            except Away as error:
                why = str(error).removeprefix(f"{grant.reach.place}: ")
                return [CheckResult(False, f"{what}: {why}", FIX)]
            finally:
                await server.close()
    except TimeoutError:
        return [CheckResult(False, f"{what}: no answer within {CHECK_S:g} s", FIX)]
    return [_list_tools(f"{what}: {says}" if says else what, grant, offers), *_missing(grant, offers)]


def _list_tools(what: str, grant: McpGrant, offers: tuple[ToolOffer, ...]) -> CheckResult:
    allowed = [offer.name for offer in offers if grant.allows(offer.name)]
    if not allowed:
        fix = "fix `allow`" if offers else "it needs tools to be of use"
        return CheckResult(False, f"{what}: no tools", fix)
    return CheckResult(True, f"{what}: tools {', '.join(allowed)}")


def _missing(grant: McpGrant, offers: tuple[ToolOffer, ...]) -> list[CheckResult]:
    """Findings for tools that the configuration names but the server does not have."""
    there = {offer.name for offer in offers}
    return [
        CheckResult(
            False, f"mcp server {grant.name} has no tool {tool!r}", f"fix `{key}`: it has {', '.join(sorted(there))}"
        )
        for key, tool in grant.missing(there)
    ]
