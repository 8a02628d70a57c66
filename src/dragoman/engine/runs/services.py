"""RunServices: what all runs of a process share, with the parts of the engine that begin and serve them.

Invariant: values and named protocols only. Nothing here is about one run.
"""

import asyncio

from msgspec import Struct

from dragoman.engine.bounds import Bounds
from dragoman.engine.effects import Effects
from dragoman.engine.files import Files
from dragoman.engine.runs.history import History
from dragoman.engine.stopping import Stopping
from dragoman.model.ids import Clock
from dragoman.store.state import StateStore


class RunServices(Struct, frozen=True, kw_only=True):
    """The values that all runs of a process share, and what begins and serves them.

    `server` is the name of this server in lineages.

    `effects` get what runs want of the engine: delegations, and their own end when they are past their deadline or were
    suspended for `suspend_max_s`. Once the process is `stopping`, no run stays suspended. A task records at most
    `max_steps` steps and sleeps. A run that sleeps for more than `suspend_after_s` is not kept.
    """

    clock: Clock
    loop: asyncio.AbstractEventLoop
    past: History
    state: StateStore
    files: Files
    bounds: Bounds
    server: str
    effects: Effects
    stopping: Stopping
    suspend_max_s: float
    suspend_after_s: float
    max_steps: int
    retry_s: float
