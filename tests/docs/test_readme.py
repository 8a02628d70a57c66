"""README.md and docs/getting-started.md show what happens: commands, answers, agents, official clients.

Every `curl` is sent as the HTTP request that it is, in the order of the text. Port 7870 in the text is a server with
the example agents, 7871 one with the agent of the page, started by the command of the page.
"""

import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.processes import ENDS_WITH_US

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
MARKDOWN = sorted(str(page.relative_to(ROOT)) for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))
READ = sorted(
    str(page.relative_to(ROOT))
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"))
    if "node_modules" not in page.parts
)
"""The pages for people who use the package."""

PAGES = ("README.md", "docs/getting-started.md")

TEXTS = {
    "README.md": [],
    "docs/getting-started.md": ["Booked: from Lyon to Oslo", "It will be sunny in Lyon. Take a hat."],
}
"""The results that the requests of a page lead to."""

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CHANGING = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r'"durationMs": ?\d+'), '"durationMs":0'),
    (re.compile(r"reference [0-9a-f]{12}"), "reference ID"),
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str


def blocks(page: str) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]


def commands(block: Block) -> list[list[str]]:
    """The words of each command of a shell block."""
    text = block.text.replace("\\\n", " ")
    words: list[list[str]] = []
    pending = ""
    for line in text.splitlines():
        pending = f"{pending}\n{line}" if pending else line
        try:
            split = shlex.split(pending, comments=True)
        except ValueError:  # a quote that the next line closes
            continue
        pending = ""
        if split:
            words.append(split)
    assert not pending, f"no command: {pending!r}"
    return words


def steady(text: str) -> str:
    """`text` with what differs from run to run made equal."""
    for pattern, word in CHANGING:
        text = pattern.sub(word, text)
    return text


@contextmanager
def serving(*words: str, folder: Path) -> Iterator[str]:
    """`dragoman serve …` on a free port; gives its base URL. It must end cleanly."""
    command = [*ENDS_WITH_US, str(Path(sys.executable).parent / "dragoman"), *words, "--port", "0"]
    errors = folder / "stderr"
    with errors.open("wb") as stderr:
        server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=stderr)
    assert server.stdout is not None
    try:
        banner, deadline = b"", time.monotonic() + DEADLINE_S
        while b"Ctrl-C" not in banner:
            ready, _, _ = select.select([server.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(server.stdout.fileno(), 65_536) if ready else b""
            assert chunk, f"the server said only {banner!r} and {errors.read_text()!r}"
            banner += chunk
        (port,) = re.findall(rb"listens on http://127\.0\.0\.1:(\d+)/", banner)
        yield f"http://127.0.0.1:{int(port)}"
        server.terminate()
        assert server.wait(DEADLINE_S) == 0, errors.read_text()
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
        server.stdout.close()


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server of `make serve`."""
    folder = tmp_path_factory.mktemp("examples")
    with serving("serve", str(ROOT / "examples" / "agents.py"), "--store", "memory:", folder=folder) as url:
        yield url


@dataclass
class Walk:
    """A reader who follows a page: the servers by their port in the text, and the last answer."""

    servers: dict[str, str]
    task_id: str = ""
    said: list[tuple[int, str]] = field(default_factory=list)

    def placed(self, text: str) -> str:
        """The text with this run's servers and ids."""
        for port, url in self.servers.items():
            text = text.replace(f"http://127.0.0.1:{port}", url).replace(f"localhost:{port}", url)
        return text.replace("TASK_ID", self.task_id)

    def texts(self) -> list[str]:
        """The artifacts in the tasks that the page's unary requests were answered with."""
        answers = [json.loads(body) for _, body in self.said if body.startswith("{")]
        tasks = (answer.get("task") or answer.get("result") for answer in answers)
        artifacts = (artifact for task in tasks if task for artifact in task.get("artifacts", ()))
        return ["".join(part["text"] for part in artifact["parts"]) for artifact in artifacts]

    def curl(self, words: list[str]) -> str:
        """The body that answers a curl command."""
        headers, data, method, url = {}, None, None, ""
        rest = iter(map(self.placed, words[1:]))
        for word in rest:
            match word:
                case "-H":
                    name, _, value = next(rest).partition(":")
                    headers[name.strip()] = value.strip()
                case "-d":
                    data = next(rest).encode()
                case "-X":
                    method = next(rest)
                case "-N" | "-s" | "-i":
                    continue
                case _:
                    assert word.startswith("http://127.0.0.1:"), f"curl {word}: teach the test what that means"
                    url = word
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                status, body = int(answer.status), str(answer.read(), "utf-8")
        except urllib.error.HTTPError as error:
            status, body = error.code, str(error.read(), "utf-8")
        self.said.append((status, body))
        ids = re.findall(r'"(?:task|result)":\s*{[^{}]*?"id":\s*"([^"]+)"', body)
        self.task_id = ids[0] if ids else self.task_id
        return body

    def send(self, words: list[str]) -> str:
        """What `dragoman send` prints, whose task is completed."""
        command = [str(Path(sys.executable).parent / words[0]), *map(self.placed, words[1:])]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        assert "State: TASK_STATE_COMPLETED" in ran.stdout
        return "\n".join(line.rstrip() for line in ran.stdout.splitlines())


def same_json(shown: str, answered: str) -> None:
    assert json.loads(steady(shown)) == json.loads(steady(answered))


def contains(shown: str, answered: str) -> None:
    """Every line shown, but `...`, is a line of the answer, in that order."""
    lines = iter(steady(answered).splitlines())
    for line in steady(shown).splitlines():
        if line.strip() != "..." and line:
            assert any(line == other for other in lines), f"{line!r} is not in the answer, or not there:\n{answered}"


class Shown:
    """The agent that a page shows, served by the command that the page gives; each further time after a stop."""

    def __init__(self, page: str, folder: Path) -> None:
        (self.agent,) = (each.text for each in blocks(page) if "from dragoman import" in each.text)
        self.folder = folder
        self.stack = ExitStack()

    def serve(self, words: list[str]) -> str:
        self.stack.close()
        (self.folder / words[2]).write_text(self.agent, encoding="utf-8")
        return self.stack.enter_context(serving(*words[1:], folder=self.folder))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_what_the_page_shows_is_what_happens(page: str, examples: str, tmp_path: Path) -> None:
    walk, shown, answer = Walk({"7870": examples}), Shown(page, tmp_path), ""
    with shown.stack:
        for block in blocks(page):
            if block.language == "sh":
                for words in commands(block):
                    if words[0] == "curl":
                        answer = walk.curl(words)
                    elif words[:2] == ["dragoman", "send"]:
                        answer = walk.send(words)
                    elif words[0].endswith("dragoman") and "7871" in words:
                        walk.servers["7871"] = shown.serve(words)
            elif block.language == "json":
                same_json(block.text, answer)
            elif block.language == "python" and "dragoman.testing" in block.text:
                subprocess.run([sys.executable, "-c", block.text], cwd=tmp_path, check=True, timeout=DEADLINE_S)
            elif not block.language:
                contains(block.text, answer)
        assert all(status == 200 for status, _ in walk.said), walk.said
        assert walk.texts() == TEXTS[page]
        assert "7871" in walk.servers


@pytest.mark.parametrize("name", MARKDOWN)
def test_every_make_target_that_is_named_is_there(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets


CLIENTS = "docs/compatibility.md"
COUNTED = "3\n2\n1"


@pytest.mark.peer
@pytest.mark.slow
def test_the_client_with_the_python_sdk_counts_down(examples: str, tmp_path: Path) -> None:
    python = Path(os.environ.get("DRAGOMAN_PEER_SDK1", ROOT / ".venv-sdk1" / "bin" / "python"))
    assert python.exists(), f"{python} is missing: run `make peers`"
    (client,) = (each.text for each in blocks(CLIENTS) if "from a2a.client" in each.text)
    script = tmp_path / "client.py"
    script.write_text(Walk({"7870": examples}).placed(client), encoding="utf-8")
    ran = subprocess.run([python, script], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ran.returncode == 0, ran.stderr
    chunks = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith("artifact_update ")]
    assert "\n".join(chunks) == COUNTED


@pytest.mark.peer
@pytest.mark.slow
def test_the_client_with_the_javascript_sdk_counts_down(examples: str, tmp_path: Path) -> None:
    node, sdk = shutil.which("node"), ROOT / "tests" / "peers" / "js" / "node_modules" / "a2a-js-1"
    assert node is not None, "node was not found: install Node 20 or newer"
    assert sdk.exists(), f"{sdk} is missing: run `make peers`"
    (client,) = (each.text for each in blocks(CLIENTS) if each.language == "js")
    script = tmp_path / "countdown.mjs"
    script.write_text(Walk({"7870": examples}).placed(client), encoding="utf-8")
    (tmp_path / "node_modules" / "@a2a-js").mkdir(parents=True)
    (tmp_path / "node_modules" / "@a2a-js" / "sdk").symlink_to(sdk, target_is_directory=True)
    ran = subprocess.run([node, script], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == COUNTED


OF_A_CLONE = re.compile(r"^make [a-z-]+|\.venv/bin/|`make serve`", re.MULTILINE)
"""Commands that only a clone of the repository has."""

OF_A_FOLDER = re.compile(r"pip install (?!-e )[^`\n]*(?<= )['\"]?(?:\.(?:\[|['\"`\s]|$)|PATH\b)", re.MULTILINE)
"""An installation from the repository itself, which somebody with a wheel lacks."""


def sections(page: str) -> list[str]:
    """The text of a page from heading to heading; headings are not looked for in blocks."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fenced = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    masked = fenced.sub(lambda block: block[0].replace("\n#", "\n "), text)
    return re.split(r"^#+ ", masked, flags=re.MULTILINE)


@pytest.mark.parametrize("name", [name for name in READ if name != "docs/README.md"])
def test_a_page_works_with_a_wheel(name: str) -> None:
    """A section with a command of a clone says so, and nothing is installed from a folder of the repository."""
    for section in sections(name):
        assert not OF_A_CLONE.search(section) or "clone" in section, section[:200]
        assert not OF_A_FOLDER.search(section), section[:200]
