"""Agents of the OpenAI Agents SDK behind a card.

A conversation is a session of the SDK's: one of ours, which the store has, or one of the author's.

Invariant: the agent runs as its author made it: model, tools, handoffs and guardrails are its own. A turn that is in
a session of ours is not asked of the model again.
"""

import base64
import importlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.calls import Calls, approval_of, approved, denial
from dragoman.agents.frameworks.conversation import (
    PlainFile,
    PlainMessage,
    history,
    history_for_session,
    message,
    session_of,
)
from dragoman.agents.frameworks.files import file_of
from dragoman.agents.frameworks.model_tokens import ModelTokens
from dragoman.agents.frameworks.runs import FrameworkRun, RunPause, build_agent
from dragoman.agents.frameworks.sessions import SessionItems
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Answer, Context, run_of
from dragoman.engine.api import Reject
from dragoman.model.message import Part

PICTURE = "image_generation_call"
"""The type of an output item that has the picture which a model drew. It is PNG unless the item says otherwise."""


def adapts(value: object) -> bool:
    """Whether the object is an agent, but not one for voice."""
    return hasattr(value, "instructions") and hasattr(value, "handoffs") and hasattr(value, "output_type")


def name_of(value: Any) -> str:
    """Its `name`."""
    return str(value.name or "")


def adapt(value: Any, agent_id: str, *, session: Literal["none"] | Callable[[str], Any] | None = None) -> Agent:
    """Put the agent behind a card. Its sessions are kept in the store.

    A `session` that is a function makes one of the author's, from a name that is a conversation's alone. With "none"
    there is none: each task is given the earlier messages.
    """

    async def find_session(ctx: Context) -> Any:
        if session == "none":
            return None
        if session is not None:
            return session(f"{agent_id}/{session_of(ctx)}")
        space = await run_of(ctx).state("session")
        if space is None:
            return None
        items = SessionItems(space, ctx.task_id, "agents")
        await items.load()
        return StoredSession(ctx.context_id, items)

    agent = build_agent(
        agent_id,
        lambda ctx: OpenAiAgentsRun(value, ctx, lambda: find_session(ctx)),
        name=name_of(value),
        description=value.handoff_description or "",
        tools=[tool.name for tool in value.tools],
    )
    if session is None:
        agent.traits = replace(agent.traits, restartable=True, sessions=True)
    return agent


class StoredSession:
    """A `Session` of the SDK whose items the store has. `items` says what a task has of it."""

    session_settings = None

    def __init__(self, session_id: str, items: SessionItems) -> None:
        self.session_id = session_id
        self.items = items

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The newest `limit` items, or all, the oldest first."""
        values = self.items.values
        return [json.loads(value) for value in (values if limit is None else values[-limit:] if limit > 0 else ())]

    async def add_items(self, items: list[Any]) -> None:
        """Add the items of a turn."""
        if items:
            await self.items.append([json.dumps(item, separators=(",", ":")).encode() for item in items])

    async def pop_item(self) -> Any:
        """Remove the newest item, and return it; None if there is none."""
        value = await self.items.pop()
        return None if value is None else json.loads(value)

    async def clear_session(self) -> None:
        """Remove all items."""
        await self.items.clear()


class RunInput(Struct, frozen=True):
    """The `input` of a run of the `agent`, such as a RunState; None if nothing is left to do.

    `told` is what an earlier run of the task has said, and `used` the tokens that a RunState counts already.
    """

    agent: Any
    input: Any
    used: tuple[int, int] = (0, 0)
    told: tuple[str | Part, ...] = ()


class OpenAiAgentsRun(FrameworkRun):
    """One task's run. Its state at a pause is the SDK's own RunState, with the tokens used so far.

    `find_session` is asked once.
    """

    def __init__(self, agent: Any, ctx: Context, find_session: Callable[[], Awaitable[Any]]) -> None:
        self._agent = agent
        self._ctx = ctx
        self._calls = Calls(ctx)
        self._sdk = importlib.import_module("agents")
        self._find_session = find_session
        self._session: Any = None

    @property
    def _items(self) -> SessionItems | None:
        """The items of a session of ours."""
        return self._session.items if isinstance(self._session, StoredSession) else None

    async def begin(self) -> Any:
        """The message, for a session that has the earlier conversation, or after it.

        If an earlier run of the task has finished a turn, there is nothing new: it goes on after that one.
        """
        self._session = await self._find_session()
        if (gone := await self._go_on(0)) is not None:
            return gone
        past: Sequence[PlainMessage] = ()
        if self._items is not None and not self._items.earlier:
            past = await history_for_session(self._ctx, self._items.others)
        elif self._session is None or (self._items is None and not await self._session.get_items(1)):
            past = await history(self._ctx)
        return RunInput(self._agent, [*map(_item, past), _item(await message(self._ctx))])

    async def resume(self, state: str, answers: Sequence[Answer]) -> Any:
        """The SDK's state with the calls allowed or denied; nothing, if it had gone on with them before a crash."""
        noted = json.loads(state)
        self._calls.open |= noted["open"]
        if self._session is None and "items" in noted:
            self._session = await self._find_session()
        if (gone := await self._go_on(noted.get("items") or 0)) is not None:
            return gone
        run = await self._sdk.RunState.from_string(self._agent, noted["run"])
        for item, answer in zip(run.get_interruptions(), answers, strict=True):
            if approved(answer):
                run.approve(item)
            else:
                run.reject(item, rejection_message=denial(answer))
        return RunInput(self._agent, run, (noted["input"], noted["output"]))

    async def _go_on(self, before: int) -> RunInput | None:
        """Go on after the last turn that the session has beyond the first `before` items of the task; None if none is.

        The items of a turn that did not come to its end are removed.
        """
        items = self._items
        if items is None:
            return None
        turns = Turns(self._sdk, self._agent, [json.loads(item.value) for item in items.own])
        whole = max(before, turns.whole)
        await items.cut(whole)
        if whole <= max(before, turns.asked):
            await items.cut(before)
            return None
        told = turns.told(max(before, turns.asked), whole)
        if items.finished is not None:
            last = json.loads(items.finished.output) if items.finished.output else None
        elif turns.ended(whole):
            last = turns.shaped(whole)
            await items.finish(_encode_output(last))
        else:
            return RunInput(turns.agent(whole), [], told=told)
        return RunInput(self._agent, None, told=told if last is None else (*told, _piece_of(last)))

    async def work(self, given: Any) -> AsyncGenerator[object, None]:
        """Run the agent."""
        for piece in given.told:
            yield piece
        if given.input is None:
            return
        result = self._sdk.Runner.run_streamed(given.agent, given.input, session=self._session)
        before = given.used
        spoken = bool(given.told) and isinstance(given.told[-1], str)
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
                        elif (
                            data.type == "response.output_item.done" and data.item.type == PICTURE and data.item.result
                        ):
                            yield file_of(data.item.result, f"image/{data.item.output_format or 'png'}")
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
            return
        last: Any = None
        if result.final_output is not None and not isinstance(result.final_output, str):
            last = json_of(result.final_output)
        elif result.final_output and not spoken:
            last = result.final_output
        if self._items is not None:
            await self._items.finish(_encode_output(last))
        if last is not None:
            yield _piece_of(last)

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
        if self._session is not None:
            state["items"] = len(self._items.own) if self._items is not None else 0
        return RunPause(questions, json.dumps(state))


class Turns:
    """The turns of a run that began with `agent`, from the items that it has added to its session.

    `asked` is how many of them the run was given, `whole` how many there are up to the last turn that has come to its
    end: each of its calls has a result, and the agent that it handed over to is known.
    """

    def __init__(self, sdk: Any, agent: Any, items: Sequence[Any]) -> None:
        self._items = items
        self._agents: list[Any] = []
        """The agent that each item is of."""
        self.asked = 1 + max((place for place, item in enumerate(items) if item.get("role") == "user"), default=-1)
        self.whole = len(items)
        answered = {item.get("call_id") for item in items if str(item.get("type")).endswith("_output")}
        handed: Any = None
        for place, item in enumerate(items):
            self._agents.append(agent)
            if str(item.get("type")).endswith("_output") and handed is not None:
                agent, handed = handed, None
            if not str(item.get("type")).endswith("_call") or "call_id" not in item:
                continue
            targets = _targets(sdk, agent)
            handed = targets.get(item.get("name"), handed)
            if item["call_id"] not in answered or (item.get("name") in targets and handed is None):
                self.whole = self._beginning(place)
                break
        self._agents.append(agent)

    def _beginning(self, place: int) -> int:
        """Where the turn of an item begins."""
        while place > self.asked and not str(self._items[place - 1].get("type")).endswith("_output"):
            place -= 1
        return place

    def agent(self, count: int) -> Any:
        """The agent that goes on after the first `count` items."""
        return self._agents[count]

    def ended(self, count: int) -> bool:
        """Whether the last of the first `count` items is an answer, after which a run ends."""
        return bool(self._items[count - 1].get("role") == "assistant")

    def shaped(self, count: int) -> Any:
        """The structured output that the last of the first `count` items is; None if it is text."""
        return None if _plain(self._agents[count - 1]) else json.loads(_said(self._items[count - 1]))

    def told(self, start: int, stop: int) -> tuple[str | Part, ...]:
        """The output that the turns between two places have given the caller."""
        told: list[str | Part] = []
        for item, agent in zip(self._items[start:stop], self._agents[start:stop], strict=True):
            if item.get("type") == PICTURE and item.get("result"):
                told.append(file_of(item["result"], f"image/{item.get('output_format') or 'png'}"))
            elif item.get("role") == "assistant" and _plain(agent) and (text := _said(item)):
                told.extend(["\n\n", text] if any(isinstance(piece, str) for piece in told) else [text])
        return tuple(told)


def _targets(sdk: Any, agent: Any) -> dict[str, Any]:
    """The agents that an agent hands over to, by the name of the tool that does; None if that is not known."""
    targets = {}
    for each in agent.handoffs:
        if hasattr(each, "tool_name"):
            known = getattr(each, "_agent_ref", None)
            targets[each.tool_name] = None if known is None else known()
        else:
            targets[sdk.Handoff.default_tool_name(each)] = each
    return targets


def _said(item: Any) -> str:
    """The text of an answer in a session."""
    content = item["content"]
    return content if isinstance(content, str) else "".join(piece.get("text", "") for piece in content)


def _encode_output(output: Any) -> bytes:
    return b"" if output is None else json.dumps(output).encode()


def _piece_of(output: Any) -> str | Part:
    return output if isinstance(output, str) else Part(data=output)


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
