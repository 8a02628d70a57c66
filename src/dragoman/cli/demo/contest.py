"""Runs the columns at the same time, and counts what the kill has cost each."""

import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from dragoman.cli.demo.blocked import BlockedNetwork, is_secret
from dragoman.cli.demo.column import COMPLETED, ENDED, DemoColumn, DemoPlan
from dragoman.cli.demo.counted import Counted
from dragoman.cli.demo.dragoman_column import SETTINGS, DragomanColumn
from dragoman.cli.demo.process import ServerFailed
from dragoman.cli.demo.screen import Screen
from dragoman.cli.demo.sdk_column import SdkColumn
from dragoman.cli.demo.steps import STEPS
from dragoman.cli.demo.webhooks import WebhookReceiver
from dragoman.cli.tables import printable
from dragoman.config.settings import ENV_PREFIX
from dragoman.engine.ends import INTERRUPTED_TEXT

ASKING = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")

PATIENCE_S = 10.0
"""How long a column may still take once the first one has come to its end, and its own server runs again."""

LATE_S = 20.0
"""How much later than ours another server may come to its kill and its new start."""

LIBPQ = "PG"
"""The beginning of the variables by which PostgreSQL's clients find their server and password."""

WEBHOOKS_S = 10.0
"""How long is waited for reports that are under way."""


class DemoRefused(Exception):
    """The user's agent cannot be shown. The message says why."""


class Contest:
    """One run of the demo. `screen` shows it."""

    def __init__(self, plan: DemoPlan, *, beside_sdk: bool, screen: Screen) -> None:
        self._plan = plan
        self._beside_sdk = beside_sdk
        self._screen = screen

    async def run(self) -> Sequence[Counted]:
        """Run all columns, ours first. Raises ServerFailed if ours fails, DemoRefused if the agent cannot be shown."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dragoman-demo-")))
            webhooks = stack.enter_context(WebhookReceiver())
            network = await stack.enter_async_context(BlockedNetwork())
            environment = servers_environment(self._plan, network)
            (folder / SETTINGS).touch()
            ours = DragomanColumn(self._plan, folder, environment)
            columns: list[DemoColumn] = [ours]
            if self._beside_sdk:
                columns.append(SdkColumn(self._plan, folder, environment))
            for column in columns:
                stack.push_async_callback(column.stop)
            columns = await self._start(columns)
            with self._screen.showing(columns):
                await run_columns(columns, webhooks)
            counted = [_count(column, webhooks) for column in columns]
            if network.wanted and ours.state != COMPLETED:
                hosts = ", ".join(sorted(network.wanted))
                raise DemoRefused(
                    f"{self._plan.agent} needs a network: it called {hosts}, and the demo runs without one"
                )
            if self._plan.agent:
                check_shown(self._plan.agent, ours, beside=len(columns) > 1)
            if not ours.killed:
                raise DemoRefused(f"{self._plan.agent} ended before the kill: give a smaller --after, or a longer task")
            return counted

    async def _start(self, columns: Sequence[DemoColumn]) -> list[DemoColumn]:
        """Start the servers of all columns. Returns the columns whose servers run; ours is one, or it raises."""
        started: list[DemoColumn] = []
        errors = await asyncio.gather(*(column.start() for column in columns), return_exceptions=True)
        for column, error in zip(columns, errors, strict=True):
            if error is None:
                started.append(column)
            elif isinstance(error, ServerFailed) and started:
                await column.stop()
                self._screen.warn(f"{column.title} is left out, for its server does not start: {error}")
            else:
                raise error
        return started


async def run_columns(columns: Sequence[DemoColumn], webhooks: WebhookReceiver) -> None:
    """Run ours, the first, to its end, and give the others as long, and a little more once they run again.

    They are not waited for if ours cannot be shown: it asks its caller, or ended before the kill.
    """
    runs = [asyncio.create_task(column.run(webhooks.url(column.name))) for column in columns]
    try:
        await runs[0]
        if columns[0].state in ASKING or not columns[0].killed:
            return
        for column, run in zip(columns[1:], runs[1:], strict=True):
            restart = asyncio.create_task(column.back.wait())
            await asyncio.wait((run, restart), timeout=LATE_S, return_when=asyncio.FIRST_COMPLETED)
            restart.cancel()
            await asyncio.wait((run,), timeout=PATIENCE_S)
            if run.done():
                try:
                    await run
                except ServerFailed as error:
                    column.say(f"given up: {error}")
            else:
                column.say(f"given up: nothing came for {PATIENCE_S:.0f} s")
        async with asyncio.timeout(WEBHOOKS_S):
            while _webhooks_missing(columns[0], webhooks):  # noqa: ASYNC110  they come on other threads
                await asyncio.sleep(0.05)
    except TimeoutError:
        pass  # they are counted as missing
    finally:
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)


def check_shown(agent: str, ours: DemoColumn, *, beside: bool) -> None:
    """Refuse an agent whose task did not complete. The message says what helps.

    An executor that runs `beside` in a column of the SDK is shown, although no crash leaves its call to continue.
    """
    if ours.state in ASKING:
        raise DemoRefused(f"{agent} asks its caller, and the demo answers nothing: name an agent that ends by itself")
    if ours.why == INTERRUPTED_TEXT:
        if beside:
            return
        raise DemoRefused(
            f"{agent} does not continue what a crash cut off: an agent in Python does with restartable=True or steps, "
            "an executor of the SDK never does"
        )
    if ours.state in ENDED and ours.state != COMPLETED:
        why = printable(f"{ours.why or ours.state} {ours.last_words}")
        raise DemoRefused(f"{agent} did not complete in the demo, without keys and a network: {why}")


def _webhooks_missing(column: DemoColumn, webhooks: WebhookReceiver) -> int:
    """How many reports a column's server owes: one for each step of the demo's work, and one for the end."""
    expected = {column.state if column.plan.agent and column.state in ENDED else COMPLETED}
    if not column.plan.agent:
        expected |= {f"step {number} of {STEPS}" for number in range(1, STEPS + 1)}
    return len(expected - webhooks.reports(column.name))


def servers_environment(plan: DemoPlan, network: BlockedNetwork) -> Mapping[str, str]:
    """The variables of the servers: no settings of a server of the user's, no network, and no keys for an agent.

    The servers themselves need libpq's variables for a store on PostgreSQL.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(ENV_PREFIX)
        and not (plan.agent and is_secret(name) and not (plan.store and name.startswith(LIBPQ)))
    }
    return kept | network.variables


def _count(column: DemoColumn, webhooks: WebhookReceiver) -> Counted:
    steps, counted = column.steps, not column.plan.agent
    return Counted(
        name=column.name,
        title=column.title,
        state=column.state.removeprefix("TASK_STATE_").lower().replace("_", "-"),
        events_lost=STEPS - len(column.artifacts) if counted else column.lacking,
        steps_done_again=steps.done_again if counted else None,
        steps_begun_again=steps.begun_again if counted else None,
        webhooks_missing=_webhooks_missing(column, webhooks),
        seconds=None if column.took_s is None else round(column.took_s, 1),
    )
