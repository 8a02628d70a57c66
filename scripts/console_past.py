"""A past for pictures of the console: the figures and the usage of a month that nobody has lived through."""

import math
import time
from decimal import Decimal

import msgspec

from dragoman.config.prices import Price, Prices
from dragoman.model.ids import SystemClock
from dragoman.server.series import DAY_S, STEPS, AgentTasks, Bucket
from dragoman.store.open import open_store
from dragoman.store.usage import DAY_MS, AnswerUsage, Used

PRICES = Prices("EUR", agents={"echo": Price(input_per_million=Decimal(3), output_per_million=Decimal(15))})
AGENTS = ("echo", "papers", "trip", "countdown")
MODELS = ("small-1", "large-2")
DURATIONS = (0, 3, 9, 20, 30, 20, 9, 4, 2, 1, 1, 1, 0, 0, 0, 0)


def wave(place: int, agent: int) -> int:
    """A number of tasks that goes up and down."""
    return max(0, round(12 + 9 * math.sin(place / 7 + agent) + (place * 37 + agent * 11) % 7 - agent * 3))


async def fill_past(url: str) -> None:
    """Write the figures and the usage of a month that nobody has lived through into a store."""
    store = open_store(url, SystemClock())
    await store.open("past")
    try:
        now_s = int(time.time())
        for step in STEPS.values():
            for back in range(step.points):
                number = now_s // step.step_s - back
                scale = max(1, step.step_s // 600)
                tasks = {
                    agent: AgentTasks(
                        [wave(back, at) * scale, wave(back, at + 2) * scale // 9, at, back % 2], [*DURATIONS]
                    )
                    for at, agent in enumerate(AGENTS)
                }
                numbers = list(Used("", 1, 1, 1, 1, 9000 * wave(back, 0), 700 * wave(back, 1), 9700, 5000).numbers)
                used = [] if step.step_s == DAY_S else [("echo", "small-1", numbers)]
                key = f"{step.prefix}{number:012d}/past"
                await store.shared.put(key, msgspec.msgpack.encode(Bucket(tasks, used)), step.ttl_ms)
        for day in range(30):
            for at, agent in enumerate(AGENTS):
                tokens = 40_000 * wave(day, at)
                used_up = Used(MODELS[at % 2], 30, 30, 40, 30, tokens, tokens // 9, tokens + tokens // 9, 900_000)
                owner = f"team:{'red' if at % 2 else 'blue'}/key:{agent}"
                store.usage.gather(AnswerUsage(owner, agent, now_s * 1000 - day * DAY_MS, (used_up,)))
    finally:
        await store.close()
