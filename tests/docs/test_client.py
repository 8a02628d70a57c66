"""Each piece of code in docs/client.md runs, and prints what stands below it."""

import ast
import asyncio
import inspect
import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from urllib.request import urlopen

import pytest

from dragoman import Part, TaskState, client
from dragoman.model.errors import TaskNotFound
from tests.docs.test_readme import ROOT, serving

PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
HOOK, NOBODYS = "https://example.com/hook", "https://127.0.0.1:9/hook"
"""The page's webhook, and one at a port where nobody listens (RFC 863)."""
PIECES = re.findall(r"^```python\n(.*?)^```\n\n```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server of `make serve`."""
    folder = tmp_path_factory.mktemp("examples")
    command = ("serve", str(ROOT / "examples" / "agents.py"), "--store", "memory:", "--push-allowed-hosts", "127.0.0.1")
    with serving(*command, folder=folder) as url:
        yield url


def test_all_code_of_the_page_is_run() -> None:
    assert len(PIECES) == PAGE.count("```python\n")


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: str(piece[0].splitlines()[0]))
def test_a_task_takes_five_lines(piece: tuple[str, str]) -> None:
    lines = [line for line in piece[0].splitlines() if line and not line.startswith(("import ", "from "))]
    assert len(lines) <= 5


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: str(piece[0].splitlines()[0]))
def test_the_code_prints_what_the_page_says(piece: tuple[str, str], url: str) -> None:
    code, printed = piece
    names = {name: getattr(client, name) for name in client.__all__}
    names |= {"Part": Part, "TaskState": TaskState, "TaskNotFound": TaskNotFound, "json": json, "urlopen": urlopen}
    placed = code.replace("http://127.0.0.1:7870", url).replace(HOOK, NOBODYS)
    compiled = compile(placed, "docs/client.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with redirect_stdout(io.StringIO()) as out:
        if compiled.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(compiled, names))
        else:
            exec(compiled, names)
    assert out.getvalue().replace(NOBODYS, HOOK) == printed
