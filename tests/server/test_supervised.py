"""A process that a supervisor runs: signals reach the one that is there, or the one that is being started."""

import asyncio
import os
import sys
from collections.abc import Sequence

import pytest

from dragoman.server.supervision.supervised import Supervised, SupervisedProcess

ENDS = "import os, sys; os.write(int(sys.argv[1]), b'here\\0')"
"""A server that ends as soon as it listens."""

RELOADS = """
import os, signal, sys
signal.signal(signal.SIGHUP, lambda *_: os._exit(7))
os.write(int(sys.argv[1]), b"here\\0")
signal.pause()
"""
"""A server that ends with code 7 when it is to reload."""


def running(program: str, place: Supervised) -> Sequence[str]:
    return sys.executable, "-c", program, str(place.descriptor)


async def test_a_reload_that_comes_while_a_process_is_started_again_is_kept_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have read its configuration before it was known here as a process."""
    supervised = SupervisedProcess(1)
    assert await supervised.run(lambda place: running(ENDS, place), lambda: None) == 0
    spawn, spawned = asyncio.create_subprocess_exec, asyncio.Event()

    async def spawn_slowly(*command: str, **how: object) -> asyncio.subprocess.Process:
        process = await spawn(*command, **how)  # type: ignore[arg-type]
        spawned.set()
        for _ in range(3):
            await asyncio.sleep(0)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn_slowly)
    again = asyncio.create_task(supervised.run(lambda place: running(RELOADS, place), lambda: None))
    await spawned.wait()
    supervised.request_reload()
    try:
        assert await asyncio.wait_for(again, 60) == 7
    finally:
        if supervised.process is not None and supervised.process.returncode is None:
            os.kill(supervised.process.pid, 9)
