"""The exception by which an agent ends its task with its own words.

Invariant: it ends the agent's function, so nothing is emitted after it. Only `Agent.run` catches it.
"""

from collections.abc import Sequence

from dragoman.engine.api import Ended
from dragoman.model.message import Part
from dragoman.model.task import TaskState


class FinalWord(BaseException):
    """Raised by `ctx.finish` and `ctx.fail`.

    It is not an Exception, like CancelledError, so that an `except Exception` of the agent does not swallow it.
    """

    def __init__(self, state: TaskState, parts: Sequence[Part]) -> None:
        super().__init__(state.value)
        self.ended = Ended(state, parts)
