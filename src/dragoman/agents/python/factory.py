"""FactoryAgent: the place of an agent that a user's function makes when the server starts.

The function is called in the event loop of the server, so that what it opens (a checkpointer, a pool, a session)
belongs to that loop, and what it makes is closed after the last task.

Invariant: the id is known before the agent is made, so that its paths and keys are; the rest of the card comes with it.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.adapters import NOTHING_BESIDE, advice, runner_of
from dragoman.agents.lifespans import LifespanError, enter_in
from dragoman.agents.python.lifespan import SPELLED, required_parameters
from dragoman.agents.table import bound_agent, configure_python, describe_anew
from dragoman.agents.user_code import function_place
from dragoman.config import AgentEntry
from dragoman.engine.api import CheckResult, Lifespan, Run, Runner, Traits
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError
from dragoman.model.task import Record
from dragoman.telemetry.job_group import JobGroup


def is_factory(value: object) -> TypeGuard[Callable[[], Any]]:
    """Whether the object is a function that can be called without arguments.

    Raises ValueError, which names the fix, for one whose result nobody could use.
    """
    if not (inspect.isroutine(value) or isinstance(value, partial)) or required_parameters(value):
        return False
    inner = inspect.unwrap(value)
    if inner is value and inspect.isasyncgenfunction(inner):
        raise ValueError(f"it yields, and is no context manager: {SPELLED}")
    if inspect.isgeneratorfunction(inner):
        raise ValueError(f"it is not asynchronous: {SPELLED}")
    return True


class FactoryAgent(Runner):
    """Becomes the agent that `factory` returns, or yields if it makes an async context manager.

    It returns an agent of ours or of a framework, at once or when awaited. `entry` is the table that names it, and
    `beside` are the names of its module. Until then there is no card but the id.
    """

    def __init__(
        self,
        agent_id: str,
        factory: Callable[[], Any],
        entry: AgentEntry | None = None,
        beside: Mapping[str, object] = NOTHING_BESIDE,
    ) -> None:
        self.profile = Profile(id=agent_id, name=agent_id, description=agent_id, version="1.0.0", skills=())
        self.traits = Traits(kind="python")
        self._factory = factory
        self._entry = entry
        self._beside = beside
        self._name = f"its factory {function_place(factory)}"
        self._state: Any = None
        self._made: Runner | None = None

    @property
    def made(self) -> Runner:
        """The agent that was made. Raises LookupError before then."""
        if self._made is None:
            raise LookupError(f"agent {self.profile.id}: {self._name} has not been called")
        return self._made

    @property
    def offline(self) -> bool:
        """Whether sends are refused at present."""
        return self.made.offline

    @property
    def degraded(self) -> str | None:
        """Why the agent cannot do all of its work."""
        return self.made.degraded

    def refusal(self) -> A2AError:
        """The error for a send while it is offline."""
        return self.made.refusal()

    def lifespans(self) -> tuple[Lifespan, ...]:
        """The lifespan of the module, then the making of the agent."""
        return (*super().lifespans(), Making(self._name, self))

    def take_state(self, lifespan: Lifespan, yielded: Any) -> None:
        """Take the state that the module's lifespan yields, or become the agent."""
        if lifespan.subject is not self:
            self._state = yielded
            return
        self._made = yielded
        self.profile, self.traits = self.made.profile, self.made.traits

    @asynccontextmanager
    async def make(self) -> AsyncIterator[Runner]:
        """Make the agent, with what it has opened itself. Raises LifespanError if that is no agent."""
        async with AsyncExitStack() as stack:
            made = self._read(await self._call(stack))
            if self.lifespan is not None and made.lifespan is None:
                made.take_state(self.lifespan, self._state)
            await enter_in(stack, made)
            yield made

    async def _call(self, stack: AsyncExitStack) -> Any:
        """Call the factory, and enter what it makes if that is a context manager."""
        given = self._factory()
        if inspect.isawaitable(given):
            given = await given
        if hasattr(given, "__aenter__") and self._runner_of(given) is None:
            given = await stack.enter_async_context(given)
        return given

    def _read(self, given: Any) -> Runner:
        """The agent that was returned or yielded, as the table describes it."""
        found = self._runner_of(given)
        if found is None:
            told = advice(given) or "let it return an agent, a compiled graph, an executor …"
            raise LifespanError(f"it made an object of type {type(given).__name__}, not an agent; {told}")
        if self._entry is None:
            return describe_anew(found, replace(found.profile, id=self.profile.id))
        try:
            found = configure_python(found, self._entry)
        except ValueError as error:
            raise LifespanError(str(error)) from error
        bound_agent(found, self._entry)
        return found

    def _runner_of(self, given: object) -> Runner | None:
        try:
            return runner_of(given, self.profile.id, self._beside)
        except ValueError as error:
            raise LifespanError(str(error)) from error

    async def open(self, group: JobGroup) -> None:
        """Open the agent that was made."""
        await self.made.open(group)

    async def close(self) -> None:
        """Close the agent, if it was made."""
        if self._made is not None:
            await self._made.close()

    async def check(self) -> AsyncIterator[CheckResult]:
        """Say that the card is not known yet. The factory is not called."""
        yield CheckResult(True, "its card and its skills are known once a server has made it")

    def stopped(self, record: Record) -> None:
        """Cancel elsewhere what belongs to a task that was canceled here."""
        self.made.stopped(record)

    async def run(self, run: Run) -> None:
        """Do the task with the agent that was made."""
        await self.made.run(run)


class Making(Struct, frozen=True, eq=False):
    """The lifespan that yields the agent of a factory. See `engine.api.Lifespan`."""

    name: str
    subject: FactoryAgent
    takes_agent: bool = False

    def manager(self, agent: Runner) -> AbstractAsyncContextManager[Runner]:
        """Make the agent."""
        return self.subject.make()
