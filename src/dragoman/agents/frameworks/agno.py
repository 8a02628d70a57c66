"""Agents and teams of Agno (3.x) behind a card.

Invariant: a copy of the object runs each task. If Agno has a database of its own, it keeps its data there by caller and
conversation.
"""

import asyncio
import importlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from dragoman.agents.content import json_of, readable_json
from dragoman.agents.frameworks.calls import Calls, approval_of, approved, denial, result_question
from dragoman.agents.frameworks.conversation import PlainFile, PlainMessage, history, message, session_of
from dragoman.agents.frameworks.files import file_at, file_of
from dragoman.agents.frameworks.runs import FrameworkRun, RunPause, RunQuestion, build_agent, flush_output, text_sink
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Answer, Context
from dragoman.engine.api import Reject
from dragoman.model.message import Part

REFUSALS = frozenset({"input_check_error", "output_check_error"})
"""Types of errors by which guardrails refuse (InputCheckError, OutputCheckError)."""

MEDIA = ("images", "videos", "audio", "files", "response_audio")
"""Fields of a finished run that hold media from the model or its tools."""


def adapts(value: object) -> bool:
    """Whether the object is an agent or a team; a workflow is neither."""
    return callable(getattr(value, "acontinue_run", None)) and callable(getattr(value, "deep_copy", None))


def name_of(value: Any) -> str:
    """Its `name`, if it was given one."""
    return str(value.name or "")


def adapt(value: Any, agent_id: str) -> Agent:
    """Put the agent or team behind a card."""
    instructions = value.instructions if isinstance(value.instructions, str) else ""
    return build_agent(
        agent_id,
        lambda ctx: AgnoRun(value, ctx),
        name=name_of(value),
        description=str(value.description or getattr(value, "role", None) or instructions),
        tools=_tools(value),
        file_modes=("image/*", "audio/*", "video/*", "application/pdf"),
    )


class AgnoRun(FrameworkRun):
    """One task's run. Its state at a pause is Agno's own form of the run; a team's lives only in this process."""

    def __init__(self, origin: Any, ctx: Context) -> None:
        self._runner = origin.deep_copy()
        self._team = hasattr(origin, "members")
        self._ctx = ctx
        self._calls = Calls(ctx)
        self._message = importlib.import_module("agno.models.message").Message
        self._media = importlib.import_module("agno.media")
        self._waiting: Any = None

    async def begin(self) -> Any:
        """A run with the message, and with the earlier conversation unless Agno remembers it."""
        remembers = self._runner.db is not None and self._runner.add_history_to_context
        past = () if remembers else await history(self._ctx)
        prompt: Any = [self._to_message(words) for words in (*past, await message(self._ctx))]
        if self._runner.input_schema is not None and self._ctx.data is not None:
            prompt = self._ctx.data
        return self._runner.arun(prompt, **self._options)

    async def resume(self, state: str, answers: Sequence[Answer]) -> Any:
        """The run with the caller's answers to its requirements."""
        output = self._waiting if self._waiting is not None else _restore(state)
        given = iter(answers)
        for requirement in output.active_requirements:
            _satisfy(requirement, given)
        return self._runner.acontinue_run(run_response=output, requirements=output.requirements, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "stream": True,
            "stream_events": True,
            "yield_run_output": True,
            "user_id": self._ctx.principal.id,
            "session_id": session_of(self._ctx),
        }

    async def work(self, given: Any) -> AsyncGenerator[object, None]:
        """Follow the run."""
        own = "Team" if self._team else ""
        said, completed, failed = f"{own}RunContent", f"{own}RunCompleted", f"{own}RunError"
        streams, say = self._runner.output_schema is None, text_sink()
        spoken = gap = False
        ended: Any = None
        output: Any = None
        async with self._calls, aclosing(given) as events:
            async for event in events:
                name = getattr(event, "event", None)
                if name == said:
                    if (text := event.content) and streams and isinstance(text, str):
                        if gap:
                            yield "\n\n"
                            gap = False
                        spoken = True
                        if not say(text):
                            await flush_output()
                elif name is None:
                    output = event
                elif name.endswith(("ToolCallStarted", "ToolCallCompleted")):
                    gap = spoken
                    await self._report(event.tool, name.endswith("Completed"))
                elif name.endswith("ModelRequestCompleted"):
                    self._ctx.usage(
                        input=event.input_tokens or 0, output=event.output_tokens or 0, model=event.model or ""
                    )
                elif name == completed:
                    ended = event
                elif name == failed:
                    raise _failure(event)
        if output is not None and output.is_paused:
            yield self._pause(output)
        elif ended is not None:
            async for piece in self._result(ended, spoken):
                yield piece

    async def _result(self, ended: Any, spoken: bool) -> AsyncIterator[object]:
        """The parts of the run's result that have not been streamed."""
        if not isinstance(ended.content, str):
            if ended.content is not None:
                yield Part(data=json_of(ended.content))
        elif not spoken:
            yield ended.content
        for kind in MEDIA:
            found = getattr(ended, kind, None) or []
            for medium in found if isinstance(found, list) else [found]:
                yield await _file(medium)

    async def _report(self, tool: Any, done: bool) -> None:
        if not done:
            await self._calls.report_start(tool.tool_call_id, tool.tool_name, tool.tool_args)
        elif tool.tool_call_error:
            await self._calls.report_failure(tool.tool_call_id, str(tool.result), name=tool.tool_name)
        else:
            await self._calls.report_end(tool.tool_call_id, tool.result, name=tool.tool_name)

    def _pause(self, output: Any) -> RunPause:
        self._waiting = output
        state = "" if self._team else json.dumps(output.to_dict(), default=str)
        questions = [each for requirement in output.active_requirements for each in _questions(requirement)]
        return RunPause(tuple(questions), state)

    def _to_message(self, words: PlainMessage) -> Any:
        media: dict[str, list[Any]] = {}
        for file in words.files:
            if (found := self._medium(file)) is not None:
                media.setdefault(found[0], []).append(found[1])
        shown = [
            piece if isinstance(piece, str) else piece.described
            for piece in words.pieces
            if isinstance(piece, str) or piece.raw is None
        ]
        return self._message(role="assistant" if words.agent else "user", content="\n".join(shown), **media)

    def _medium(self, file: PlainFile) -> tuple[str, Any] | None:
        """The file in Agno's form, with the name of its list. A URL that a stranger named is not fetched by us."""
        if file.raw is None:
            return None
        match file.media_type.partition("/")[0]:
            case "image":
                return "images", self._media.Image(content=file.raw, mime_type=file.media_type)
            case "audio":
                return "audio", self._media.Audio(content=file.raw, mime_type=file.media_type)
            case "video":
                return "videos", self._media.Video(content=file.raw, mime_type=file.media_type)
            case _:
                known = file.media_type in self._media.File.valid_mime_types()
                kind = file.media_type if known else None
                return "files", self._media.File(content=file.raw, mime_type=kind, filename=file.name)


async def _file(medium: Any) -> Part:
    """The part for a medium: its bytes, those of the file where a tool left it, or its URL."""
    name, content = getattr(medium, "filename", None), medium.content
    if content is None and medium.filepath:
        content = await asyncio.to_thread(Path(medium.filepath).read_bytes)
        name = name or Path(medium.filepath).name
    if content is not None:
        return file_of(content, medium.mime_type, name)
    kept = medium.media_reference
    return file_at(medium.url or (kept and kept.url), medium.mime_type, name)


def _restore(state: str) -> Any:
    """Restore a noted run. Its requirements refer to the run's own call objects, as Agno expects."""
    output = importlib.import_module("agno.run.agent").RunOutput.from_dict(json.loads(state))
    calls = {tool.tool_call_id: tool for tool in output.tools or () if tool.result is None}
    for requirement in output.requirements or ():
        call = requirement.tool_execution
        requirement.tool_execution = calls.get(call.tool_call_id, call)
    return output


def _failure(event: Any) -> Exception:
    text = str(event.content or event.error_type or "the run failed")
    return Reject(text) if event.error_type in REFUSALS else RuntimeError(text)


def _questions(requirement: Any) -> Iterator[RunQuestion]:
    """The questions for a requirement, in the order in which `_satisfy` takes the answers."""
    tool = requirement.tool_execution
    match requirement.pause_type:
        case "confirmation":
            yield approval_of(tool.tool_name, tool.tool_args)
        case "external_execution":
            yield result_question(tool.tool_name, readable_json(tool.tool_args))
        case "user_feedback":
            for wanted in requirement.user_feedback_schema or ():
                options = [option.label for option in wanted.options or ()]
                choice = {"question": wanted.question, "options": options, "several": wanted.multi_select}
                yield RunQuestion(
                    f"{wanted.question} ({', '.join(options)})" if options else wanted.question, {"choice": choice}
                )
        case _:
            for field in _missing(requirement):
                kind = getattr(field.field_type, "__name__", str(field.field_type))
                wanted = {"name": field.name, "type": kind, "description": field.description}
                yield RunQuestion(
                    f"{tool.tool_name} needs {field.name}: {field.description or kind}", {"input": wanted}
                )


def _satisfy(requirement: Any, answers: Iterator[Answer]) -> None:
    match requirement.pause_type:
        case "confirmation":
            answer = next(answers)
            if approved(answer):
                requirement.confirm()
            else:
                requirement.reject(note=denial(answer))
        case "external_execution":
            answer = next(answers)
            requirement.set_external_execution_result(
                str(answer) if answer.data is None else json.dumps(answer.data, ensure_ascii=False)
            )
        case "user_feedback":
            wanted = requirement.user_feedback_schema or ()
            requirement.provide_user_feedback({each.question: _chosen(next(answers)) for each in wanted})
        case _:
            values = {field.name: _value(field, next(answers)) for field in _missing(requirement)}
            requirement.provide_user_input(values)


def _missing(requirement: Any) -> list[Any]:
    return [field for field in requirement.user_input_schema or () if field.value is None]


def _value(field: Any, answer: Answer) -> Any:
    """The answer converted to the field's type, if possible; the tool's own check comes after."""
    if answer.data is not None:
        return answer.data.get(field.name, answer.data) if isinstance(answer.data, dict) else answer.data
    if field.field_type is bool:
        return approved(answer)
    try:
        return field.field_type(str(answer)) if field.field_type in (int, float) else str(answer)
    except ValueError:
        return str(answer)


def _chosen(answer: Answer) -> list[str]:
    if isinstance(answer.data, list):
        return [str(label) for label in answer.data]
    return [label.strip() for label in answer.split(",")]


def _tools(value: Any) -> list[str]:
    """The names of its own tools, as far as they are known before a run."""
    tools = value.tools if isinstance(value.tools, list) else []
    names = [tool.get("name") if isinstance(tool, dict) else getattr(tool, "name", None) for tool in tools]
    plain = [getattr(tool, "__name__", None) for tool in tools]
    return [str(name or other) for name, other in zip(names, plain, strict=True) if name or other]
