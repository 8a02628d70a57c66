"""A LocalTaskManager that nobody shut down."""

import asyncio

from dragoman.kaos import LocalTaskManager
from tests.kit.threads import running_threads


async def shout(text: str) -> str:
    return text.upper()


def test_an_event_loop_that_ends_takes_a_forgotten_manager_with_it() -> None:
    before = running_threads()

    async def forget() -> None:
        await LocalTaskManager(shout).send_message("hi")

    asyncio.run(forget())
    assert running_threads() <= before
