"""The assistant says what its team has done, and what it has not."""

from dragoman import Reject
from dragoman.testing import run
from examples.team.assistant import agent


async def test_the_room_is_booked_and_the_mail_says_so() -> None:
    outcomes = {"langgraph": ["Booked for Friday"], "pydantic-ai": ["Sent to Ada"]}
    ran = await run(agent, "A room", delegated=outcomes)
    assert ran.text == "Booked for Friday. Sent to Ada."
    assert [order.parts[0].text for order in ran.orders] == ["A room", "Tell Ada: Booked for Friday"]


async def test_a_mail_that_was_not_sent_is_no_secret() -> None:
    outcomes: dict[str, list[object]] = {"langgraph": ["Booked for Friday"], "pydantic-ai": [Reject("not allowed")]}
    ran = await run(agent, "A room", delegated=outcomes)
    assert ran.text == "Booked for Friday. Nobody was told: not allowed."
