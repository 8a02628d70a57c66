"""A process that appends until it is killed: prints each acknowledged write, one line each, after its commit.

usage: appending.py URL FIRST
"""

import asyncio
import sys

from dragoman.model.ids import SystemClock
from dragoman.model.message import Part
from dragoman.store.api import Append, Appended, Dedupe
from dragoman.store.open import open_store
from dragoman.testing.store_cases.bench import W, chunk, ending, message, new_task


async def main(url: str, first: int) -> None:
    store = open_store(url, SystemClock())
    await store.open(f"holder {first}")
    number = first

    async def one(task_id: str) -> None:
        content = Part(raw=task_id.encode() * 300)
        await store.create(
            new_task(
                task_id,
                context_id=f"c{number % 7}",
                said=message("go", content),
                dedupe=Dedupe(task_id.encode(), b"d", 1 << 50),
            )
        )
        acknowledge(task_id, 1)
        for step in range(3):
            done = await store.append(
                Append(task_id=task_id, events=(chunk(str(step)), chunk("", content)), state=W, status_ms=1, epoch=1)
            )
            assert isinstance(done, Appended)
            acknowledge(task_id, done.last_seq)
        await store.append(ending(task_id, 7))
        acknowledge(task_id, 8)

    async def sender() -> None:
        nonlocal number
        while True:
            number += 1
            await one(f"t{number:07}")

    def acknowledge(task_id: str, seq: int) -> None:
        sys.stdout.write(f"{task_id} {seq}\n")
        sys.stdout.flush()

    await asyncio.gather(*(sender() for _ in range(32)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
