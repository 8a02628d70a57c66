"""The host asks for what is missing, and only for that."""

import pytest

from dragoman import TaskState
from dragoman.testing import run
from examples.booking.booking import agent


async def test_a_full_wish_needs_only_a_confirmation() -> None:
    ran = await run(agent, "A table for 4 on Friday at 19", answers=["yes"])
    assert ran.questions == ["A table for 4 on Friday at 19:00. Shall I book it?"]
    (booked,) = ran.data
    assert (booked["guests"], booked["day"], booked["hour"]) == (4, "Friday", 19)


async def test_what_is_missing_or_cannot_be_is_asked_for_again() -> None:
    ran = await run(agent, "A table", answers=["many", "2", "tomorrow", "Sunday", "at noon", "3", "20", "ok"])
    assert [booked["guests"] for booked in ran.data] == [2]
    assert [booked["hour"] for booked in ran.data] == [20]
    assert len(ran.questions) == 8


async def test_nothing_is_booked_without_a_yes() -> None:
    ran = await run(agent, "For 2 on Monday at 18", answers=["no"])
    assert ran.state is TaskState.COMPLETED
    assert not ran.artifacts


@pytest.mark.parametrize("guests", [9, 500])
async def test_a_table_that_is_not_there_is_refused(guests: int) -> None:
    ran = await run(agent, f"For {guests} on Monday at 18")
    assert ran.state is TaskState.REJECTED
