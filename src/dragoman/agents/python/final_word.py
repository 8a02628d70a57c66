"""FinalWord: how a skill ends its task from within a call.

Invariant: it is no Exception, so that an `except Exception` of the agent does not swallow it.
"""

from dragoman.engine.api import Ended


class FinalWord(BaseException):
    """Raised by `ctx.finish`, `ctx.fail` and `ctx.message_reply`, like CancelledError."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended.state.value)
        self.ended = ended
