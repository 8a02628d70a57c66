"""RetiredAgent: stands in the place of an agent that was removed, so that its tasks can be read as before.

Invariant: it dials nothing and does nothing.
"""

from dragoman.engine.api import Ended, Run, Runner, Traits
from dragoman.model.card import Profile
from dragoman.model.message import Part
from dragoman.model.task import TaskState


class RetiredAgent(Runner):
    """An agent that was removed and has no open task."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.traits = Traits(restartable=True)

    async def run(self, run: Run) -> None:
        """Fail a task that was let in at the moment when the agent was removed."""
        raise Ended(TaskState.FAILED, (Part(text="The agent was removed."),), "agent_removed")
