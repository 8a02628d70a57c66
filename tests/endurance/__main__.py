"""Lets a server work for an hour, and kills it twice: `PYTHONPATH=. python -m tests.endurance --minutes 60`.

Callers of every kind take turns at a steady rate while the sweep deletes what they made. A run is good if the server
does as much in its last sixth, for a second of processor time, as a fresh one beside it, if memory and open files stay,
and if no caller was told anything wrong: see `gauge` and `turns`.
"""

import argparse
import asyncio
import os
import random
import re
import signal
import sys
import tempfile
from itertools import count, cycle
from pathlib import Path
from time import monotonic, time

import aiohttp

from dragoman.store.sqlite.schema import check
from tests.drills.agents import LEDGER
from tests.drills.cluster import ReplicaProcess
from tests.drills.drill import ALLOWED, SLEEPY, read_ledger
from tests.endurance.gauge import Sample, Verdict, judge, wrong_steps
from tests.endurance.turns import MIX, PATIENCE_S, Callers, Hooks, receiving

KILLED_AT = (0.25, 0.3)
"""The parts of the run after which the server is killed: so one of its lives is more than two thirds of the run."""

SETTLED_AT = 1 / 3
"""From then on memory and open files must stay."""

SWEEP_S = 60.0
"""From a retention and a sweep after the start on, as much is deleted as is made: then the first window begins."""

UNDER_WAY_MAX = 1000
"""So many turns may be under way. Those beyond are skipped: they would only measure how late the server is."""

SAMPLES = 360
TOLD_EVERY = 6
DWELLS_S = 20.0
TICKS = os.sysconf("SC_CLK_TCK")


def take_sample(server: ReplicaProcess, life: int, began_s: float, turns: int) -> Sample:
    """What Linux says of the server's process."""
    assert server.process is not None
    process = Path(f"/proc/{server.process.pid}")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    (kilobytes,) = re.findall(r"RssAnon:\s+(\d+) kB", (process / "status").read_text())
    return Sample(
        at_s=monotonic() - began_s,
        life=life,
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS,
        memory_bytes=int(kilobytes) * 1024,
        files=len(os.listdir(process / "fd")),
        turns=turns,
    )


def describe(sample: Sample) -> str:
    """A sample for people."""
    return (
        f"{sample.at_s:.0f} s, life {sample.life + 1}: {sample.turns} turns, {sample.cpu_s:.0f} s of a processor, "
        f"{sample.memory_bytes / 1e6:.1f} MB, {sample.files} files"
    )


class Endured:
    """A server that works, in a folder of its own, with those who call it and what is seen of it.

    `began_s` is when the run began, which may be before this server did.
    """

    def __init__(
        self, folder: Path, http: aiohttp.ClientSession, hooks: Hooks, chance: random.Random, retention_s: float
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.file = folder / "tasks.db"
        keeps = {"task": retention_s, "waiting": retention_s, "log": retention_s // 2, "delivered": retention_s // 2}
        keeps["audit"] = retention_s
        flags = [flag for name, kept_s in keeps.items() for flag in (f"--{name}-retention", f"{kept_s}s")]
        self.server = ReplicaProcess("only", ("--store", f"sqlite:///{self.file}", *SLEEPY, *ALLOWED, *flags), folder)
        self.callers = Callers(http, self.server.url, hooks, chance, retention_s)
        self.samples: list[Sample] = []

    async def watch(self, began_s: float, every_s: float, title: str) -> None:
        """Take samples, and tell people of some."""
        told, server, callers = 0, self.server, self.callers
        for number in count(1):
            if server.process is not None and server.process.returncode is None:
                self.samples.append(take_sample(server, callers.kills, began_s, callers.turns))
                if number % TOLD_EVERY == 0:
                    size_mb = self.file.stat().st_size / 1e6
                    print(f"{title}{describe(self.samples[-1])}, store {size_mb:.0f} MB", flush=True)
                    for fault in callers.faults[told:]:
                        print(f"fault: {title}{fault}", flush=True)
                    told = len(callers.faults)
            await asyncio.sleep(every_s)

    async def work(self, from_s: float, to_s: float, per_s: float, dwellers: int, dwells_s: float) -> None:
        """Have it work between two times, with `per_s` turns begun in a second, and `dwellers` silent streams."""
        over, callers = asyncio.Event(), self.callers
        async with asyncio.TaskGroup() as group:
            for _ in range(dwellers):
                group.create_task(callers.dwell(over, dwells_s))
            under_way: set[asyncio.Task[None]] = set()
            for number, name in enumerate(cycle(MIX)):
                if (due_s := from_s + number / per_s) > to_s:
                    break
                await asyncio.sleep(due_s - monotonic())
                if len(under_way) >= UNDER_WAY_MAX:
                    callers.skipped += 1
                    continue
                turn = group.create_task(callers.take(name))
                under_way.add(turn)
                turn.add_done_callback(under_way.discard)
            over.set()


async def endure(folder: Path, lasts_s: float, per_s: float, dwellers: int, chance: random.Random) -> Verdict:
    """Run for so long, with `per_s` turns begun in a second, and `dwellers` streams that are silent for a while.

    For the last sixth, and while it warms up before, a fresh server does the same beside it.
    """
    retention_s = max(60, round(lasts_s / 40))
    warm_s = min(lasts_s / 15, retention_s + SWEEP_S)
    every_s, dwells_s = max(0.5, lasts_s / SAMPLES), min(DWELLS_S, lasts_s / 10)
    kills_ms: list[float] = []

    async def kill() -> None:
        for part in KILLED_AT:
            await asyncio.sleep(max(0, began_s + lasts_s * part - monotonic()))
            old.callers.kills += 1
            kills_ms.append(time() * 1000)
            await server.kill()
            await server.start()
            print(f"killed after {lasts_s * part:.0f} s, back after {monotonic() - began_s:.0f} s", flush=True)

    async def begin_fresh() -> None:
        from_s, to_s = began_s + lasts_s * 5 / 6 - warm_s, began_s + lasts_s
        await asyncio.sleep(from_s - monotonic())
        await fresh.server.start()
        watching = asyncio.create_task(fresh.watch(began_s, every_s, "fresh: "))
        await fresh.work(monotonic(), to_s, per_s, dwellers, dwells_s)
        watching.cancel()

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
    async with (
        receiving() as hooks,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http,
    ):
        old, fresh = (Endured(folder / name, http, hooks, chance, retention_s) for name in ("old", "fresh"))
        server, callers = old.server, old.callers
        try:
            await server.start()
            began_s = monotonic()
            watching = asyncio.create_task(old.watch(began_s, every_s, ""))
            async with asyncio.timeout(lasts_s + 5 * PATIENCE_S), asyncio.TaskGroup() as group:
                group.create_task(kill())
                group.create_task(begin_fresh())
                await old.work(began_s, began_s + lasts_s, per_s, dwellers, dwells_s)
                watching.cancel()
            server.send(signal.SIGTERM)
            status = await server.ended()
        finally:
            await server.kill()
            await fresh.server.kill()
    verdict = judge(old.samples, fresh.samples, lasts_s, warm_s, lasts_s * SETTLED_AT)
    faults = [
        *callers.faults,
        *verdict.faults,
        *fresh.callers.faults,
        *wrong_steps(read_ledger(old.file.parent / LEDGER), callers.traveled, kills_ms),
        *(f"the store: {each}" for each in check(old.file)),
        *((f"the server ended with {status}",) if status else ()),
        *(("the log has a traceback",) if "Traceback" in server.said() else ()),
    ]
    counted = (
        f"{callers.turns} turns, {callers.skipped} skipped, {callers.retries} retries, "
        f"{callers.events} events followed, {hooks.calls} webhook calls, {len(callers.traveled)} journeys, "
        f"{len(kills_ms)} kills"
    )
    return Verdict((counted, *verdict.figures), tuple(faults))


def main() -> None:
    """Run as the command line says."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--per-s", type=float, default=40)
    options.add_argument("--dwellers", type=int, default=60)
    options.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = options.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="dragoman-endurance-") as folder:
        chance = random.Random(given.seed)
        verdict = asyncio.run(endure(Path(folder), given.minutes * 60, given.per_s, given.dwellers, chance))
    for line in verdict.figures:
        print(line)
    for fault in verdict.faults[:50]:
        print(f"fault: {fault}")
    sys.exit(bool(verdict.faults))


if __name__ == "__main__":
    main()
