"""Agents made of Python functions.

Invariant: every fault in the declaration of an agent or a skill is raised when it is declared, with the name of the
function and the fix. A function that passes can be called with one positional argument, the context.
"""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Literal, TypeVar, overload

from msgspec.structs import replace

from dragoman.agents.content import Artifacts
from dragoman.agents.python.context import Context, FinalWord
from dragoman.agents.python.threads import Crossing, SyncContext, Threads
from dragoman.config import DEADLINE_S_MAX, DEADLINE_S_MIN, DIRECT_WAIT_S_MAX, DIRECT_WAIT_S_MIN, agent_id_fault
from dragoman.engine.api import DIRECT_WAIT_S, CheckResult, DirectMode, Reject, Run, Runner, Traits
from dragoman.model.card import VERSIONS, AgentExtension, AgentProvider, AgentSkill, Profile

SkillFunction = (
    Callable[[Context], AsyncIterator[object]]
    | Callable[[Context], Awaitable[object]]
    | Callable[[SyncContext], object]
)
"""An async generator, a coroutine function, or a plain function or generator, which runs in a thread."""

F = TypeVar("F", bound=SkillFunction)


class Agent(Runner):
    """Python functions behind a card: each is a skill. Satisfies `Runner`.

    `id` is the last segment of the agent's path. `direct` answers with one Message instead of a task. With "auto" a
    run that a Message cannot hold, or that takes longer than `direct_wait_s`, becomes a task. A run that works for
    longer than `deadline_s` at a stretch is stopped, and its task fails. `restartable`: a run that a crash
    interrupted may be run again from its start. `one_message` takes no further message while the agent works.
    `streams` False refuses streaming. `versions` are the official protocol versions that the agent is served in.
    Card fields that are left out keep the defaults of `Profile`.

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
        one_message: bool = False,
        streams: bool = True,
        versions: Iterable[str] = VERSIONS,
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
            one_message=one_message,
            deadline_s=None
            if deadline_s is None
            else _seconds(id, "deadline_s", deadline_s, DEADLINE_S_MIN, DEADLINE_S_MAX),
        )
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
        extended: bool = False,
    ) -> Callable[[F], F]: ...

    def skill(self, id: Any = None, /, **said: Any) -> Any:  # noqa: A002
        """Make the function below a skill of this agent: `@agent.skill("forecast", tags=["weather"])`, or bare.

        The id defaults to the function's name, the description to its docstring. The first skill runs when the caller
        names none. An `extended` skill is only on the card for authenticated callers, and runs when it is named. The
        function itself is unchanged.

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
                await self.threads.run(lambda crossing: _call_in_thread(function, run, skill_id, artifacts, crossing))
                return
            given = function(Context(run, skill_id, artifacts))
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
        self._skills[skill_id] = (function, kind)
        if extended:
            self.profile = replace(self.profile, extended_skills=(*self.profile.extended_skills, skill))
        else:
            self.profile = replace(self.profile, skills=(*self.profile.skills, skill))
        return function


def _call_in_thread(
    function: Callable[[SyncContext], object], run: Run, skill_id: str, artifacts: Artifacts, crossing: Crossing[None]
) -> None:
    result = function(SyncContext(run, skill_id, artifacts, crossing))
    if isinstance(result, Iterator):
        try:
            for item in result:
                crossing.call(lambda item=item: artifacts.add(item))  # type: ignore[misc]
        finally:
            if callable(close := getattr(result, "close", None)):
                close()
    elif isinstance(result, Awaitable | AsyncIterator):
        raise TypeError(f"skill {skill_id} returned something to await: write it as `async def`")
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
