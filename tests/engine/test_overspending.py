"""What runs report that they have used is weighed, also what comes while an earlier report is being weighed."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from dragoman.engine.errands import Errands
from dragoman.engine.overspending import Overspending
from dragoman.engine.spending import TaskSpending
from dragoman.model.task import TaskHead, Usage
from tests.kit.values import head


class SlowBudget:
    """A budget of which 100 tokens are left; it answers when it is `released`."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.released = asyncio.Event()

    async def exceeded(self, head: TaskHead, used: Usage) -> str | None:
        """Weigh the tokens."""
        self.asked.append(used.input_tokens)
        await self.released.wait()
        return "tokens" if used.input_tokens > 100 else None


class Jobs:
    """Errands that run at once."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Task[None]] = []

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin one."""
        self.begun.append(asyncio.create_task(work))


class Report:
    """A report of a worker."""

    def __init__(self, tokens: int) -> None:
        self.head = head("t")
        self.used: Usage | None = Usage(input_tokens=tokens)
        self.stopped = ""

    async def stop_spending(self, budget: str) -> None:
        """Note what stopped it."""
        self.stopped = budget


async def test_a_report_that_comes_while_another_one_is_weighed_is_weighed_next() -> None:
    budget, jobs = SlowBudget(), Jobs()
    overspending = Overspending(cast(TaskSpending, budget), cast(Errands, jobs))
    reports = [Report(60), Report(90), Report(120)]
    overspending.weigh(reports[0])
    await asyncio.sleep(0)
    overspending.weigh(reports[1])
    overspending.weigh(reports[2])
    budget.released.set()
    await asyncio.gather(*jobs.begun)
    assert (budget.asked, len(jobs.begun)) == ([60, 120], 1)
    assert [each.stopped for each in reports] == ["", "", "tokens"]
    overspending.weigh(again := Report(200))
    await asyncio.gather(*jobs.begun)
    assert again.stopped == "tokens"
