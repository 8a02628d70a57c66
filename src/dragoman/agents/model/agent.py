"""ChatAgent: a model behind a card, reached through any endpoint of chat completions.

Invariant: the endpoint keeps nothing that a task needs. The conversation is in the store, and goes with each call.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import count

import msgspec
from msgspec.structs import replace

from dragoman.agents.acting_party import ActingParty
from dragoman.agents.model import failures
from dragoman.agents.model.answer import AnswerCalls, ModelAnswer
from dragoman.agents.model.endpoint import check_endpoint
from dragoman.agents.model.pool import ModelPool, PoolEndpoint, RetryPolicy
from dragoman.agents.model.probe import EndpointProbe, look_s
from dragoman.agents.model.provider import provider_of
from dragoman.agents.model.request import ChatMessage, ModelRequest, UnsendablePart, fetches, media_type, unsendable
from dragoman.agents.model.tool_loop import ToolLoop, pending_call
from dragoman.agents.tools import ModelTool, Tools
from dragoman.client.token_exchange import TokenExchange
from dragoman.config import Model
from dragoman.dialects import json_bounds
from dragoman.engine.api import CheckResult, Run, Runner, Traits, Unreadable
from dragoman.engine.switches import ALL_SWITCHED, Switches
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError, AgentOffline
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import Record
from dragoman.telemetry.job_group import JobGroup


class ChatAgent(Runner):
    """The model of the table `model`, at the endpoints of the `pool`.

    A run that a crash interrupted begins its answer again and replaces what was emitted. With tools, its answers and
    its calls are steps: it goes on after the last one that is recorded.
    """

    def __init__(
        self,
        profile: Profile,
        model: Model,
        pool: ModelPool,
        *,
        tools: Tools | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.profile = profile
        self.traits = Traits(
            restartable=True,
            one_message=True,
            may_refuse=True,
            exchanges=any(each.model.exchanges for each in pool.endpoints)
            or (tools is not None and bool(tools.exchanges)),
            step_uncertain=model.step_uncertain,
            provider=provider_of(model.url),
        )
        self._model = model
        self.pool = pool
        self._tools = tools
        self._group: JobGroup | None = None
        self._probing: asyncio.Task[None] | None = None
        retry = retry or RetryPolicy(retries=model.retries, wait_max_s=model.retry_wait_s)
        self._calls = AnswerCalls(profile.id, self.pool, retry)

    @property
    def offline(self) -> bool:
        """Whether sends are refused, because no endpoint answers and no call may be made yet, or all are switched."""
        return self.pool.wait_s > 0 or self.pool.out_of_service

    @property
    def members(self) -> tuple[str, ...]:
        """The names of its endpoints; none if it has one."""
        return tuple(each.name for each in self.pool.endpoints if each.name)

    @property
    def endpoints(self) -> Sequence[PoolEndpoint]:
        """Its endpoints, if there are several."""
        return self.pool.endpoints if len(self.pool.endpoints) > 1 else ()

    def heed(self, switches: Switches) -> None:
        """Ask no endpoint that operators have switched from now on."""
        self.pool.heed(self.profile.id, switches)

    @property
    def degraded(self) -> str | None:
        """Why it cannot answer, or not with all of its endpoints and tools, as far as the latest calls show."""
        if (away := self.pool.held_back) and (one := len(self.pool.endpoints)) == 1:
            return "its endpoint does not answer: calls are held back for a while"
        if away:
            named = ", ".join(each.name for each in away)
            return f"{len(away)} of its {one} endpoints do not answer: calls to {named} are held back for a while"
        return None if self._tools is None else self._tools.degraded

    def refusal(self) -> A2AError:
        """The error for a send while it is offline."""
        if self.pool.out_of_service:
            return AgentOffline(self.profile.id, ALL_SWITCHED)
        first = min((each.endpoint.breaker for each in self.pool.endpoints), key=lambda each: each.wait_s)
        return first.refusal(self.profile.id, 1.5 * look_s(self.pool))

    async def open(self, group: JobGroup) -> None:
        """Open the tools, and look at the endpoints from now on, which connect with the first call."""
        self._group = group
        probe = EndpointProbe(self.profile.id, self.pool, random.random)
        self._probing = group.keep(f"endpoints: {self.profile.id}", probe.watch)
        if self._tools is not None:
            await self._tools.open(group)

    async def close(self) -> None:
        """Close the endpoint's connections and the tools."""
        self._group = None
        if self._probing is not None:
            self._probing.cancel()
        await asyncio.gather(*(each.endpoint.close() for each in self.pool.endpoints))
        if self._tools is not None:
            await self._tools.close()

    def stopped(self, record: Record) -> None:
        """Give up a call that waited for the caller of a task, which was canceled meanwhile."""
        if self._tools is not None and self._group is not None and (handle := pending_call(record)):
            self._group.create_task(self._tools.give_up(handle))

    async def check(self) -> AsyncIterator[CheckResult]:
        """Check whether each endpoint is there, accepts its key, and has its model; then check the tools."""
        for each in self.pool.endpoints:
            async for finding in check_endpoint(each.endpoint, each.model.model):
                yield replace(finding, what=f"{each.name}: {finding.what}") if each.name else finding
            if self._group is None:
                await each.endpoint.close()
        if self._tools is not None:
            async for finding in self._tools.check():
                yield finding

    async def run(self, run: Run) -> None:
        """Have the model answer the message of the task."""
        acting = ActingParty(run, run.head.agent) if self.traits.exchanges else None
        if acting is not None:
            await acting.ensure(self._exchanges)
        model = self._model
        message = await self._fetch_files(run)
        history = await run.history(model.history_messages) if model.history_messages else ()
        try:
            messages = self.pool.first.requests.conversation(message, history)
        except UnsendablePart as error:
            raise failures.unsendable(error) from error
        if self._tools is None:
            answer = await self._calls.answer(run, lambda requests: requests.body(messages, ()), "result")
            if answer.usage is not None:
                run.usage(answer.usage)
            if answer.calls:
                raise failures.failed(f"{run.head.agent} calls tools that it was not given.", "model_unreadable")
        else:
            answer = await self._answer_with_tools(run, self._tools, messages, acting)
        await self._finish(run, answer)

    async def _fetch_files(self, run: Run) -> Message:
        """The caller's message. Files whose URLs the endpoint does not take are replaced by their bytes."""
        message, takes = run.message, self._model.takes
        if not any(fetches(part, takes) for part in message.parts):
            return message
        parts: list[Part] = []
        for at, part in enumerate(message.parts):
            if fetches(part, takes):
                try:
                    raw = await run.read(part)
                except Unreadable as error:
                    raise failures.unsendable(unsendable(at, part, str(error))) from error
                part = replace(part, url=None, raw=raw, media_type=media_type(part))
            parts.append(part)
        return replace(message, parts=tuple(parts))

    @property
    def _exchanges(self) -> tuple[TokenExchange, ...]:
        """How callers' tokens are exchanged for those of the endpoints and the tools."""
        return (*self.pool.exchanges, *(() if self._tools is None else self._tools.exchanges))

    async def _answer_with_tools(
        self, run: Run, tools: Tools, messages: list[ChatMessage], acting: ActingParty | None
    ) -> ModelAnswer:
        """Make the model's tool calls, and return the answer that follows the last of them.

        `acting` has tokens for the caller before each step, since nobody can be asked within one.
        """
        loop = ToolLoop(run, tools, acting)
        offered = await tools.list_tools()
        for number in count(1):
            if acting is not None:
                await acting.ensure(self._exchanges)
            answer = await loop.take_answer(number, partial(self._ask_model, run, number, messages, offered))
            if isinstance(answer, ModelAnswer):
                return answer
            messages += await loop.make_calls(number, answer)
        raise AssertionError("unreachable: the rounds are counted")

    async def _ask_model(
        self, run: Run, number: int, messages: list[ChatMessage], offered: tuple[ModelTool, ...]
    ) -> ModelAnswer:
        """Ask the model, for the time of that number in this task."""
        artifact_id = "result" if number == 1 else f"result-{number}"

        def write_body(requests: ModelRequest) -> bytes:
            return requests.body(messages, offered)

        answer = await self._calls.answer(run, write_body, artifact_id, first=number == 1)
        if answer.usage is not None:
            run.usage(answer.usage)
        if answer.calls and number > self._model.tool_rounds:
            text = f"{run.head.agent} called tools {self._model.tool_rounds} times without reaching an answer."
            raise failures.failed(text, "model_tool_rounds")
        return answer

    async def _finish(self, run: Run, answer: ModelAnswer) -> None:
        """Settle the task by how the answer ended. Raises Ended unless the answer is whole."""
        model, name = self._model, run.head.agent
        if answer.refusal or answer.finish == "content_filter":
            text = answer.refusal or "The content filter of the model's endpoint cut the answer off."
            if model.on_refusal != "answer":
                raise failures.refused(text, model.on_refusal)
            await run.artifact(Artifact(artifact_id="refusal", parts=(Part(text=text),)), append=False, last_chunk=True)
            return
        if answer.finish == "length":
            if not answer.text:
                text = f"{name} used up its tokens before it said anything: it needs more of them."
                raise failures.failed(text, "model_length")
            if model.on_length == "fail" or model.schema is not None:
                raise failures.failed(f"{name} used up its tokens: the answer is cut off.", "model_length")
            raise failures.cut_off()
        if model.schema is not None:
            await self._emit_data(run, answer.text)

    async def _emit_data(self, run: Run, text: str) -> None:
        """Emit an answer with a schema, as data."""
        said = _strip_fence(text).encode()
        try:
            json_bounds.check(said)
            data = run.bounds.json("data", msgspec.json.decode(said))
        except (A2AError, ValueError, RecursionError) as error:
            raise failures.failed(f"{run.head.agent} did not answer in JSON.", "model_not_json") from error
        artifact = Artifact(artifact_id="result", parts=(Part(data=data, media_type="application/json"),))
        await run.artifact(artifact, append=False, last_chunk=True)


def _strip_fence(text: str) -> str:
    """The JSON without the code fence that smaller models put around it."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and len(text) > 6:
        return text[3:-3].removeprefix("json").strip()
    return text
