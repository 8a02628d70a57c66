"""Served: the agents of this process, in the one place from which the engine reads them.

Invariant: they are replaced all at once, within one turn of the loop.
"""

from collections.abc import Collection, Iterable, Mapping

from dragoman.engine.api import Generation, Runner
from dragoman.engine.switches import Switches
from dragoman.model.errors import A2AError, AgentNotFound

_AT = "@"
"""Stands between an agent and its version. No id has it."""


def version_name(agent: str, steps_version: str) -> str:
    """The name under which a version of an agent's code is served. No agent has it as its id."""
    return f"{agent}{_AT}{steps_version}"


def is_version(name: str) -> bool:
    """Whether a name under which a replica serves something is that of a version, not of an agent."""
    return _AT in name


def served_names(runners: Iterable[Runner]) -> tuple[str, ...]:
    """The names under which replicas know what one serves: the agents, and the versions of their code."""
    names: list[str] = []
    for runner in runners:
        names.append(runner.profile.id)
        if runner.traits.steps_version:
            names.append(version_name(runner.profile.id, runner.traits.steps_version))
    return tuple(names)


class Served:
    """The agents that are served at present.

    `leaving` are those that are served no more, by id, until none of their tasks needs them: workers may still report.
    `switches` says which of all agents operators have taken out of service.
    """

    def __init__(
        self, runners: Mapping[str, Runner], switches: Switches | None = None, removed: Collection[str] = ()
    ) -> None:
        self.switches = switches or Switches()
        self.generation = Generation(runners)
        """The agents, with the count of the calls that may still start a run with one of them."""
        self.leaving: dict[str, Runner] = {}
        self.removed = frozenset(removed)
        """The agents that operators have removed: their tasks go on and can be read, and they are given no new one."""

    @property
    def runners(self) -> Mapping[str, Runner]:
        """The agents by id."""
        return self.generation.runners

    def replace(self, runners: Mapping[str, Runner], removed: Collection[str] = ()) -> Generation:
        """Serve these agents from now on. Returns the previous generation, with which existing runs go on."""
        old, self.generation = self.generation, Generation(runners)
        self.removed = frozenset(removed)
        self.leaving |= {agent: runner for agent, runner in old.runners.items() if runners.get(agent) is not runner}
        return old

    def refusal(self, agent: str, *, new: bool) -> A2AError | None:
        """The error for a caller's message to an agent, which makes a `new` task or not, by what operators have set."""
        return AgentNotFound(agent) if new and agent in self.removed else self.switches.refusal(agent, new=new)

    def dismiss(self, left: Collection[Runner]) -> None:
        """Forget agents that have left, because no task needs them any more."""
        self.leaving = {agent: runner for agent, runner in self.leaving.items() if runner not in left}

    def pushes(self, agent: str) -> bool:
        """Whether webhooks are called for an agent's tasks. Those of an agent that is gone still get their calls."""
        runner = self.runners.get(agent)
        return runner is None or runner.profile.pushes
