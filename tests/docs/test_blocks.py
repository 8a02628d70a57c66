"""Every code block of every page is run by a test, or is checked here as far as it can be without being run.

A page in `RUN` has a test of its own, which runs the languages that are named. Blocks of all others are checked by
language: TOML is read as a server reads it, commands of ours must exist with their options, code must compile and
import names that exist, documents must parse. `SHOWN` names the languages that show something and are not code.
"""

import ast
import importlib
import json
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import yaml

from dragoman.cli import main
from dragoman.config import FaultyEntry, load_parts
from tests.docs.test_readme import ROOT

PAGES = sorted(
    page
    for top in ("*.md", "docs/**/*.md", "examples/**/*.md", "deploy/**/*.md")
    for page in ROOT.glob(top)
    if "node_modules" not in page.parts
)

RUN = {
    "README.md": ("tests/docs/test_readme.py", "sh python"),
    "docs/compatibility.md": ("tests/docs/test_readme.py", "python js"),
    "docs/getting-started.md": ("tests/docs/test_readme.py", "sh json python"),
    "docs/agents.md": ("tests/agents/python/test_docs.py", "python"),
    "docs/client.md": ("tests/docs/test_client.py", "python"),
    "docs/files.md": ("tests/docs/test_files.py", "python"),
    "docs/grpc.md": ("tests/docs/test_grpc.py", "python"),
    "docs/mounting.md": ("tests/docs/test_mounting.py", "python sh"),
    "docs/kaos.md": ("tests/kaos/test_docs.py", "python"),
    "docs/openai.md": ("tests/docs/test_openai.py", "python"),
    "docs/responses.md": ("tests/docs/test_openai.py", "python"),
    "docs/agents/a2a-sdk.md": ("tests/docs/test_guides.py", "python"),
    "docs/agents/mcp.md": ("tests/docs/test_mcp.py", "python"),
    "docs/operations.md": ("tests/docs/test_operations.py", "console"),
    "docs/push.md": ("tests/push/test_docs.py", "python js"),
    "docs/guides/from-a2a-sdk.md": ("tests/docs/test_guides.py", "python"),
    "docs/guides/langgraph-in-production.md": ("tests/frameworks/test_langgraph_guide.py", "python sh"),
    "examples/runner/README.md": ("examples/runner/test_runner.py", "sh"),
    "examples/gateway/README.md": ("examples/gateway/test_gateway.py", "sh"),
    "examples/typescript/README.md": ("examples/typescript/test_typescript.py", "sh"),
} | {
    f"examples/{folder}/README.md": ("tests/docs/test_examples.py", "sh")
    for folder in (
        "approval", "booking", "browser", "charts", "conversion", "hooks", "library", "research", "team",
    )
}  # fmt: skip
"""Pages whose blocks of these languages are run, and the test that runs them."""

SHOWN = {
    "": "output, or what goes over the wire",
    "log": "lines of the log; those of docs/operations.md are compared with what the server writes",
    "mermaid": "a diagram; `make site` draws it",
    "sql": "statements of a database's administrator; tests/store makes users and databases with their own",
    "nginx": "a fragment; the whole configurations in deploy/proxies are run by tests/proxies",
    "text": "output of a program that goes on",
}

COMMAND = re.compile(r"&&|\|\||(?<!\|)\|(?!\|)|;|\$\(|[<>]\s*\S+")
"""The marks between the commands of a line, and where its input and output go."""


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(str(page.relative_to(ROOT)), line, found[2], textwrap.dedent(found[3]))


BLOCKS = [block for page in PAGES for block in blocks(page)]
CHECKED = [
    block
    for block in BLOCKS
    if block.language not in SHOWN and block.language not in RUN.get(block.page, ("", ""))[1].split()
]


def check_json(text: str) -> None:
    """One document, or one on each line."""
    try:
        json.loads(text)
    except json.JSONDecodeError:
        for line in text.splitlines():
            json.loads(line)


def check_yaml(text: str) -> None:
    assert list(yaml.safe_load_all(text))


def check_toml(text: str, folder: Path) -> None:
    """The server reads it; a fragment is read as a part of the first agent."""
    file = folder / "dragoman.toml"
    if re.match(r'(?:#[^\n]*\n)*(?:run|credentials) = "?', text):
        model = 'model = "m"\n' if "openai:" in text and "model =" not in text else ""
        text = f'[[agents]]\nid = "a"\n{model}{text}'
    elif text.startswith("[[agents."):
        text = f'[[agents]]\nid = "a"\nrun = "openai:http://127.0.0.1:1/v1"\nmodel = "m"\n{text}'
    text = re.sub(r"\b(tls_\w+|cwd|card_keys) = .*\n", "", text)  # files of the reader
    file.write_text(text)
    parts = load_parts(file, {}, {})
    faulty = [str(entry.error) for entry in parts.tables if isinstance(entry, FaultyEntry)]
    assert not [*parts.faults, *faulty]


def check_python(text: str) -> None:
    tree = compile(text, "page", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dragoman":
            module = importlib.import_module(str(node.module))
            assert not [alias.name for alias in node.names if not hasattr(module, alias.name)], node.module


def check_js(text: str, folder: Path) -> None:
    node = shutil.which("node")
    assert node is not None, "node was not found: install Node 20 or newer"
    (folder / "page.mjs").write_text(text)
    subprocess.run([node, "--check", "page.mjs"], cwd=folder, check=True, timeout=60)


def check_shell(text: str) -> None:
    """Bash can read it, and what it calls of ours is there."""
    subprocess.run(["bash", "-n", "-c", text], check=True, timeout=60)
    for line in text.replace("\\\n", " ").splitlines():
        check_ours(line)


def check_console(text: str) -> None:
    """A `$` begins a command; the rest is what it prints."""
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    assert commands
    for command in commands:
        check_shell(command)


def check_ours(line: str) -> None:
    """A call of `dragoman` names commands and options that exist, one of `make` a target."""
    for command in COMMAND.split(line):
        words = shlex.split(command, comments=True) if re.search(r"(?:^|[\s/])dragoman(?:\s|$)", command) else []
        while words and (words[0] in ("exec", "sudo") or re.match(r"\w+=", words[0])):
            words = words[1:]
        if words and words[0].rpartition("/")[2] == "dragoman":
            check_words(words[1:])
    for target in re.findall(r"(?:^|&& )make ([a-z-]+)", line):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


def check_words(words: list[str]) -> None:
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        below = command.get_command(context, words[0])
        assert below is not None, f"no such command: {words[0]}"
        command, context, words = below, click.Context(below, parent=context), words[1:]
    options = {
        flag for parameter in command.get_params(context) for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    for word in words:
        flag = word.partition("=")[0]
        assert not re.fullmatch(r"--?[a-z][\w-]*", flag) or flag in options, f"{command.name} has no {flag}"


WHY_NOT_RUN = {
    "bash": "it is a part of a program that the page goes on to explain",
    "console": "it shows a command with an output that is the reader's own: names, ids, sizes",
    "js": "it needs the reader's own page or receiver",
    "json": "it is a document, not a program",
    "python": "it is a part of the reader's own program: `my_framework`, a URL of the reader's",
    "sh": "it acts on the reader's own machine: packages, services, keys, a database, an agent of somebody else",
    "toml": "it names programs, URLs and secrets of the reader's; it is read as the server reads it",
    "yaml": "it is a part of another program's configuration",
}
"""Why the blocks of a language are only checked where no test runs them."""

CHECKS: dict[str, Callable[..., None]] = {
    "bash": check_shell,
    "console": check_console,
    "js": check_js,
    "json": check_json,
    "python": check_python,
    "sh": check_shell,
    "toml": check_toml,
    "yaml": check_yaml,
}


@pytest.mark.parametrize("block", CHECKED, ids=str)
def test_a_block_that_is_not_run_is_sound(block: Block, tmp_path: Path) -> None:
    assert block.language in CHECKS, f"{block.language}: run it, check it, or say in SHOWN why not"
    assert WHY_NOT_RUN[block.language]
    check = CHECKS[block.language]
    if check in (check_toml, check_js):
        check(block.text, tmp_path)
    else:
        check(block.text)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "" and "$ " in block.text], ids=str)
def test_commands_in_blocks_without_a_language_exist(block: Block) -> None:
    for command in re.findall(r"^\$ (.*)$", block.text, re.MULTILINE):
        check_ours(command)


@pytest.mark.parametrize(("page", "test"), [(page, test) for page, (test, _) in RUN.items()])
def test_the_test_of_a_page_is_there(page: str, test: str) -> None:
    """It names the page, or its folder."""
    assert (ROOT / page).is_file()
    text = (ROOT / test).read_text(encoding="utf-8")
    assert Path(page).name in text or Path(page).stem in text or Path(page).parent.name in text


def test_wrong_commands_are_found() -> None:
    for line in ("dragoman serv x", "dragoman serve --prot 1", "dragoman admin tasks list --stat x", "make nothing"):
        with pytest.raises(AssertionError):
            check_ours(line)


SWALLOWED = re.compile(
    r"#[^'\"\n]* (?:cd|curl|docker|dragoman|export|git|kubectl|make|pip|psql|python3?) |^\s*\"?\$\w", re.M
)
"""A command in the comment of the line before it, or a line that was the end of another one."""

MARKER = re.compile(r"```|\S \* (?:\*\*|\[|`[^`]*`:)|[.:] \* [A-Z]|\S #{2,4} [A-Z]|[^|]\S \|(?: |$)")
"""A fence, the mark of a list or a heading, or the edge of a table, behind the beginning of its line."""


def cells(row: str) -> int:
    """How many cells a row of a table has. A vertical line in code, or behind a backslash, is none of its edges."""
    return len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row))) - 1


def swallowed(text: str) -> list[str]:
    """The lines of a page's prose into which another line ran, and the rows with other cells than the head has."""
    found, head = [], 0
    for line in re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL).splitlines():
        if line.startswith("|"):
            head = head or cells(line)
            found += [line] if cells(line) != head or not line.rstrip().endswith("|") else []
            continue
        head = 0
        found += [line] if MARKER.search(re.sub(r"`[^`]+`", "", line)) else []
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_a_page_ran_into_another(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert swallowed(text) == []
    shown = [block for block in blocks(page) if block.language in ("bash", "sh")]
    assert [str(block) for block in shown if SWALLOWED.search(block.text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "curl a # one curl --output b -\n",
        '"$URL"   # the end of another\n',
    ],
)
def test_a_command_that_ran_into_another_is_found(text: str) -> None:
    assert SWALLOWED.search(text)


@pytest.mark.parametrize(
    "text",
    ["First. * Second", "a ```sh", "end ## Next", "| a | b |\n|---|---|\n| 1 |\n", "words | a | b |", "x * **Y** is"],
)
def test_prose_that_ran_into_a_list_a_fence_or_a_table_is_found(text: str) -> None:
    assert swallowed(text)
