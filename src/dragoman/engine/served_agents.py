"""Served: the agents of this process, in the one place from which the engine reads them.

Invariant: they are replaced all at once, within one turn of the loop.
"""

from collections.abc import Collection, Mapping

from dragoman.engine.api import Generation, Runner


class Served:
    """The agents that are served at present.

    `leaving` are those that are served no more, by id, until none of their tasks needs them: workers may still report.
    """

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self.generation = Generation(runners)
        """The agents, with the count of the calls that may still start a run with one of them."""
        self.leaving: dict[str, Runner] = {}

    @property
    def runners(self) -> Mapping[str, Runner]:
        """The agents by id."""
        return self.generation.runners

    def replace(self, runners: Mapping[str, Runner]) -> Generation:
        """Serve these agents from now on. Returns the previous generation, with which existing runs go on."""
        old, self.generation = self.generation, Generation(runners)
        self.leaving |= {agent: runner for agent, runner in old.runners.items() if runners.get(agent) is not runner}
        return old

    def dismiss(self, left: Collection[Runner]) -> None:
        """Forget agents that have left, because no task needs them any more."""
        self.leaving = {agent: runner for agent, runner in self.leaving.items() if runner not in left}

    def pushes(self, agent: str) -> bool:
        """Whether webhooks are called for an agent's tasks. Those of an agent that is gone still get their calls."""
        runner = self.runners.get(agent)
        return runner is None or runner.profile.pushes
