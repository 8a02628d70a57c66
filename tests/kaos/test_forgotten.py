"""A LocalTaskManager that nobody shut down."""

import asyncio
import threading

from dragoman.kaos import LocalTaskManager


async def shout(text: str) -> str:
    return text.upper()


def test_an_event_loop_that_ends_takes_a_forgotten_manager_with_it() -> None:
    before = set(threading.enumerate())

    async def forget() -> None:
        await LocalTaskManager(shout).send_message("hi")

    asyncio.run(forget())
    assert set(threading.enumerate()) <= before
