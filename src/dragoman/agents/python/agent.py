"""Agents made of Python functions.

Invariant: every fault in the declaration of an agent or a skill is raised when it is declared, with the name of the
function and the fix. A function that passes can be called with one positional argument, the context.
"""

import dis
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import pairwise
from types import CodeType
from typing import Any, Literal, TypeVar, overload

from msgspec import UNSET
from msgspec.structs import replace

from dragoman.agents.content import Artifacts, json_of
from dragoman.agents.python.context import Context
from dragoman.agents.python.final_word import FinalWord
from dragoman.agents.python.lifespan import read_lifespan
from dragoman.agents.python.sync_context import SyncContext
from dragoman.agents.python.threads import Crossing, Threads
from dragoman.config import (
    DEADLINE_S_MAX,
    DEADLINE_S_MIN,
    DIRECT_WAIT_S_MAX,
    DIRECT_WAIT_S_MIN,
    LIFESPAN_TIMEOUT_S_MAX,
    LIFESPAN_TIMEOUT_S_MIN,
    agent_id_fault,
    check_header,
    steps_version_fault,
)
from dragoman.engine.api import (
    DIRECT_WAIT_S,
    LIFESPAN_TIMEOUT_S,
    CheckResult,
    DirectMode,
    Lifespan,
    MemoryReach,
    Reject,
    Run,
    Runner,
    StepUncertain,
    Traits,
)
from dragoman.model.card import VERSIONS, AgentExtension, AgentProvider, AgentSkill, Profile

SkillFunction = (
    Callable[[Context], AsyncIterator[object]]
    | Callable[[Context], Awaitable[object]]
    | Callable[[SyncContext], object]
)
"""An async generator, a coroutine function, or a plain function or generator, which runs in a thread."""

LifespanFunction = (
    Callable[[], AbstractAsyncContextManager[Any]] | Callable[["Agent"], AbstractAsyncContextManager[Any]]
)
"""A function with `@asynccontextmanager`. It takes nothing, or the agent."""

F = TypeVar("F", bound=SkillFunction)
C = TypeVar("C", bound=str)


class Agent(Runner):
    """Python functions behind a card: each is a skill. Satisfies `Runner`.

    `id` is the last segment of the agent's path. `direct` answers with one Message instead of a task. With "auto" a run
    that a Message cannot hold, or that takes longer than `direct_wait_s`, becomes a task. A run that works for longer
    than `deadline_s` at a stretch is stopped, and its task fails. `restartable`: a run that a crash interrupted may be
    run again from its start. `step_uncertain` "ask" asks the caller how a step is to continue that is declared
    `at_most_once` and may have been executed; "fail" fails the task. A task that began with one `steps_version`
    continues with that version of this code alone; empty: with any. `memory` "shared" gives all callers one
    `ctx.memory.caller`.
    `headers` are the headers of its callers' requests that it is given as `ctx.headers`; with `credentials`
    `{"forward": True}` its callers' own credentials are among them. `one_message` takes no further message while the
    agent works. `lifespan` makes an async context manager that is
    entered in each process before the first task and left after the last one; it takes nothing, or the agent, and what
    it yields is `ctx.state`. Opening or closing it may take `lifespan_timeout_s`. `streams` False refuses streaming.
    `versions` are the official protocol versions that the agent is served in. Card fields that are left out keep the
    defaults of `Profile`.

    `threads` run the plain functions; a server lets its agents share one `Threads`.

    Raises ValueError if the id cannot be served or a version is unknown, TypeError if a value has the wrong type.
    """

    def __init__(
        self,
        id: str,  # noqa: A002  the field's word
        *,
        description: str = "",
        name: str | None = None,
        version: str = "1.0.0",
        provider: AgentProvider | None = None,
        icon_url: str | None = None,
        documentation_url: str | None = None,
        input_modes: Iterable[str] | None = None,
        output_modes: Iterable[str] | None = None,
        extensions: Iterable[AgentExtension | str] = (),
        direct: DirectMode = False,
        direct_wait_s: float = DIRECT_WAIT_S,
        deadline_s: float | None = None,
        restartable: bool = False,
        step_uncertain: StepUncertain = "fail",
        steps_version: str = "",
        memory: MemoryReach = "caller",
        headers: Iterable[str] = (),
        credentials: Mapping[str, bool] | None = None,
        one_message: bool = False,
        streams: bool = True,
        versions: Iterable[str] = VERSIONS,
        lifespan: LifespanFunction | None = None,
        lifespan_timeout_s: float = LIFESPAN_TIMEOUT_S,
    ) -> None:
        if fault := agent_id_fault(id):
            raise ValueError(f"agent id {id!r}: {fault}")
        given: dict[str, Any] = {}
        if input_modes is not None:
            given["input_modes"] = _texts(f"agent {id}: input_modes", input_modes)
        if output_modes is not None:
            given["output_modes"] = _texts(f"agent {id}: output_modes", output_modes)
        self.profile = Profile(
            id=id,
            name=name or id,
            description=description or name or id,
            version=version,
            skills=(),
            provider=provider,
            icon_url=icon_url,
            documentation_url=documentation_url,
            extensions=tuple(AgentExtension(uri=item) if isinstance(item, str) else item for item in extensions),
            streams=streams,
            pushes=direct is not True,
            versions=_versions(id, versions),
            **given,
        )
        self.traits = Traits(
            kind="python",
            direct=_direct(id, direct),
            direct_wait_s=_direct_wait(id, direct_wait_s),
            restartable=restartable,
            step_uncertain=_one_of(id, "step_uncertain", step_uncertain, "fail", "ask"),
            steps_version=_steps_version(id, steps_version),
            memory=_one_of(id, "memory", memory, "caller", "shared"),
            headers=_headers(id, headers, forwards=_forwards(id, credentials)),
            forwards=_forwards(id, credentials),
            one_message=one_message,
            deadline_s=None
            if deadline_s is None
            else _seconds(id, "deadline_s", deadline_s, DEADLINE_S_MIN, DEADLINE_S_MAX),
        )
        if lifespan is not None:
            self.lifespan = read_lifespan(f"agent {id}: lifespan", lifespan)
        self.lifespan_timeout_s = _seconds(
            id, "lifespan_timeout_s", lifespan_timeout_s, LIFESPAN_TIMEOUT_S_MIN, LIFESPAN_TIMEOUT_S_MAX
        )
        self._state: Any = UNSET
        self.threads = Threads()
        self.checks: Callable[[], AsyncIterator[CheckResult]] | None = None
        """More checks that `check` runs, for an agent that stands for something else."""
        self._skills: dict[str, tuple[Callable[..., Any], FunctionKind]] = {}

    def __repr__(self) -> str:
        return f"Agent({self.profile.id!r}, skills={list(self._skills)})"

    @overload
    def skill(self, function: F, /) -> F: ...

    @overload
    def skill(
        self,
        id: str | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        tags: Iterable[str] = (),
        examples: Iterable[str] = (),
        input_modes: Iterable[str] = (),
        output_modes: Iterable[str] = (),
        input_schema: Mapping[str, Any] | None = None,
        extended: bool = False,
    ) -> Callable[[F], F]: ...

    def skill(self, id: Any = None, /, **said: Any) -> Any:  # noqa: A002
        """Make the function below a skill of this agent: `@agent.skill("forecast", tags=["weather"])`, or bare.

        The id defaults to the function's name, the description to its docstring. The first skill runs when the caller
        names none. `input_schema` is the JSON Schema of an object: what the skill's tool of MCP takes, and the skill
        gets as `ctx.data`. An `extended` skill is only on the card for authenticated callers, and runs when it is
        named. The function itself is unchanged.

        Raises TypeError if the function cannot be a skill, ValueError if the agent already has a skill with that id.
        """
        if callable(id):
            return self._declare(id, None)
        if id is not None and not isinstance(id, str):
            raise TypeError(f"agent {self.profile.id}: skill id {id!r} must be text: @agent.skill('forecast')")
        return lambda function: self._declare(function, id, **said)

    def answer_directly(self, direct: DirectMode, wait_s: float) -> None:
        """Set `direct` and `direct_wait_s` of the traits anew. Raises ValueError or TypeError."""
        self.traits = replace(
            self.traits,
            direct=_direct(self.profile.id, direct),
            direct_wait_s=_direct_wait(self.profile.id, wait_s),
        )
        if direct is True:
            self.profile = replace(self.profile, pushes=False)

    def take_state(self, lifespan: Lifespan, yielded: Any) -> None:
        """Let `ctx.state` be what the lifespan yields."""
        self._state = yielded

    def use_threads(self, threads: Threads) -> None:
        """Run the plain functions in these threads from now on, which other agents may share."""
        self.threads = threads

    async def run(self, run: Run) -> None:
        """Do the task with the skill that the run names. Raises Ended if the skill calls `finish` or `fail`."""
        skill_id = self._choose(run)
        function, kind = self._skills[skill_id]
        artifacts = Artifacts(run)
        try:
            if kind == "plain":
                state = self._state
                await self.threads.run(
                    lambda crossing: _call_in_thread(
                        function,
                        SyncContext(run, skill_id, artifacts, self.threads, crossing, state),
                        artifacts,
                        crossing,
                    )
                )
                return
            given = function(Context(run, skill_id, artifacts, self.threads, self._state))
            if kind == "coroutine":
                given = await given
                if not isinstance(given, AsyncIterator):
                    await artifacts.add(given, last=True)
                    return
            try:
                async for item in given:
                    await artifacts.add(item)
            finally:  # the generator is closed even if the run is canceled between two items
                if isinstance(given, AsyncGenerator):
                    await given.aclose()
        except FinalWord as said:
            raise said.ended from None
        except BaseExceptionGroup as group:
            word = _word_in(group)
            if word is None:
                raise
            raise (word.ended if isinstance(word, FinalWord) else word) from None

    async def check(self) -> AsyncIterator[CheckResult]:
        """Report the agent's skills. Each function was checked at its declaration; only their absence is a fault."""
        skills = ", ".join(self._skills)
        fix = "write @agent.skill above a function"
        yield CheckResult(
            bool(skills), f"its skills are {skills}" if skills else "it has no skills", "" if skills else fix
        )
        if version := self.traits.steps_version:
            yield CheckResult(
                True, f"its code has steps_version {version}: tasks that began with another do not run here"
            )
        if names := self.traits.header_names:
            yield CheckResult(True, f"it is given these headers of its callers' requests: {', '.join(names)}")
        if not self.traits.restartable and (durable := _durable_words(self._skills)):
            yield CheckResult(
                True,
                f"it calls {durable}: a task that a crash cuts off goes on if it has recorded one; before that it "
                "fails with the reason interrupted, as the agent is not restartable",
            )
        if self.checks is not None:
            async for finding in self.checks():
                yield finding

    def _choose(self, run: Run) -> str:
        """The skill that the caller names, else the first of those it restricts the run to, else the agent's first."""
        shown = self.profile.skills
        first = shown[0].id if shown else next(iter(self._skills), None)
        skill_id = run.skill or (run.skills[0] if run.skills else first)
        if skill_id not in self._skills and len(self._skills) == 1:
            (skill_id,) = self._skills  # the card may name the only skill differently
        if skill_id not in self._skills:
            known = ", ".join(self._skills) or "none: write @agent.skill above a function"
            raise LookupError(f"agent {self.profile.id} has no skill {skill_id!r}; it has {known}")
        return skill_id

    def _declare(
        self,
        function: Any,
        id: str | None,  # noqa: A002
        *,
        name: str | None = None,
        description: str | None = None,
        tags: Iterable[str] = (),
        examples: Iterable[str] = (),
        input_modes: Iterable[str] = (),
        output_modes: Iterable[str] = (),
        input_schema: Mapping[str, Any] | None = None,
        extended: bool = False,
    ) -> Any:
        kind, own_name, docstring = check_function(self.profile.id, function)
        skill_id = id or own_name
        if skill_id in self._skills:
            raise ValueError(f"agent {self.profile.id} has a skill {skill_id!r} already: give {own_name}() another id")
        skill = AgentSkill(
            id=skill_id,
            name=name or skill_id,
            description=description or docstring or self.profile.description,
            tags=_texts(f"skill {skill_id}: tags", tags),
            examples=_texts(f"skill {skill_id}: examples", examples),
            input_modes=_texts(f"skill {skill_id}: input_modes", input_modes),
            output_modes=_texts(f"skill {skill_id}: output_modes", output_modes),
        )
        if input_schema is not None:
            checked = _input_schema(f"skill {skill_id}: input_schema", input_schema)
            self.profile = replace(self.profile, inputs={**self.profile.inputs, skill_id: checked})
        self._skills[skill_id] = (function, kind)
        if extended:
            self.profile = replace(self.profile, extended_skills=(*self.profile.extended_skills, skill))
        else:
            self.profile = replace(self.profile, skills=(*self.profile.skills, skill))
        return function


def _call_in_thread(
    function: Callable[[SyncContext], object], ctx: SyncContext, artifacts: Artifacts, crossing: Crossing[None]
) -> None:
    result = function(ctx)
    if isinstance(result, Iterator):
        try:
            for item in result:
                crossing.call(lambda item=item: artifacts.add(item))  # type: ignore[misc]
        finally:
            if callable(close := getattr(result, "close", None)):
                close()
    elif isinstance(result, Awaitable | AsyncIterator):
        raise TypeError(f"skill {ctx.skill} returned something to await: write it as `async def`")
    else:
        crossing.call(lambda: artifacts.add(result, last=True))


def _word_in(group: BaseExceptionGroup[BaseException]) -> FinalWord | Reject | None:
    """How the agent said, within an `asyncio.TaskGroup`, that its task ends; None if something failed there, too."""
    said, failed = group.split((FinalWord, Reject))
    word: BaseException | None = said if failed is None else None
    while isinstance(word, BaseExceptionGroup):
        word = word.exceptions[0]
    return word if isinstance(word, FinalWord | Reject) else None


def _direct(agent_id: str, direct: DirectMode) -> DirectMode:
    if direct not in (True, False, "auto"):
        raise ValueError(f"agent {agent_id}: direct={direct!r}: must be True, False or 'auto'")
    return direct


def _one_of(agent_id: str, argument: str, value: C, *choices: C) -> C:
    if value not in choices:
        raise ValueError(f"agent {agent_id}: {argument}={value!r}: must be {' or '.join(map(repr, choices))}")
    return value


def _steps_version(agent_id: str, version: str) -> str:
    if not isinstance(version, str):
        raise TypeError(f'agent {agent_id}: steps_version={version!r}: must be text, like "2"')
    if version and (fault := steps_version_fault(version)):
        raise ValueError(f"agent {agent_id}: steps_version={version!r}: {fault}")
    return version


def _forwards(agent_id: str, credentials: Mapping[str, bool] | None) -> bool:
    if credentials is None:
        return False
    if not isinstance(credentials, Mapping) or credentials.keys() != {"forward"}:
        raise TypeError(f'agent {agent_id}: credentials must be {{"forward": True}}, or be left out')
    return credentials["forward"] is True


def _headers(agent_id: str, headers: Iterable[str], *, forwards: bool) -> tuple[str, ...]:
    names = tuple(name.lower() for name in _texts(f"agent {agent_id}: headers", headers))
    for name in names:
        try:
            check_header(name, forwards=forwards)
        except ValueError as error:
            raise ValueError(f"agent {agent_id}: headers: {name!r} {error}") from error
        if names.count(name) > 1:
            raise ValueError(f"agent {agent_id}: headers: {name!r} is listed twice: leave one out")
    return names


def _direct_wait(agent_id: str, wait_s: float) -> float:
    return _seconds(agent_id, "direct_wait_s", wait_s, DIRECT_WAIT_S_MIN, DIRECT_WAIT_S_MAX)


def _seconds(agent_id: str, argument: str, value: float, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"agent {agent_id}: {argument}={value!r}: must be a number of seconds")
    if not least <= value <= most:
        allowed = f"must be from {least:g} to {most:.0f} seconds"
        raise ValueError(f"agent {agent_id}: {argument}={value!r}: {allowed}")
    return value


def _versions(agent_id: str, versions: Iterable[str]) -> tuple[str, ...]:
    chosen = _texts(f"agent {agent_id}: versions", versions)
    if not chosen or not set(chosen) <= set(VERSIONS):
        raise ValueError(f"agent {agent_id}: versions {chosen!r} must be one or more of {', '.join(VERSIONS)}")
    return tuple(version for version in VERSIONS if version in chosen)


def _input_schema(what: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    checked = json_of(schema, what)
    if not isinstance(checked, dict) or checked.get("type") != "object":
        raise ValueError(f'{what} must be the JSON Schema of an object: {{"type": "object", "properties": {{…}}}}')
    return checked


def _texts(what: str, values: Iterable[str]) -> tuple[str, ...]:
    texts = () if isinstance(values, str) else tuple(values)
    if isinstance(values, str) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{what} must be a list of texts, not {values!r}")
    return texts


FunctionKind = Literal["async generator", "coroutine", "plain"]


def check_function(agent_id: str, function: Any) -> tuple[FunctionKind, str, str]:
    """The kind of the function, its name, and its docstring (empty: none).

    Raises TypeError, which names the function and the fix, if it cannot be a skill.
    """
    if isinstance(function, staticmethod):
        function = function.__func__
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"agent {agent_id}: {function!r} cannot be a skill: put @agent.skill above a function")
    inner = function.func if isinstance(function, partial) else function
    name = getattr(inner, "__name__", type(inner).__name__)
    kind = _kind(function)
    _check_signature(f"agent {agent_id}: skill {name}", function, kind)
    return kind, name, inspect.getdoc(inner) or "" if hasattr(inner, "__name__") else ""


def _kind(function: Callable[..., Any]) -> FunctionKind:
    for candidate in (function, getattr(function, "__call__", None)):  # noqa: B004  an object may have an async one
        if inspect.isasyncgenfunction(candidate):
            return "async generator"
        if inspect.iscoroutinefunction(candidate):
            return "coroutine"
    return "plain"


def _check_signature(what: str, function: Callable[..., Any], kind: FunctionKind) -> None:
    wanted = "SyncContext" if kind == "plain" else "Context"
    keyword = "def" if kind == "plain" else "async def"
    fix = f"write `{keyword} {what.rpartition(' ')[2]}(ctx: {wanted})`"
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # a builtin without a signature
        return
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    if not positional:
        raise TypeError(f"{what} takes no context: {fix}")
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if unmet := [name for name in needed if name != positional[0].name]:
        raise TypeError(f"{what} needs {', '.join(unmet)}, but gets only the context: {fix}")
    annotation = positional[0].annotation
    written = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    other = "Context" if kind == "plain" else "SyncContext"
    if written.rpartition(".")[2] == other:
        raise TypeError(f"{what} is {_in_words(kind)} and gets a {wanted}: {fix}")


def _in_words(kind: FunctionKind) -> str:
    return (
        "a plain function that runs in a thread" if kind == "plain" else f"an {kind}" if kind[0] == "a" else f"a {kind}"
    )


DURABLE = ("step", "sleep", "sleep_until")
"""The calls of a context after which the log has more than the start of a run."""


def _durable_words(skills: Mapping[str, tuple[Callable[..., Any], FunctionKind]]) -> str:
    """The calls in DURABLE that skills make themselves, as they are written: `ctx.step, ctx.sleep`. Empty: none."""
    codes = [
        getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)
        for function, _ in skills.values()
    ]
    found = [word for code in codes if code is not None for word in _calls_of(code, code.co_varnames[:1])]
    return ", ".join(dict.fromkeys(found))


def _calls_of(code: CodeType, contexts: tuple[str, ...]) -> Iterator[str]:
    """Yield the calls in DURABLE on the first argument of a function, also those in the functions within it."""
    for before, after in pairwise(dis.get_instructions(code)):
        names = before.argval if isinstance(before.argval, tuple) else (before.argval,)  # 3.13 loads two at once
        if before.opname.startswith("LOAD_") and names[-1] in contexts and after.argval in DURABLE:
            yield f"{names[-1]}.{after.argval}"
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _calls_of(inner, contexts)
