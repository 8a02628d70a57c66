"""A reader who does what a page says: runs its commands, and compares what they print with what the page shows.

* A `sh` block is run by bash, with `dragoman` and `python` of this environment; it must succeed.
  Servers and workers (`STAYS`) are left running, each in a terminal of its own as it were.
* A block without a language shows lines of what the command before it printed; `...` stands for lines left out.
* A `text` block shows lines that a server or worker prints, sooner or later.
* A block behind "save this as `FILE`" is written there, before anything is done.
* `TASK_ID` is the task of the last answer. The ports 7870 to 7879 of the text are free ones.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.test_readme import DEADLINE_S, ROOT, Walk, commands, contains, steady
from tests.docs.test_readme import Block as Shell
from tests.ports import kept_port
from tests.processes import ENDS_WITH_US

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORT = re.compile(r"\b787\d\b")
TASK = re.compile(r"^Task: (\S+)$", re.MULTILINE)
SAVED = re.compile(r"save this as `([\w./-]+)`:\n+```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL | re.IGNORECASE)
STAYS = re.compile(r"dragoman (?:serve|worker)\b|workers?\.(?:mjs|sh)\b|receiver\.py\b|-m http\.server\b")
"""Commands that go on until they are stopped."""

READY = re.compile(r"Ctrl-C|Working for|Listening on|Serving HTTP|is connected|works for", re.IGNORECASE)
"""The words of a program that goes on, once it can be used."""


@dataclass
class Reader:
    """A reader of one page, in the folder `at`. `terminals` are the files that collect the output of what goes on."""

    folder: Path
    at: Path
    ports: dict[str, str] = field(default_factory=dict)
    terminals: list[Path] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    printed: str = ""
    walk: Walk = field(default_factory=lambda: Walk({}))

    def follow(self, page: Path) -> None:
        """Do all that `page` says."""
        for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if language == "sh":
                self._run(self._placed(text))
            elif not language:
                contains(text, self.printed)
            elif language == "text":
                self._expect(text)

    def save(self, page: Path) -> None:
        """Write the files that `page` shows."""
        for name, text in SAVED.findall(page.read_text(encoding="utf-8")):
            (self.at / name).parent.mkdir(exist_ok=True)
            (self.at / name).write_text(self._placed(text), encoding="utf-8")

    def stop(self, number: int) -> None:
        """Press Ctrl-C in the terminal of this number, and wait until its program has ended."""
        os.killpg(self.processes[number].pid, signal.SIGINT)
        self.processes[number].wait(DEADLINE_S)

    def _placed(self, text: str) -> str:
        text = PORT.sub(lambda port: self.ports.setdefault(port[0], str(kept_port())), text)
        return text.replace("TASK_ID", self.walk.task_id).replace("data/", f"{self.folder}/")

    def _run(self, command: str) -> None:
        if command.startswith("curl "):
            (words,) = commands(Shell("sh", command))
            self.printed = self.walk.curl(words)
            assert self.walk.said[-1][0] == 200, self.printed
        elif STAYS.search(command):
            self._start(command)
        else:
            ran = subprocess.run(
                ["bash", "-c", command], cwd=self.at, env=self._environment(), capture_output=True, text=True,
                timeout=DEADLINE_S, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            self.printed = ran.stdout
            assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
            if found := TASK.findall(ran.stdout):
                self.walk.task_id = found[-1]

    def _start(self, command: str) -> None:
        terminal = self.folder / f"terminal-{len(self.terminals)}"
        with terminal.open("wb") as output:
            process = subprocess.Popen(
                [*ENDS_WITH_US, "bash", "-c", command], cwd=self.at, env=self._environment(), stdout=output,
                stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.terminals.append(terminal)
        self.processes.append(process)
        programs = self._programs(command)
        self._await(
            lambda: sum(map(bool, map(READY.search, terminal.read_text().splitlines()))) >= programs, command, process
        )

    def _programs(self, command: str) -> int:
        """How many programs a command starts. A script of workers starts several, and the slowest one counts."""
        script = self.at / command.split()[0]
        if script.suffix != ".sh" or not script.is_file():
            return 1
        return max(1, script.read_text(encoding="utf-8").count("/dragoman worker "))

    def _expect(self, text: str) -> None:
        lines = steady(text).splitlines()
        self._await(lambda: all(line in self._said() for line in lines), text, None)

    def _said(self) -> list[str]:
        return [line for terminal in self.terminals for line in steady(terminal.read_text()).splitlines()]

    def _await(self, holds: Callable[[], bool], what: str, process: subprocess.Popen[bytes] | None) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            said = "\n".join(self._said())
            assert process is None or process.poll() is None, f"ended: {what}\n{said}"
            assert time.monotonic() < deadline, f"waited in vain: {what}\n{said}"
            time.sleep(0.02)  # a file cannot be waited for; the loop ends with the condition itself

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "A2ACLI_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        return {**kept, "PATH": path, "HOME": str(self.folder), "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}


@contextmanager
def reader(folder: Path, at: Path = ROOT) -> Iterator[Reader]:
    """A reader in the folder `at`, whose own files are in `folder`; all that they started ends with the block."""
    reading = Reader(folder, at)
    try:
        yield reading
    finally:
        for process in reversed(reading.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(DEADLINE_S)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
