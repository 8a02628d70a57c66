"""Money leaves only with a clear yes."""

import pytest

from dragoman import Part, TaskState
from dragoman.testing import run
from examples.approval.payments import FREE, agent


async def test_a_small_bill_is_paid_at_once() -> None:
    ran = await run(agent, f"Pay {FREE} to Ada")
    assert not ran.questions
    assert [paid["paid"] for paid in ran.data] == [FREE]


@pytest.mark.parametrize("answer", ["yes", " OK ", Part(data={"approved": True})])
async def test_a_large_bill_is_paid_after_a_yes(answer: str | Part) -> None:
    ran = await run(agent, "Pay 900 to Grace", answers=[answer])
    assert len(ran.questions) == 1
    assert [paid["receiver"] for paid in ran.data] == ["Grace"]


@pytest.mark.parametrize("answer", ["no", "yesterday", "", Part(data={"approved": "yes"})])
async def test_everything_else_is_a_no(answer: str | Part) -> None:
    ran = await run(agent, "Pay 900 to Grace", answers=[answer])
    assert ran.state is TaskState.COMPLETED
    assert not ran.data


async def test_a_bill_that_cannot_be_read_is_refused() -> None:
    ran = await run(agent, "Give Ada some money")
    assert ran.state is TaskState.REJECTED
