"""Records `dragoman demo kill` in a terminal for the README: docs/pictures/demo-kill.svg, which plays by itself.

Run by `make recording`, with the Python of an environment that has the official SDK beside Dragoman. The terminal is
real; the SVG shows what was on its screen, twice as fast.
"""

import fcntl
import html
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pyte

from scripts.terminal_pictures import BACKGROUND, COLORS, FOREGROUND

ROOT = Path(__file__).parent.parent
TO = ROOT / "docs" / "pictures" / "demo-kill.svg"
COLUMNS, LINES = 108, 30
SPEED = 2.0
LAST_S = 8.0
"""How long the end stays."""

FRAME_S = 0.1
CELL_W, CELL_H, PAD = 8.4, 18, 14

BLANK = "\u00a0"
"""SVG draws several ordinary blanks as one."""

Row = tuple[tuple[str, bool, str], ...]
"""A line of the screen: runs of a colour, whether they are bold, and their text."""


def record(command: Sequence[str]) -> list[tuple[float, list[Row]]]:
    """Run the command in a terminal. Returns the screens, each with the seconds from which on it was there."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True
    )
    os.close(follower)
    frames: list[tuple[float, list[Row]]] = []
    began, due = time.monotonic(), 0.0
    while True:
        open_yet = True
        if select.select([leader], [], [], FRAME_S)[0]:
            try:
                stream.feed(os.read(leader, 65_536))
            except OSError:  # the command has ended
                open_yet = False
        now = time.monotonic() - began
        if now >= due or not open_yet:
            rows = [row_of(screen, number) for number in range(LINES)]
            if not frames or rows != frames[-1][1]:
                frames.append((now, rows))
            due = now + FRAME_S
        if not open_yet:
            break
    os.close(leader)
    if process.wait() != 0:
        raise SystemExit(f"the demo ended with {process.returncode}")
    return frames


def row_of(screen: pyte.Screen, number: int) -> Row:
    """A line of the screen."""
    runs: list[tuple[str, bool, str]] = []
    for column in range(screen.columns):
        cell = screen.buffer[number][column]
        color = COLORS.get(cell.fg, f"#{cell.fg}" if len(cell.fg) == 6 else FOREGROUND)
        if runs and runs[-1][:2] == (color, cell.bold):
            runs[-1] = (color, cell.bold, runs[-1][2] + cell.data)
        else:
            runs.append((color, cell.bold, cell.data))
    while runs and not runs[-1][2].strip():
        runs.pop()
    return tuple(runs)


def drawn(frames: Sequence[tuple[float, list[Row]]], command: str) -> str:
    """The SVG: each line is there from the moment it was on the screen until another one was."""
    whole = frames[-1][0] / SPEED + LAST_S
    texts = [text_of(((COLORS["green"], False, "$ "), (FOREGROUND, True, command)), 0, "")]
    for number in range(LINES):
        begun, row = 0.0, frames[0][1][number]
        for at, rows in [*frames[1:], (whole * SPEED, [])]:
            if rows and rows[number] == row:
                continue
            if row:
                texts.append(text_of(row, number + 2, shown(begun / SPEED / whole, at / SPEED / whole, whole)))
            begun, row = at, rows[number] if rows else ()
    width, height = round(COLUMNS * CELL_W + 2 * PAD), round((LINES + 2) * CELL_H + 2 * PAD)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>\n'
        f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">\n'
        + "\n".join(texts)
        + "\n</g>\n</svg>\n"
    )


def shown(begin: float, end: float, whole_s: float) -> str:
    """The animation of what is there from `begin` to `end`, shares of the whole."""
    if begin <= 0 and end >= 1:
        return ""
    times, values = ["0", f"{begin:.4f}", f"{min(end, 1):.4f}"], ["hidden", "visible", "hidden"]
    if begin <= 0:
        times, values = times[1:], values[1:]
    if end >= 1:
        times, values = times[:-1], values[:-1]
    return (
        f'<animate attributeName="visibility" values="{";".join(values)}" keyTimes="{";".join(times)}" '
        f'dur="{whole_s:.1f}s" calcMode="discrete" repeatCount="indefinite"/>'
    )


def text_of(row: Row, number: int, animation: str) -> str:
    """A line, each run of which keeps the width of its cells."""
    spans, column = [], 0
    for color, bold, text in row:
        weight = ' font-weight="bold"' if bold else ""
        place = f'x="{PAD + column * CELL_W:.1f}" textLength="{len(text) * CELL_W:.1f}"'
        spans.append(f'<tspan {place} fill="{color}"{weight}>{html.escape(text).replace(" ", BLANK)}</tspan>')
        column += len(text)
    hidden = (
        ' visibility="hidden"' if animation.startswith('<animate attributeName="visibility" values="hidden') else ""
    )
    return f'<text y="{PAD + (number + 1) * CELL_H - 5}"{hidden}>{"".join(spans)}{animation}</text>'


def main() -> None:
    """Record, and write the picture."""
    dragoman = sys.argv[1] if len(sys.argv) > 1 else "dragoman"
    TO.write_text(drawn(record((dragoman, "demo", "kill")), "dragoman demo kill"), "utf-8")
    print(TO.relative_to(ROOT))


if __name__ == "__main__":
    main()
