"""ChatAgent: a model behind a card, reached through any endpoint of chat completions.

Invariant: the endpoint keeps nothing that a task needs. The conversation is in the store, and goes with each call.
"""

from collections.abc import AsyncIterator
from itertools import count

import msgspec
from msgspec.structs import replace

from dragoman.agents.breaker import State
from dragoman.agents.model import failures
from dragoman.agents.model.answer import AnswerCalls, ModelAnswer, RetryPolicy
from dragoman.agents.model.endpoint import ModelEndpoint, check_endpoint
from dragoman.agents.model.request import ChatMessage, ModelRequest, UnsendablePart, fetches, media_type, unsendable
from dragoman.agents.model.tool_loop import Calling, Round, Transcript, with_unique_ids
from dragoman.agents.tools import Tools
from dragoman.config import Model
from dragoman.dialects import json_bounds
from dragoman.engine.api import CheckResult, Run, Runner, Traits, Unreadable
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError
from dragoman.model.message import Artifact, Message, Part
from dragoman.telemetry.job_group import JobGroup


class ChatAgent(Runner):
    """The model of the table `model`, whose endpoint is given the `key`.

    A run that a crash interrupted begins its answer again and replaces what was emitted; with tools, it resumes after
    the last call.
    """

    def __init__(
        self,
        profile: Profile,
        model: Model,
        key: str = "",
        *,
        tools: Tools | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.profile = profile
        self.traits = Traits(restartable=True, one_message=True, may_refuse=True)
        self._model = model
        self._asking = ModelRequest(model)
        self._endpoint = ModelEndpoint(model, key)
        self._tools = tools
        retry = retry or RetryPolicy(retries=model.retries, wait_max_s=model.retry_wait_s)
        self._calls = AnswerCalls(profile.id, model, self._endpoint, retry)

    @property
    def offline(self) -> bool:
        """Whether sends are refused, because the endpoint does not answer and no call may be made yet."""
        return self._endpoint.breaker.wait_s > 0

    @property
    def degraded(self) -> str | None:
        """Why it cannot answer, or not with all of its tools, as far as the latest calls show."""
        if self._endpoint.breaker.state is not State.CLOSED:
            return "its endpoint does not answer: calls are held back for a while"
        return None if self._tools is None else self._tools.degraded

    def refusal(self) -> A2AError:
        """The error for a send while it is offline."""
        return self._endpoint.breaker.refusal(self.profile.id)

    async def open(self, group: JobGroup) -> None:
        """Open the tools. The endpoint needs no opening: it connects with the first call."""
        if self._tools is not None:
            await self._tools.open(group)

    async def close(self) -> None:
        """Close the endpoint's connections and the tools."""
        await self._endpoint.close()
        if self._tools is not None:
            await self._tools.close()

    async def check(self) -> AsyncIterator[CheckResult]:
        """Check whether the endpoint is there, accepts this server's key, and has the model; then check the tools."""
        async for finding in check_endpoint(self._endpoint, self._model.model):
            yield finding
        if self._tools is not None:
            async for finding in self._tools.check():
                yield finding

    async def run(self, run: Run) -> None:
        """Have the model answer the message of the task."""
        asking, model = self._asking, self._model
        message = await self._fetch_files(run)
        history = await run.history(model.history_messages) if model.history_messages else ()
        try:
            messages = asking.conversation(message, history)
        except UnsendablePart as error:
            raise failures.unsendable(error) from error
        if self._tools is None:
            answer = await self._calls.answer(run, asking.body(messages, ()), "result")
            if answer.usage is not None:
                run.usage(answer.usage)
            if answer.calls:
                raise failures.failed(f"{run.head.agent} calls tools that it was not given.", "model_unreadable")
        else:
            answer = await self._answer_with_tools(run, self._tools, messages)
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

    async def _answer_with_tools(self, run: Run, tools: Tools, messages: list[ChatMessage]) -> ModelAnswer:
        """Make the model's tool calls, and return the answer that follows the last of them."""
        transcript = Transcript(run)
        calling = Calling(run, tools, transcript)
        offered = await tools.list_tools()
        for number in count(1):
            round_ = transcript.round(number)
            if round_ is None:
                answer = await self._calls.answer(
                    run,
                    self._asking.body(messages, offered),
                    "result" if number == 1 else f"result-{number}",
                    first=number == 1,
                )
                if answer.usage is not None:
                    run.usage(answer.usage)
                if not answer.calls:
                    return answer
                if number > self._model.tool_rounds:
                    text = f"{run.head.agent} called tools {self._model.tool_rounds} times without reaching an answer."
                    raise failures.failed(text, "model_tool_rounds")
                round_ = Round(answer.text, with_unique_ids(answer.calls, number), answer.usage)
                transcript.keep_round(number, round_)
            elif round_.usage is not None:
                run.usage(round_.usage)
            messages += await calling.round(number, round_, offered)
        raise AssertionError("unreachable: the rounds are counted")

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
