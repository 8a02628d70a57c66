"""Takes the pictures of the command line for the documentation: real commands, in a terminal, at the example agents.

Run by `make pictures`, after those of the console. A terminal is emulated, and the browser draws its screen.
"""

import asyncio
import fcntl
import html
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import pyte
from playwright.async_api import Browser

from dragoman.cli.loader import load_served
from dragoman.config import Config
from dragoman.server import serving
from tests.console.browser import chromium

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 100
DEADLINE_S = 60.0

FOREGROUND, BACKGROUND = "#d7dae0", "#1b1f27"
COLORS = {
    "black": "#5c6370", "red": "#f07178", "green": "#a5d76e", "brown": "#ffcb6b", "blue": "#82aaff",
    "magenta": "#c792ea", "cyan": "#89ddff", "white": "#ffffff", "default": FOREGROUND,
}  # fmt: skip

PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; }}
pre {{ background: {background}; color: {foreground}; display: inline-block; margin: 0; padding: 18px 22px;
      font: 15px/1.35 "DejaVu Sans Mono", monospace; }}
</style><pre>{text}</pre>"""


@dataclass(frozen=True)
class Take:
    """A picture: its name, its command, how many lines it has, and what to type once a text is on the screen.

    The picture is taken when `last` is on the screen after all was typed.
    """

    name: str
    command: tuple[str, ...]
    lines: int
    last: str
    typed: tuple[tuple[str, str], ...] = ()


def takes(url: str) -> list[Take]:
    """The pictures, of a server at `url`."""
    host = url.removeprefix("http://")
    return [
        Take(
            "terminal-chat",
            ("chat", "-a", f"{host}/agents/trip"),
            40,
            "Booked",
            (("›", "Book me a trip\r"), ("From where?", "Lyon\r"), ("To where?", "Oslo\r")),
        ),
        Take("terminal-doctor", ("doctor", url, "--active"), 40, "subscribe-ended"),
        Take("terminal-stats", ("admin", "stats", "--server", url), 40, "writes"),
    ]


def screen_of(take: Take, environment: dict[str, str]) -> pyte.Screen:
    """Run the command in a terminal, and type what is to be typed. Returns the screen of that moment."""
    screen = pyte.Screen(COLUMNS, take.lines)
    stream = pyte.ByteStream(screen)
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", take.lines, COLUMNS, 0, 0))
    command = [str(Path(sys.executable).parent / "dragoman"), *take.command]
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True
    )
    os.close(follower)
    waiting = [*take.typed, (take.last, "")]
    deadline = time.monotonic() + DEADLINE_S
    try:
        while waiting:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{take.name}: {waiting[0][0]!r} did not appear on\n" + "\n".join(screen.display))
            if select.select([leader], [], [], 0.3)[0]:
                try:
                    stream.feed(os.read(leader, 65_536))
                    continue
                except OSError:  # the command has ended
                    break
            if any(waiting[0][0] in line for line in screen.display):
                os.write(leader, waiting.pop(0)[1].encode())
    finally:
        process.terminate()
        process.wait()
        os.close(leader)
    return screen


def drawn(screen: pyte.Screen, command: tuple[str, ...]) -> str:
    """The page with what is on the screen, below the command that was typed."""
    lines = [f'<span style="color: {COLORS["green"]}">$</span> dragoman {html.escape(" ".join(command))}']
    for number in range(screen.lines):
        row = screen.buffer[number]
        cells = []
        for column in range(screen.columns):
            cell = row[column]
            style = f"color: {COLORS.get(cell.fg, '#' + cell.fg if len(cell.fg) == 6 else FOREGROUND)}"
            style += "; font-weight: bold" if cell.bold else ""
            cells.append((style, cell.data))
        text, at = "", 0
        while at < len(cells):
            end = at
            while end < len(cells) and cells[end][0] == cells[at][0]:
                end += 1
            text += f'<span style="{cells[at][0]}">{html.escape("".join(data for _, data in cells[at:end]))}</span>'
            at = end
        lines.append(text if "".join(data for _, data in cells).strip() else "")
    body = "\n".join(lines).rstrip()
    return PAGE.format(background=BACKGROUND, foreground=FOREGROUND, text=body)


async def take_picture(browser: Browser, take: Take, environment: dict[str, str]) -> None:
    """Run the command and keep the picture."""
    screen = await asyncio.to_thread(screen_of, take, environment)
    page = await browser.new_page(viewport={"width": 1000, "height": 900})
    await page.set_content(drawn(screen, take.command))
    await page.locator("pre").screenshot(path=PICTURES / f"{take.name}.png")
    await page.close()
    print(PICTURES.relative_to(ROOT) / f"{take.name}.png")


async def main() -> int:
    """Take all pictures."""
    agents = load_served((), ["examples/agents.py"], None).agents
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/dragoman.db"
        config = Config(port=0, store=store, shutdown_grace_s=0.5, cancel_grace_s=0.5)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "A2ACLI_"))}
        environment = {
            **kept,
            "HOME": folder,
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
            "DRAGOMAN_STORE": store,
        }
        async with serving(config, agents) as url, chromium(Path(folder)) as browser:
            for take in takes(url):
                await take_picture(browser, take, environment)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
