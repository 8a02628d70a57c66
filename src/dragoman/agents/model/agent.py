"""ChatAgent: a model behind a card, by any endpoint of chat completions.

Invariant: the endpoint keeps nothing that a task needs: the conversation is in the store, and goes with each call.
"""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.breaker import State
from dragoman.agents.checks import Checkable, Finding
from dragoman.agents.lifetime import Dependent, Living
from dragoman.agents.model import failures
from dragoman.agents.model.answer import Answer, Answering, Trying
from dragoman.agents.model.check import looked
from dragoman.agents.model.endpoint import Endpoint
from dragoman.agents.model.messages import Said, Unsendable, fetches, media_type, unsendable
from dragoman.agents.model.request import Asking
from dragoman.agents.model.tool_loop import Calling, identified
from dragoman.agents.model.transcript import Round, Transcript
from dragoman.agents.text_windows import Windows
from dragoman.agents.tools import Tools
from dragoman.dialects import json_bounds
from dragoman.engine.api import Run, Unreadable
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError, Unavailable
from dragoman.model.message import Artifact, Message, Part


class Policy(Struct, frozen=True, kw_only=True):
    """What becomes of an answer that is none, or not all of one; and how often tools are called in a task."""

    on_refusal: str = "reject"
    on_length: str = "complete"
    tool_rounds: int = 10


class ChatAgent:
    """A model. Satisfies `Runner`, `Refusing`, `Living`, `Dependent` and `Checkable`.

    Tokens are gathered for `coalesce_s`. A run that a crash cut off begins its answer anew, in place of what was given
    out; with tools, from the last call.
    """

    def __init__(
        self,
        profile: Profile,
        asking: Asking,
        endpoint: Endpoint,
        *,
        trying: Trying | None = None,
        policy: Policy | None = None,
        tools: Tools | None = None,
        coalesce_s: float = 0.03,
    ) -> None:
        self.profile = profile
        self.direct = False
        self.restartable = True
        self.one_message = True
        self.may_refuse = True
        self._asking = asking
        self._endpoint = endpoint
        self._policy = policy or Policy()
        self._tools = tools
        self._answering = Answering(
            profile.id, endpoint, Windows(coalesce_s), trying or Trying(), on_refusal=self._policy.on_refusal
        )

    @property
    def offline(self) -> bool:
        """Whether sends are refused, since the endpoint does not answer and no call is to be made."""
        breaker = self._endpoint.breaker
        return breaker.state is not State.CLOSED and breaker.wait_s > 0

    @property
    def degraded(self) -> str | None:
        """Why it cannot answer, or not with all of its tools, for all that is known from what was asked last."""
        if self._endpoint.breaker.state is not State.CLOSED:
            return "its endpoint does not answer: calls are held back for a while"
        return tools.degraded if isinstance(tools := self._beside, Dependent) else None

    def refusal(self) -> A2AError:
        """The error for a send while it is offline."""
        wait_s = int(self._endpoint.breaker.wait_s) + 1
        return Unavailable(f"agent {self.profile.id!r} cannot be reached at present: try again", wait_s)

    @property
    def _beside(self) -> object:
        """Its tools, which may be more than that."""
        return self._tools

    async def open(self, group: asyncio.TaskGroup) -> None:
        """Open its tools; the endpoint is asked when there is something to ask."""
        if isinstance(tools := self._beside, Living):
            await tools.open(group)

    async def close(self) -> None:
        """End what is open."""
        await self._endpoint.close()
        if isinstance(tools := self._beside, Living):
            await tools.close()

    async def check(self) -> AsyncIterator[Finding]:
        """Whether the endpoint is there, lets this server in, and has the model; then its tools."""
        async for finding in looked(self._endpoint, str(self._asking.settings.get("model", ""))):
            yield finding
        if isinstance(tools := self._beside, Checkable):
            async for finding in tools.check():
                yield finding

    async def run(self, run: Run) -> None:
        """Have the model answer the message of the task."""
        asking = self._asking
        message = await self._fetched(run)
        history = await run.history(asking.history_messages) if asking.history_messages else ()
        try:
            messages = asking.conversation(message, history)
        except Unsendable as error:
            raise failures.unsendable(error) from error
        if self._tools is None:
            answer = await self._answering.answer(
                run, asking.body(messages, ()), "result", keeps=asking.schema is not None
            )
            if answer.usage is not None:
                run.usage(answer.usage)
            if answer.calls:
                raise failures.failed(f"{run.head.agent} calls tools that it was not given.", "model_unreadable")
        else:
            answer = await self._with_tools(run, self._tools, messages)
        await self._finished(run, answer)

    async def _fetched(self, run: Run) -> Message:
        """The caller's message, with the bytes of the files whose URLs the endpoint does not take."""
        message, takes = run.message, self._asking.takes
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

    async def _with_tools(self, run: Run, tools: Tools, messages: list[Said]) -> Answer:
        """The answer after the last call of a tool."""
        transcript = Transcript(run)
        calling = Calling(run, tools, transcript)
        offered = await tools.offered()
        for number in count(1):
            round_ = transcript.round(number)
            if round_ is None:
                answer = await self._answering.answer(
                    run,
                    self._asking.body(messages, offered),
                    "result" if number == 1 else f"result-{number}",
                    keeps=self._asking.schema is not None,
                    first=number == 1,
                )
                if answer.usage is not None:
                    run.usage(answer.usage)
                if not answer.calls:
                    return answer
                if number > self._policy.tool_rounds:
                    text = f"{run.head.agent} called tools {self._policy.tool_rounds} times and came to no end."
                    raise failures.failed(text, "model_tool_rounds")
                round_ = Round(answer.text, identified(answer.calls, number), answer.usage)
                transcript.keep_round(number, round_)
            elif round_.usage is not None:
                run.usage(round_.usage)
            messages += await calling.round(number, round_, offered)
        raise AssertionError("unreachable: the rounds are counted")

    async def _finished(self, run: Run, answer: Answer) -> None:
        """What the end of an answer means for the task. Raises Ended unless it is whole."""
        policy, name = self._policy, run.head.agent
        if answer.refusal or answer.finish == "content_filter":
            text = answer.refusal or "The content filter of the model's endpoint cut the answer off."
            if policy.on_refusal != "answer":
                raise failures.refused(text, policy.on_refusal)
            await run.artifact(Artifact(artifact_id="refusal", parts=(Part(text=text),)), append=False, last_chunk=True)
            return
        if answer.finish == "length":
            if not answer.text:
                text = f"{name} used up its tokens before it had said anything: it needs more of them."
                raise failures.failed(text, "model_length")
            if policy.on_length == "fail" or self._asking.schema is not None:
                raise failures.failed(f"{name} used up its tokens: the answer is cut off.", "model_length")
            raise failures.cut_off()
        if self._asking.schema is not None:
            await self._data(run, answer.text)

    async def _data(self, run: Run, text: str) -> None:
        """Give out an answer with a schema, as data."""
        said = _unfenced(text).encode()
        try:
            json_bounds.check(said)
            data = msgspec.json.decode(said)
        except (A2AError, msgspec.MsgspecError, RecursionError) as error:
            raise failures.failed(f"{run.head.agent} did not answer in JSON.", "model_not_json") from error
        artifact = Artifact(artifact_id="result", parts=(Part(data=data, media_type="application/json"),))
        await run.artifact(artifact, append=False, last_chunk=True)


def _unfenced(text: str) -> str:
    """JSON without the fence that smaller models put around it."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and len(text) > 6:
        return text[3:-3].removeprefix("json").strip()
    return text
