"""`dragoman admin stats`: once, in a pipe, and on a terminal."""

import asyncio
import json
import re
import signal
from pathlib import Path

import pytest

from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store
from dragoman.store.state import StatePut, StateScope, StateWrite
from tests.cli.a2a.command import Shell
from tests.cli.a2a.terminal import at_terminal
from tests.cli.admin.site import DEADLINE_S, dragoman, site

WATCH = ("admin", "stats", "--watch", "--interval", "0.2")


def lines_of(shell: Shell, *more: str) -> tuple[list[str], int]:
    """The first three lines of a watch in a pipe, and its exit status after Ctrl-C."""
    process = shell.start(*WATCH, *more)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
        return lines, process.returncode
    finally:
        process.kill()


async def test_once_it_shows_the_numbers(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        shown = await here.admin("stats")
        assert shown.status == 0, shown.err
        rows = [row.split("  ") for row in shown.out.splitlines()]
        told = {row[0]: row[-1].strip() for row in rows}
        assert (told["tasks waiting"], told["tokens today"], told["store"]) == ("2", "-", "can be written")
        numbers = json.loads((await here.admin("stats", "-o", "json")).out)
        assert numbers["store_bytes"] > 0
        assert (numbers["streams"], numbers["input_tokens_today"]) == (0, None)
        assert "state memory" not in told
        store = open_store(here.store, SystemClock())
        await store.open(None)
        puts = StatePut("a", b"x" * 1_250_000), StatePut("b", b"")
        await store.state.write_entries(StateWrite(scope=StateScope("a", "ann", "", "memory"), puts=puts))
        await store.close()
        shown = await here.admin("stats")
        assert re.search("state memory +2 entries in 1 scopes, 1.3 MB", shown.out) is not None, shown.out


async def test_in_a_pipe_each_time_is_a_line_without_control_sequences(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        shell = Shell(tmp_path)
        shell.environment["DRAGOMAN_STORE"] = here.store
        lines, status = await asyncio.to_thread(lines_of, shell)
        assert status == 0
        for line in lines:
            assert "tasks waiting 2" in line
            assert "\x1b" not in line
        assert "tasks ended 0.0/s" in lines[1]
        lines, status = await asyncio.to_thread(lines_of, shell, "-o", "json")
        assert (status, [json.loads(line)["tasks"]["input-required"] for line in lines]) == (0, [2, 2, 2])


async def test_on_a_terminal_it_refreshes_in_place_and_leaves_the_terminal_clean(tmp_path: Path) -> None:
    async with site(tmp_path) as here:

        def watch() -> tuple[str, int]:
            shell = Shell(tmp_path)
            shell.environment |= {"DRAGOMAN_STORE": here.store, "COLUMNS": "80", "LINES": "24"}
            with at_terminal(shell, *WATCH) as terminal:
                first = terminal.until("2 waiting")
                terminal.until("can be written", after=terminal.until(", 0.0/s", after=first))
                terminal.type("\x03")
                status = terminal.end()
                return terminal.screen, status

        screen, status = await asyncio.to_thread(watch)
        assert status == 0
        assert "\x1b[?25l" in screen, "the cursor is hidden meanwhile"
        assert screen.rfind("\x1b[?25h") > screen.rfind("\x1b[?25l")
        assert "..." not in screen, "every number is on the screen"
        assert "Traceback" not in screen


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--interval", "2"), "--interval: goes with --watch"),
        (("--watch", "--interval", "0"), "'0': must be a number of seconds from 0.2 to 3600"),
        (("--watch", "--interval", "soon"), "'soon': must be a number of seconds"),
        (("--watch", "--interval", "nan"), "must be a number of seconds"),
    ],
)
async def test_wrong_input_says_how_to_put_it_right(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ran = await dragoman(tmp_path, "admin", "stats", *arguments)
    assert (ran.status, words in ran.err) == (2, True), ran.err
    assert len(ran.err.splitlines()) == 1
