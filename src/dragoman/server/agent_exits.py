"""Keeps a process alive when an agent means to end it: `sys.exit()` in an asyncio task that the agent started.

Invariant: only the process's own work, or a signal, ends the process. asyncio takes SystemExit and KeyboardInterrupt
out of whatever task raised them and out of the loop, which can then go on where it was.
"""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from typing import TypeVar

log = logging.getLogger("dragoman.agents")

T = TypeVar("T")


def run_to_end(runner: asyncio.Runner, main: Coroutine[None, None, T]) -> T:
    """Run `main` on the loop of the runner until it ends, and return its result.

    Raises KeyboardInterrupt for Ctrl-C as long as `main` has not taken over that signal.
    """
    loop = runner.get_loop()
    task = loop.create_task(main)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as ended:
            pressed = isinstance(ended, KeyboardInterrupt)
            if task.done() or (pressed and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
                raise
            log.error(
                "%s in an asyncio task that an agent started: the agents share this process, which goes on",
                type(ended).__name__,
                exc_info=ended,
            )
