"""Each piece of client code in docs/grpc.md runs, and prints what stands below it."""

import ast
import asyncio
import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout

import pytest

from dragoman import client
from tests.docs.test_readme import ROOT, serving
from tests.ports import kept_port

PAGE = (ROOT / "docs" / "grpc.md").read_text(encoding="utf-8")
PIECES = re.findall(r"^```python\n(async with connect.*?)^```\n\n```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """The server of `make serve`: where HTTP is, and the port of gRPC."""
    port = kept_port()
    command = ("serve", str(ROOT / "examples" / "agents.py"), "--store", "memory:", "--grpc-port", str(port))
    with serving(*command, folder=tmp_path_factory.mktemp("examples")) as url:
        yield url, port


def test_the_page_shows_how_an_agent_is_called() -> None:
    assert len(PIECES) == 2


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: str(piece[0].splitlines()[0]))
def test_the_code_prints_what_the_page_says(piece: tuple[str, str], ports: tuple[str, int]) -> None:
    url, port = ports
    code, printed = (
        text.replace("http://127.0.0.1:7870", url).replace("127.0.0.1:50051", f"127.0.0.1:{port}") for text in piece
    )
    names = {name: getattr(client, name) for name in client.__all__}
    compiled = compile(code, "docs/grpc.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with redirect_stdout(io.StringIO()) as out:
        asyncio.run(eval(compiled, names))
    assert out.getvalue() == printed
