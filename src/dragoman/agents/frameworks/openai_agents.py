"""Agents of the OpenAI Agents SDK behind a card.

Invariant: the agent runs as its author made it: model, tools, handoffs and guardrails are its own.
"""

import base64
import importlib
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.calls import Calls, approval_of, approved, denial
from dragoman.agents.frameworks.conversation import PlainFile, PlainMessage, history, message
from dragoman.agents.frameworks.model_tokens import ModelTokens
from dragoman.agents.frameworks.runs import FrameworkRun, RunPause, build_agent
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Answer, Context
from dragoman.engine.api import Reject
from dragoman.model.message import Part


def adapts(value: object) -> bool:
    """Whether the object is an agent, but not one for voice."""
    return hasattr(value, "instructions") and hasattr(value, "handoffs") and hasattr(value, "output_type")


def adapt(value: Any, agent_id: str) -> Agent:
    """Put the agent behind a card."""
    return build_agent(
        agent_id,
        lambda ctx: OpenAiAgentsRun(value, ctx),
        name=value.name,
        description=value.handoff_description or "",
        tools=[tool.name for tool in value.tools],
    )


class OpenAiAgentsRun(FrameworkRun):
    """One task's run. Its state at a pause is the SDK's own RunState, with the tokens used so far."""

    def __init__(self, agent: Any, ctx: Context) -> None:
        self._agent = agent
        self._ctx = ctx
        self._calls = Calls(ctx)
        self._sdk = importlib.import_module("agents")

    async def begin(self) -> Any:
        """The message, after the earlier conversation; no tokens were used before."""
        past = [_item(words) for words in await history(self._ctx)]
        return [*past, _item(await message(self._ctx))], (0, 0)

    async def resume(self, state: str, answers: Sequence[Answer]) -> Any:
        """The SDK's state with the calls allowed or denied, and the tokens used before."""
        noted = json.loads(state)
        self._calls.open |= noted["open"]
        run = await self._sdk.RunState.from_string(self._agent, noted["run"])
        for item, answer in zip(run.get_interruptions(), answers, strict=True):
            if approved(answer):
                run.approve(item)
            else:
                run.reject(item, rejection_message=denial(answer))
        return run, (noted["input"], noted["output"])

    async def work(self, given: Any) -> AsyncGenerator[object, None]:
        """Run the agent."""
        run, before = given
        result = self._sdk.Runner.run_streamed(self._agent, run)
        spoken = False
        ended = False
        tokens = ModelTokens()
        try:
            async with self._calls:
                async for event in result.stream_events():
                    if event.type == "raw_response_event":
                        data = event.data
                        if data.type == "response.completed" and data.response.usage is not None:
                            said = data.response.usage
                            tokens.add(data.response.model, said.input_tokens, said.output_tokens)
                        if data.type == "response.output_text.delta" and _plain(result.current_agent):
                            spoken = True
                            yield data.delta
                        elif data.type == "response.created" and spoken:
                            spoken = False
                            yield "\n\n"
                    elif event.type == "run_item_stream_event":
                        await self._report(event)
                    else:
                        await self._report_handoff(event.new_agent)
            ended = True
        except self._sdk.ModelRefusalError as refused:
            raise Reject(refused.refusal) from refused
        except (self._sdk.InputGuardrailTripwireTriggered, self._sdk.OutputGuardrailTripwireTriggered) as tripped:
            raise Reject(_refusal(tripped)) from tripped
        finally:
            if not ended:
                result.cancel()
        used = result.context_wrapper.usage
        tokens.report(self._ctx, max(0, used.input_tokens - before[0]), max(0, used.output_tokens - before[1]))
        if result.interruptions:
            yield self._pause(result, used)
        elif result.final_output is not None and not isinstance(result.final_output, str):
            yield Part(data=json_of(result.final_output))
        elif result.final_output and not spoken:
            yield result.final_output

    async def _report(self, event: Any) -> None:
        item = event.item
        if event.name == "tool_called":
            raw = item.raw_item
            await self._calls.report_start(
                _of(raw, "call_id") or _of(raw, "id") or "", _name(raw), _of(raw, "arguments")
            )
        elif event.name == "tool_output":
            await self._calls.report_end(_of(item.raw_item, "call_id") or "", item.output)

    async def _report_handoff(self, agent: Any) -> None:
        if agent is not self._agent:
            await self._ctx.status(f"{agent.name} takes over")

    def _pause(self, result: Any, used: Any) -> RunPause:
        run = result.to_state()
        questions = tuple(
            approval_of(item.tool_name, _of(item.raw_item, "arguments")) for item in run.get_interruptions()
        )
        state = {
            "run": run.to_string(),
            "open": self._calls.open,
            "input": used.input_tokens,
            "output": used.output_tokens,
        }
        return RunPause(questions, json.dumps(state))


def _plain(agent: Any) -> bool:
    """Whether the text of the agent's model is its answer, and not the JSON of a structured one."""
    return agent.output_type in (None, str)


def _of(raw: Any, name: str) -> Any:
    return raw.get(name) if isinstance(raw, dict) else getattr(raw, name, None)


def _name(raw: Any) -> str:
    name = _of(raw, "name")
    return name if isinstance(name, str) else str(_of(raw, "type") or "tool").removesuffix("_call")


def _refusal(tripped: Any) -> str:
    guardrail = tripped.guardrail_result.guardrail
    return f"Refused by the guardrail {guardrail.get_name()}."


def _item(words: PlainMessage) -> dict[str, Any]:
    """A message in the SDK's form: an input item of the Responses API."""
    if words.agent:
        return {"role": "assistant", "content": words.text}
    if not words.files:
        return {"role": "user", "content": words.text}
    return {"role": "user", "content": [_content(piece) for piece in words.pieces]}


def _content(piece: str | PlainFile) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "input_text", "text": piece}
    if piece.raw is None:
        return {"type": "input_text", "text": piece.described}
    data = f"data:{piece.media_type};base64,{base64.b64encode(piece.raw).decode()}"
    if piece.image:
        return {"type": "input_image", "image_url": data, "detail": "auto"}
    return {"type": "input_file", "file_data": data, "filename": piece.name or "file"}
