"""`make test-console-long`: a task that streams 1,000 events a second is watched in a real browser for ten minutes.

Prints how long the page's frames took and how much memory it holds, minute by minute, and fails if they miss what the
console promises: the 99th frame in 100 takes less than 100 ms, and the memory does not grow.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from playwright.async_api import CDPSession, Page

from dragoman import Agent, Context
from dragoman.auth.operator_token import read_token
from dragoman.config import Config
from dragoman.server import serving
from tests.console.browser import chromium, console
from tests.console.site import Site, open_task, replay

EVENTS_PER_S = 1000
TURN_S = 0.02
STEP_EVERY = 20
"""Every so many events one is a step of progress, with a row of its own in the timeline. The others are words."""

P99_MS = 100.0
HEAP_GROWTH = 1.2
"""How much more memory the page may hold at the end than after the first tenth of the time. Within the first minute the
page has as many events and as much text as it keeps."""

WATCH_FRAMES = """() => {
  globalThis.frameTimes = [];
  let last = performance.now();
  const tick = (now) => { globalThis.frameTimes.push(now - last); last = now; requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
}"""

TAKE_FRAMES = "() => globalThis.frameTimes.splice(0)"


def flooding_agent(stopped: asyncio.Event) -> Agent:
    """An agent that says `EVENTS_PER_S` things a second until `stopped`."""
    agent = Agent("flood")

    @agent.skill
    async def flood(ctx: Context) -> AsyncIterator[str]:
        """Say one word after the other."""
        loop = asyncio.get_running_loop()
        began_s, said = loop.time(), 0
        while not stopped.is_set():
            while said < (loop.time() - began_s) * EVENTS_PER_S:
                said += 1
                if said % STEP_EVERY == 0:
                    await ctx.progress(said, said + STEP_EVERY, f"step {said // STEP_EVERY}")
                else:
                    yield f"word {said}. " if said % 7 else f"word {said}.\n\n"
            await asyncio.sleep(TURN_S)

    return agent


async def heap_mb(devtools: CDPSession) -> float:
    """The memory of the page's scripts that is in use after a collection."""
    await devtools.send("HeapProfiler.collectGarbage")
    used: dict[str, Any] = await devtools.send("Runtime.getHeapUsage")
    return float(used["usedSize"]) / 1e6


async def worked(devtools: CDPSession) -> float:
    """How many seconds the page's main thread has worked so far."""
    found: dict[str, Any] = await devtools.send("Performance.getMetrics")
    return next(float(each["value"]) for each in found["metrics"] if each["name"] == "TaskDuration")


async def watch(page: Page, seconds: float) -> bool:
    """Watch the page for so long, in ten parts. Returns whether it kept what is promised."""
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("Performance.enable", {"timeDomain": "threadTicks"})  # the time of the thread, not of the clock
    await page.evaluate(WATCH_FRAMES)
    frames: list[float] = []
    heaps: list[float] = []
    before_s = await worked(devtools)
    for part in range(1, 11):
        await asyncio.sleep(seconds / 10)
        times = await page.evaluate(TAKE_FRAMES)
        frames += times[1:]  # the first one began before the last part ended, with a collection
        heaps.append(await heap_mb(devtools))
        elements = await page.evaluate("() => document.querySelectorAll('*').length")
        worked_s, before_s = await worked(devtools) - before_s, await worked(devtools)
        where = await page.get_by_label("Moment of the replay").get_attribute("aria-valuetext")
        print(
            f"{part * seconds / 10:6.0f} s  {where}  frames {len(times)}, p50 {percentile(times, 50):.0f} ms, "
            f"p99 {percentile(times, 99):.0f} ms, longest {max(times):.0f} ms  heap {heaps[-1]:.1f} MB  "
            f"elements {elements}  at work {worked_s / seconds * 10:.0%}",
            flush=True,
        )
    p99_ms, growth = percentile(frames, 99), heaps[-1] / heaps[0]
    print(f"p99 of {len(frames)} frames: {p99_ms:.0f} ms (below {P99_MS:.0f})")
    print(f"heap: {growth:.2f} × (at most {HEAP_GROWTH})")
    return p99_ms < P99_MS and growth <= HEAP_GROWTH


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1] if len(values) > 1 else values[0]


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    seconds = parser.parse_args().seconds
    stopped = asyncio.Event()
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/dragoman.db"
        config = Config(port=0, store=store, shutdown_grace_s=1, cancel_grace_s=0.2)
        async with (
            chromium(Path(folder)) as browser,
            serving(config, [flooding_agent(stopped)]) as url,
            aiohttp.ClientSession() as http,
        ):
            site = Site(url, read_token(store, 0) or "", http, stopped)
            task = await site.send("flood", wait=False)
            async with console(browser, url, site.token) as (page, _):
                await open_task(page, site, task)
                await replay(page)
                kept = await watch(page, seconds)
            stopped.set()
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
