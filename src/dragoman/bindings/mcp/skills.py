"""Skills as the tools of a caller, and calls of them, whatever the version of MCP.

Invariant: a caller finds only the tools of agents that it may use.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from dragoman.bindings.calls import Reception, decode_body, make_call
from dragoman.bindings.http import HttpRequest, HttpResponse, error_response
from dragoman.bindings.limits import LARGE_BYTES
from dragoman.bindings.mcp.tool_call import ToolCallStream
from dragoman.bindings.request import TRACEPARENT, read_parameters
from dragoman.dialects.json_bounds import check_parts
from dragoman.dialects.mcp import answers, requests, tools
from dragoman.dialects.mcp.tools import Tool
from dragoman.dialects.v03.fields import Fields
from dragoman.engine.handler import Handler
from dragoman.model.card import Profile
from dragoman.model.errors import InvalidParams, InvalidRequest, Unavailable
from dragoman.model.ids import new_id
from dragoman.model.operations import Call, CancelTask, GetTask, Manners, SendMessage, Subscribe
from dragoman.model.principal import ANONYMOUS
from dragoman.store.api import StoreError

EVENTS, JSON, ANYTHING = "text/event-stream", "application/json", "*/*"

DIALECT = "mcp"
"""The dialect that is stored with the tasks made here."""

MANNERS = Manners(answers_with_message=False, subscribes_to_ended=True)

Operation = SendMessage | Subscribe | CancelTask | GetTask


MADE_MAX = 100
"""For how many selections of agents the tools are kept ready: callers whose keys reach the same agents share one."""


class MadeTools(Struct, frozen=True):
    """Tools by name, and the descriptions that they were made of."""

    of: tuple[Profile, ...]
    by_name: dict[str, Tool]


class SkillTools:
    """The tools that callers find, and the calls that they make of them."""

    def __init__(self, handler: Handler, reception: Reception) -> None:
        self.handler = handler
        self.reception = reception
        self._made: dict[tuple[bool, tuple[str, ...]], MadeTools] = {}

    def usable(self, request: HttpRequest) -> dict[str, Profile]:
        """The agents that the caller may use."""
        agents, callers = self.reception.listed, self.reception.callers
        return {agent_id: agent.profile for agent_id, agent in agents.items() if callers.admits(request, agent_id)}

    def list_tools(self, request: HttpRequest) -> list[Tool]:
        """The tools of the agents that the caller may use, sorted by name."""
        return list(self._tools(request).values())

    def _tools(self, request: HttpRequest) -> dict[str, Tool]:
        """The caller's tools by name, in their order. They are made anew when an agent's description has changed."""
        usable, extended = self.usable(request), request.principal is not ANONYMOUS
        key = (extended, tuple(usable))
        known = self._made.get(key)
        if known is None or any(profile is not then for profile, then in zip(usable.values(), known.of, strict=True)):
            made = {tool.name: tool for tool in tools.tools(usable, extended=extended)}
            known = self._made[key] = MadeTools(tuple(usable.values()), made)
            if len(self._made) > MADE_MAX:
                del self._made[next(iter(self._made))]
        return known.by_name

    def find_tool(self, request: HttpRequest, name: str) -> Tool:
        """The caller's tool of that name. Raises InvalidParams."""
        tool = self._tools(request).get(name)
        if tool is None:
            raise InvalidParams("name", f"there is no tool {name[:100]!r}: tools/list has those that you may use")
        return tool

    async def decode_arguments(self, request: HttpRequest, tool: Tool, arguments: Fields) -> requests.CallArguments:
        """Decode the arguments of a call, and check them against the limits. Raises InvalidParams."""
        limits = self.reception.limits

        def decode() -> requests.CallArguments:
            if tool.schema is None:
                decoded = requests.decode_arguments(arguments, new_id())
            else:
                decoded = requests.decode_own_arguments(arguments, tool.schema, new_id())
            if decoded.message is not None and request.size >= LARGE_BYTES:
                check_parts(decoded.message, limits.max_parts, limits.max_text)
            return decoded

        return await decode_body(request, limits, decode)

    async def make_call(self, request: HttpRequest, operation: Operation, traceparent: str | None = None) -> Call:
        """Make the call of an operation. `traceparent` counts if the request has no header of that name."""
        parameters = replace(read_parameters(request), after=None)  # the streams of MCP cannot be resumed
        call = await make_call(
            self.reception, self.handler, request, parameters, operation, dialect=DIALECT, manners=MANNERS
        )
        if call.traceparent is None and traceparent is not None and TRACEPARENT.fullmatch(traceparent):
            call = replace(call, traceparent=traceparent)
        return call


def accepted_types(request: HttpRequest) -> frozenset[str]:
    """The media types of answers that the caller accepts; JSON if there is no Accept header."""
    sent = request.items(b"accept")
    if not sent:
        return frozenset({JSON})
    kinds = {item.partition(";")[0].strip().lower() for item in sent}
    return frozenset(kinds & {EVENTS, JSON, ANYTHING}) | ({JSON} if "application/*" in kinds else frozenset())


def not_acceptable(request_id: bytes, kinds: str) -> HttpResponse:
    """The answer to a caller that accepts none of these types."""
    wrong = InvalidRequest(f"Accept must have {kinds}")
    return error_response(wrong, 406, b"application/json", answers.error(request_id, wrong))


async def wait_for_end(stream: ToolCallStream, request: HttpRequest, wait_s: float) -> None:
    """Wait until a call has ended, its caller has left, or `wait_s` is over, and read no further then."""
    try:
        async with asyncio.timeout(wait_s):
            await wait_a_while(stream, request, None)
    except TimeoutError:
        pass


async def wait_a_while(stream: ToolCallStream, request: HttpRequest, wait_s: float | None) -> None:
    """Wait as `wait_for_end` does, but interrupt nothing: after `wait_s` the stream can be read further."""
    loop = asyncio.get_running_loop()
    until_s = None if wait_s is None else loop.time() + wait_s
    watcher = asyncio.create_task(_close_when_left(stream, request))
    left_s = wait_s
    try:
        while (left_s is None or left_s > 0) and await stream.next(left_s) is not None:
            if until_s is not None:
                left_s = until_s - loop.time()
    finally:
        watcher.cancel()


async def _close_when_left(stream: ToolCallStream, request: HttpRequest) -> None:
    await request.wait_until_left()
    stream.close()


@contextmanager
def store_answers() -> Iterator[None]:
    """Raises Unavailable if the store does not answer in the block."""
    try:
        yield
    except StoreError as error:
        raise Unavailable("the server's store cannot answer now: try again", 5) from error
