"""The question of a run, as its branches wait for it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dragoman.engine.bounds import Bounds
from dragoman.engine.effects import Effects
from dragoman.engine.files import Files
from dragoman.engine.log import Log
from dragoman.engine.runs.execution import OVER
from dragoman.engine.runs.history import History
from dragoman.engine.runs.questions import Questions
from dragoman.engine.runs.services import RunServices
from dragoman.engine.stopping import Stopping
from dragoman.store.api import Store
from dragoman.store.open import open_store
from tests.engine.house import StandingClock, message
from tests.engine.test_log import log_of
from tests.store.cases.bench import new_task


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    opened = open_store("memory:", StandingClock())
    await opened.open("me")
    await opened.create(new_task("t", holder="me"))
    yield opened
    await opened.close()


def services_of(store: Store) -> RunServices:
    files = Files()
    return RunServices(
        clock=StandingClock(),
        loop=asyncio.get_running_loop(),
        past=History(store, files),
        state=store.state,
        files=files,
        bounds=Bounds(),
        server="server",
        effects=Effects(),
        stopping=Stopping(),
        suspend_max_s=60.0,
        suspend_after_s=5.0,
        max_steps=10,
        retry_s=0.01,
    )


async def test_a_branch_sleeps_while_the_question_of_another_has_its_answer_but_waits_for_its_write(
    store: Store,
) -> None:
    """The write that the answered question was to go with may be in doubt for as long as the store is away."""
    log: Log = await log_of(store)
    questions = Questions(log, (), services_of(store), None)
    written = asyncio.get_running_loop().create_future()
    asking = asyncio.create_task(questions.ask(written, OVER, None))
    await asyncio.sleep(0)
    questions.receive(message("red"))
    assert questions.overtaken()
    closing = questions.closed()
    waits_for = closing.send(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert asyncio.isfuture(waits_for)
    assert not waits_for.done(), "it looks again at each turn of the loop"
    closing.close()
    waiting = asyncio.create_task(questions.closed())
    written.set_result(None)
    await waiting
    assert asking.done()
    assert (answer := asking.result()) is not None
    assert answer.text == "red"
