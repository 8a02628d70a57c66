"""Agents, apps, workflows and runners of Google's Agent Development Kit (2.x) behind a card.

Invariant: a conversation with an agent is a session in the store; a runner keeps its sessions itself, by caller and
conversation. Where nothing is stored, a task has a session of its own, which begins with the earlier messages. A
request to the user is a call of a function with a fixed name, `{"name", "args"}`, plus `response` if its tool has
already answered with a provisional value; each becomes a question.
"""

import copy
import importlib
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.content import json_of, readable_json
from dragoman.agents.frameworks.calls import Calls, approval_of, approved, result_question
from dragoman.agents.frameworks.conversation import PlainFile, PlainMessage, history, history_for_session, message
from dragoman.agents.frameworks.files import file_at
from dragoman.agents.frameworks.runs import FrameworkRun, RunPause, RunQuestion, build_agent
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Answer, Context, run_of
from dragoman.engine.api import Reject
from dragoman.model.message import Part

REFUSALS = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "LANGUAGE",
        "MODEL_ARMOR",
        "JAILBREAK",
    }
)
"""Error codes by which the model, or its guard, refuses (FinishReason, BlockedReason)."""

SPECIAL = frozenset({"adk_request_confirmation", "adk_request_credential", "adk_request_input"})
"""Function names of requests (google.adk.utils._function_call_names); other calls that wait belong to tools."""


def adapts(value: object) -> bool:
    """Whether the object is an agent, an app, a workflow, or a runner of one."""
    return _root(value) is not None


def name_of(value: Any) -> str:
    """The name of the root agent."""
    return str(_root(value).name)


def adapt(value: Any, agent_id: str, *, session: Literal["none"] | None = None) -> Agent:
    """Put the object behind a card. Sessions of an agent, an app or a workflow are kept in the store.

    With `session` "none" each task has one of its own, in memory, which begins with the earlier messages.
    """
    root = _root(value)
    runner = value if _is(value, "google.adk.runners", "Runner") else _runner(value, root)
    agent = build_agent(
        agent_id,
        lambda ctx: AdkRun(runner, ctx, own=runner is not value, stored=session is None),
        name=name_of(value),
        description=root.description or _instruction(root),
        tools=_tools(root),
        file_modes=("image/*", "audio/*", "video/*", "application/pdf"),
    )
    if runner is not value and session is None:
        agent.traits = replace(agent.traits, sessions=True)
    return agent


class Paused(Struct, frozen=True):
    """A noted run: the calls that wait for the caller, by id, and where its session is.

    That is in `session` itself, or kept by a runner; or in the store, with so many `events` of the task.
    """

    waiting: dict[str, Any]
    session: str = ""
    events: int | None = None


class AdkRun(FrameworkRun):
    """One task's run. `own`: the runner has no services of its author's. `stored`: its sessions are in the store then.

    A session that is not is for this task only, and part of its state at a pause.
    """

    def __init__(self, runner: Any, ctx: Context, *, own: bool, stored: bool) -> None:
        self._runner = _alone(runner) if own else runner
        self._own = own
        self._stored = own and stored
        self._service: Any = None
        """The service that has the sessions in the store, once it is open."""
        self._ctx = ctx
        self._calls = Calls(ctx)
        self._types = importlib.import_module("google.genai.types")
        self._event = importlib.import_module("google.adk.events").Event
        self._streams = importlib.import_module("google.adk.agents.run_config")
        self._user = ctx.principal.id
        self._session = ctx.task_id if own else ctx.context_id

    async def holds(self, state: str) -> bool:
        """Whether the session exists, or is part of the state."""
        if not state or (paused := _load_paused(state)).session:
            return bool(state)
        await self._open(paused)
        return await self._load_session() is not None

    async def begin(self) -> Any:
        """The message. An existing session continues; a new one begins with the earlier conversation."""
        await self._open(None)
        session = await self._load_session()
        if session is None or (self._service is not None and not session.events):
            session = session or await self._create_session()
            for words in await self._past():
                author = self._runner.agent.name if words.agent else "user"
                await self._runner.session_service.append_event(
                    session, self._event(author=author, content=self._content(words))
                )
        return self._content(await message(self._ctx))

    async def resume(self, state: str, answers: Sequence[Answer]) -> Any:
        """The caller's answers to the waiting calls."""
        paused = _load_paused(state)
        await self._open(paused)
        if paused.session and await self._load_session() is None:
            kept = importlib.import_module("google.adk.sessions").Session.model_validate_json(paused.session)
            session = await self._create_session(kept.state)
            for event in kept.events:
                await self._runner.session_service.append_event(session, event)
        responses = [
            self._types.FunctionResponse(id=call_id, name=call["name"], response=response_to(call, answer))
            for (call_id, call), answer in zip(paused.waiting.items(), answers, strict=True)
        ]
        parts = [self._types.Part(function_response=response) for response in responses]
        return self._types.Content(role="user", parts=parts)

    async def work(self, given: Any) -> AsyncGenerator[object, None]:
        """Run with the content."""
        waiting: dict[str, Any] = {}
        failure: Exception | None = None
        text = RunText(shaped=getattr(self._runner.agent, "output_schema", None) is not None)
        config = self._streams.RunConfig(streaming_mode=self._streams.StreamingMode.SSE)
        ran = self._runner.run_async(user_id=self._user, session_id=self._session, new_message=given, run_config=config)
        async with self._calls, aclosing(ran) as events:
            async for event in events:
                if event.error_code:
                    failure = _failure(event)
                for piece in (*text.of(event), *_made_by(event)):
                    yield piece
                for name, version in event.actions.artifact_delta.items():
                    yield await self._artifact(name, version)
                if not event.partial:
                    self._count(event)
                    await self._report(event, waiting)
            if failure is not None:
                raise failure
        if waiting:
            yield await self._pause(waiting)
        elif self._service is not None:
            await self._service.finish()

    async def _report(self, event: Any, waiting: dict[str, Any]) -> None:
        """Report the tool calls and results of an event, and keep the calls that wait for the caller."""
        for call in event.get_function_calls():
            if call.id in (event.long_running_tool_ids or ()):
                waiting[call.id] = readable_json({"name": call.name, "args": call.args or {}})
            if call.name not in SPECIAL:
                await self._calls.report_start(call.id, call.name, call.args)
        asked = {subject_of(call) for call in waiting.values()}
        asked |= set(event.actions.requested_tool_confirmations) | set(event.actions.requested_auth_configs)
        for response in event.get_function_responses():
            if response.id in waiting:
                waiting[response.id]["response"] = readable_json(response.response)
            elif response.name not in SPECIAL and response.id not in asked:
                result = response.response or {}
                failed = str(result["error"]) if set(result) == {"error"} else None
                shown = result["result"] if set(result) == {"result"} else result
                await self._calls.report_end(response.id, None if failed else shown, error=failed, name=response.name)

    def _count(self, event: Any) -> None:
        if (usage := event.usage_metadata) is not None:
            said, made, total = (
                usage.prompt_token_count or 0,
                usage.candidates_token_count or 0,
                usage.total_token_count,
            )
            self._ctx.usage(input=said, output=made, total=total, model=event.model_version or self._model_of(event))

    def _model_of(self, event: Any) -> str:
        """The name of the model of the agent that wrote an event; empty if it has none."""
        author = self._runner.agent.find_agent(event.author)
        return str(author.canonical_model.model) if hasattr(author, "canonical_model") else ""

    async def _pause(self, waiting: dict[str, Any]) -> RunPause:
        state: dict[str, Any] = {"waiting": waiting}
        if self._service is not None:
            state["events"] = len((await self._service.items_of(**self._place)).own)
        elif self._own:
            state["session"] = (await self._load_session()).model_dump_json(by_alias=True)
        return RunPause(tuple(question_of(call) for call in waiting.values()), json.dumps(state))

    async def _open(self, paused: Paused | None) -> None:
        """Open the session in the store, unless that of the pause is elsewhere.

        Events that the task has added since the pause, or since its beginning, are removed: a crash has cut it off, and
        it does them again.
        """
        if not self._stored or (paused is not None and paused.session) or self._service is not None:
            return
        run = run_of(self._ctx)
        spaces = [await run.state("session", **scope) for scope in ({}, {"wide": True}, {"wide": True, "shared": True})]
        if None in spaces:
            return
        stored = importlib.import_module("dragoman.agents.frameworks.adk_sessions").StoredSessionService
        self._session = self._ctx.context_id
        self._service = self._runner.session_service = stored(self._ctx.task_id, *spaces)
        items = await self._service.items_of(**self._place)
        await items.cut((paused.events or 0) if paused is not None else 0)

    async def _past(self) -> Sequence[PlainMessage]:
        """The earlier conversation, for a session that has nothing of it."""
        if self._service is None:
            return await history(self._ctx)
        return await history_for_session(self._ctx, (await self._service.items_of(**self._place)).others)

    @property
    def _place(self) -> dict[str, str]:
        """The arguments by which the services know the session."""
        return {"app_name": self._runner.app_name, "user_id": self._user, "session_id": self._session}

    async def _load_session(self) -> Any:
        return await self._runner.session_service.get_session(**self._place)

    async def _create_session(self, state: Any = None) -> Any:
        try:
            return await self._runner.session_service.create_session(**self._place, state=state)
        except importlib.import_module("google.adk.errors.already_exists_error").AlreadyExistsError:
            return await self._load_session()  # another task of the conversation was faster

    async def _artifact(self, name: str, version: int) -> Part | None:
        """Load a file that the run has saved."""
        kept = await self._runner.artifact_service.load_artifact(**self._place, filename=name, version=version)
        if kept is not None and kept.file_data is not None:
            return file_at(kept.file_data.file_uri, kept.file_data.mime_type, name)
        if kept is None or kept.inline_data is None:
            return None if kept is None or kept.text is None else Part(text=kept.text, filename=name)
        return Part(raw=kept.inline_data.data, media_type=kept.inline_data.mime_type, filename=name)

    def _content(self, words: PlainMessage) -> Any:
        parts = [self._part(piece) for piece in words.pieces]
        return self._types.Content(role="model" if words.agent else "user", parts=parts)

    def _part(self, piece: str | PlainFile) -> Any:
        if isinstance(piece, str):
            return self._types.Part(text=piece)
        if piece.raw is None:
            return self._types.Part(text=piece.described)
        return self._types.Part(inline_data=self._types.Blob(data=piece.raw, mime_type=piece.media_type))


class RunText:
    """The text of a run, without what events repeat of streamed text. `shaped`: the final text is data."""

    def __init__(self, *, shaped: bool) -> None:
        self._shaped = shaped
        self._streamed: dict[tuple[str, str | None], str] = {}
        self._said = self._gap = False

    def of(self, event: Any) -> list[object]:
        """The output that an event adds."""
        text = "".join(part.text for part in _parts(event) if part.text and not part.thought)
        key = (event.author, event.branch)
        if event.partial:
            if self._shaped or not text:
                return []
            self._streamed[key] = self._streamed.get(key, "") + text
            return self._join(text)
        before = self._streamed.pop(key, "")
        pieces = self._join(text[len(before) :] if text.startswith(before) else "") if text else []
        self._gap = self._said
        return [_shape(text)] if self._shaped and text and event.is_final_response() else pieces

    def _join(self, text: str) -> list[object]:
        if not text:
            return []
        pieces: list[object] = ["\n\n", text] if self._gap else [text]
        self._gap, self._said = False, True
        return pieces


def subject_of(call: Any) -> str | None:
    """The id of the tool call that is the reason for the request; None if there is none."""
    args = call["args"]
    match call["name"]:
        case "adk_request_confirmation":
            return str(args["originalFunctionCall"].get("id"))
        case "adk_request_credential":
            return str(args["functionCallId"])
        case _:
            return None


def question_of(call: Any) -> RunQuestion:
    """The question for the caller."""
    args = call["args"]
    match call["name"]:
        case "adk_request_confirmation":
            original, wanted = args["originalFunctionCall"], args.get("toolConfirmation", {})
            asked = approval_of(original["name"], original.get("args", {}), hint=_hint(wanted.get("hint", "")))
            payload = wanted.get("payload")
            return asked if payload is None else RunQuestion(asked.text, asked.data | {"payload": payload})
        case "adk_request_credential":
            return _sign_in(args["authConfig"])
        case "adk_request_input":
            wanted = {"payload": args.get("payload"), "schema": args.get("response_schema")}
            return RunQuestion(args.get("message") or "What should it be?", {"input": wanted})
        case name:
            pending = {} if call.get("response") is None else {"pending": call["response"]}
            return result_question(name, args, **pending)


def response_to(call: Any, answer: Answer) -> dict[str, Any]:
    """The answer as the function's response."""
    data = answer.data
    match call["name"]:
        case "adk_request_confirmation":
            confirmed = data.get("confirmed") is True if _has(data, "confirmed") else approved(answer)
            return {"confirmed": confirmed} | ({"payload": data["payload"]} if _has(data, "payload") else {})
        case "adk_request_credential":
            return _credential(call["args"]["authConfig"], answer)
        case _:
            return data if isinstance(data, dict) else {"result": str(answer) if data is None else data}


def _shape(text: str) -> object:
    try:
        return Part(data=json.loads(text))
    except ValueError:
        return text


def _made_by(event: Any) -> list[object]:
    """The files from a model, and the output of a workflow as a whole."""
    if event.partial:
        return []
    made: list[object] = []
    for part in _parts(event):
        if (file := part.inline_data) is not None:
            made.append(Part(raw=file.data, media_type=file.mime_type, filename=file.display_name))
        elif (file := part.file_data) is not None:
            made.append(file_at(file.file_uri, file.mime_type, file.display_name))
    whole = any("/" not in path for path in event.node_info.output_for or ())
    if event.output is not None and whole and not event.node_info.message_as_output:
        made.append(event.output if isinstance(event.output, str) else Part(data=json_of(event.output)))
    return made


def _parts(event: Any) -> Sequence[Any]:
    return (event.content.parts or ()) if event.content is not None and event.author != "user" else ()


def _failure(event: Any) -> Exception:
    code = str(event.error_code).rpartition(".")[2]
    text = event.error_message or code
    return Reject(f"The model refused: {text}") if code in REFUSALS else RuntimeError(f"{code}: {text}")


def _load_paused(state: str) -> Paused:
    return Paused(**json.loads(state))


def _is(value: object, module: str, name: str) -> bool:
    return isinstance(value, getattr(importlib.import_module(module), name))


def _root(value: Any) -> Any:
    """The agent or workflow that the object is, or runs; None if it is neither."""
    if _is(value, "google.adk.runners", "Runner"):
        return value.agent
    if _is(value, "google.adk.apps", "App"):
        return value.root_agent
    runs = _is(value, "google.adk.agents", "BaseAgent") or _is(value, "google.adk.workflow", "Workflow")
    return value if runs else None


def _runner(value: Any, root: Any) -> Any:
    """A runner; each task gets a copy of it with services of its own."""
    runner = importlib.import_module("google.adk.runners").InMemoryRunner
    if value is not root:
        return runner(app=value)
    key = "agent" if _is(root, "google.adk.agents", "BaseAgent") else "node"
    return runner(**{key: root}, app_name=root.name)


def _alone(runner: Any) -> Any:
    alone = copy.copy(runner)
    for service in ("session_service", "artifact_service"):
        setattr(alone, service, type(getattr(runner, service))())
    return alone


def _instruction(root: Any) -> str:
    return instruction if isinstance(instruction := getattr(root, "instruction", ""), str) else ""


def _tools(root: Any) -> list[str]:
    names = [getattr(tool, "name", None) or getattr(tool, "__name__", None) for tool in getattr(root, "tools", ())]
    return [name for name in names if isinstance(name, str)]


def _hint(hint: str) -> str:
    """The hint of a tool. ADK's default hint tells a program what to send; the approval's own text says it better."""
    return "" if hint.startswith("Please approve or reject the tool call") else hint


def _sign_in(config: Any) -> RunQuestion:
    scheme = config["authScheme"]
    given = (config.get("exchangedAuthCredential") or {}).get("oauth2") or {}
    if url := given.get("authUri"):
        text = f"Sign in at {url} and answer with the address that you are led to after it."
        return RunQuestion(text, {"signIn": {"url": url, "scheme": scheme}}, auth=True)
    named = scheme.get("name") or scheme.get("scheme") or scheme.get("type")
    return RunQuestion(f"Give the credential for {named}.", {"credential": {"scheme": scheme}}, auth=True)


def _credential(config: Any, answer: Answer) -> dict[str, Any]:
    """The configuration with the caller's input: a whole credential, fields of its OAuth 2 part, or just a text.

    The caller sets nothing else in it: the tool alone decides where the client's secret goes.
    """
    data = answer.data
    if _has(data, "exchangedAuthCredential"):
        return {**config, "exchangedAuthCredential": data["exchangedAuthCredential"]}
    exchanged = config.get("exchangedAuthCredential") or {}
    text = str(answer).strip()
    match config["authScheme"].get("type"):
        case "apiKey":
            given: dict[str, Any] = {"authType": "apiKey", "apiKey": text}
        case "http":
            scheme = config["authScheme"].get("scheme", "bearer")
            given = {"authType": "http", "http": {"scheme": scheme, "credentials": {"token": text}}}
        case _:
            said = data if isinstance(data, dict) else {"authResponseUri": text}
            given = exchanged | {"oauth2": (exchanged.get("oauth2") or {}) | said}
    return {**config, "exchangedAuthCredential": given}


def _has(data: Any, key: str) -> bool:
    return isinstance(data, dict) and key in data
