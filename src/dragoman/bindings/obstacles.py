"""Obstacles: the reasons why a server takes no work.

Invariant: each reason names what has to happen before the server takes work again.
"""

from dragoman.agents.python.threads import Threads
from dragoman.engine.engine import Engine
from dragoman.telemetry.job_effects import JobEffect, refusal
from dragoman.telemetry.job_group import JobFailures


class Obstacles:
    """The reasons why the server of `engine` takes no work; its store is looked at elsewhere (`Health`)."""

    def __init__(self, engine: Engine, threads: Threads, jobs: JobFailures) -> None:
        self._engine = engine
        self._threads = threads
        self._jobs = jobs
        self._stopping = False

    def stop(self) -> None:
        """Note that the server is stopping."""
        self._stopping = True

    def first(self) -> str | None:
        """The reason why the server takes no work, the most lasting one if there are several; None if there is none."""
        threads = self._threads
        if self._stopping:
            return "the server is stopping"
        if self._engine.fenced:
            return "the store has not heard of this replica for too long: it takes no work until the store answers"
        if threads.full:
            return (
                f"all {threads.maximum} threads for agents are taken (threads_max), {threads.left_behind} left behind"
            )
        return refusal(self._jobs, JobEffect.UNREADY)
