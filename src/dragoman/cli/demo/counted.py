"""What a column of the demo came to."""

from msgspec import Struct


class Counted(Struct, frozen=True, kw_only=True):
    """What a column came to. None: it cannot be counted in this run.

    `events_lost` are steps of which the caller has no report; with an agent of the user's, characters of the task's
    artifacts that the caller's stream lacks. `steps_done_again` were done before, `steps_begun_again` includes the one
    that was cut. `webhooks_missing` counts a report for each step, and one for the end. `seconds` is how long the
    caller waited for the end, None if it never came.
    """

    name: str
    title: str
    state: str
    events_lost: int | None
    steps_done_again: int | None
    steps_begun_again: int | None
    webhooks_missing: int
    seconds: float | None

    @property
    def whole(self) -> bool:
        """Whether the task completed, and nothing was lost or done again."""
        lost = self.events_lost or self.steps_done_again or self.webhooks_missing
        return not lost and self.state == "completed" and self.seconds is not None
