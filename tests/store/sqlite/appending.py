"""A process that appends and delivers until it is killed; prints one line for each write after its commit.

A line is `wrote TASK SEQ`, or `settled TASK SEQ`, which follows `sent TASK SEQ`, printed before that is written.

usage: python -m tests.store.sqlite.appending URL FIRST
"""

import asyncio
import sys

from msgspec.structs import replace

from dragoman.model.ids import SystemClock
from dragoman.model.message import Part
from dragoman.store.api import Append, Appended, Dedupe
from dragoman.store.open import open_store
from dragoman.store.outbox import Lane
from tests.store.cases.bench import W, chunk, ending, message, new_task
from tests.store.cases.deliveries import arrived, telling, webhook


async def main(url: str, first: int) -> None:
    store = open_store(url, SystemClock())
    await store.open(f"holder {first}")
    await store.outbox.reclaim(SystemClock().now_ms())
    number = first

    async def one(task_id: str) -> None:
        content = Part(raw=task_id.encode() * 300)
        new = new_task(
            task_id,
            context_id=f"c{number % 7}",
            said=message("go", content),
            dedupe=Dedupe(task_id.encode(), b"d", 1 << 50),
        )
        new = replace(new, push=webhook(host=f"https://h{number % 3}:443"), deliveries=(telling(1),))
        await store.create(new)
        say("wrote", task_id, 1)
        for step in range(3):
            done = await store.append(
                Append(task_id=task_id, events=(chunk(str(step)), chunk("", content)), state=W, status_ms=1, epoch=1)
            )
            assert isinstance(done, Appended)
            say("wrote", task_id, done.last_seq)
        await store.append(replace(ending(task_id, 7), deliveries=(telling(8, kept=True),)))
        say("wrote", task_id, 8)

    async def courier() -> None:
        while True:
            for lane in Lane:
                now = SystemClock().now_ms()
                for due in await store.outbox.claim(lane, now, now + 60_000, 20, 20):
                    say("sent", due.task_id, due.delivery.seq)
                    await store.outbox.settle(arrived(due, now))
                    say("settled", due.task_id, due.delivery.seq)

    async def sender() -> None:
        nonlocal number
        while True:
            number += 1
            await one(f"t{number:07}")

    def say(what: str, task_id: str, seq: int) -> None:
        sys.stdout.write(f"{what} {task_id} {seq}\n")
        sys.stdout.flush()

    await asyncio.gather(courier(), *(sender() for _ in range(32)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
