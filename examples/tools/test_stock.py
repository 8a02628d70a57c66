"""The clerk, with a model that the test plays: it looks up, asks before it orders, and says what came of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.client import Task, connect, text_of
from dragoman.model.task import TaskState
from examples.tools import stock
from tests.docs.test_readme import serving
from tests.frameworks.completions import Answer, Call, Completions, completions

FOLDER = Path(__file__).parent
ENDPOINT = "http://localhost:11434/v1"


@pytest.fixture(scope="module")
def model() -> Iterator[Completions]:
    with completions() as model:
        yield model


@pytest.fixture(scope="module")
def url(model: Completions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server of the README with the model that the test plays."""
    folder = tmp_path_factory.mktemp("tools")
    settings = (FOLDER / "dragoman.toml").read_text().replace(ENDPOINT, model.url)
    settings = settings.replace("python3 examples/tools/stock.py", f"{sys.executable} {FOLDER / 'stock.py'}")
    (folder / "dragoman.toml").write_text(settings)
    with serving("serve", "--store", "memory:", folder=folder) as url:
        yield url


@pytest.mark.slow
async def test_an_order_waits_for_a_yes(model: Completions, url: str) -> None:
    model.answers += (
        Answer(calls=[Call("count", {"item": "lamp"})]),
        Answer(calls=[Call("order", {"item": "lamp", "amount": 2})]),
        Answer("Two lamps are on their way."),
    )
    async with connect(url) as clerk:
        asked = await clerk.send("Two lamps, please")
        assert isinstance(asked, Task)
        assert asked.status.state is TaskState.INPUT_REQUIRED
        assert "order" in text_of(asked)
        done = await clerk.send("yes", task_id=asked.id)
    assert text_of(done) == "Two lamps are on their way."
    results = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert results == ["12 in stock", "ordered 2 x lamp"]


def test_an_order_that_cannot_be_filled_says_why() -> None:
    assert stock.called("order", {"item": "chair", "amount": 4}) == {
        "content": [{"type": "text", "text": "only 3 in stock"}],
        "isError": True,
    }


def test_an_unknown_method_is_an_error_and_a_notification_has_no_answer() -> None:
    lines = '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n{"jsonrpc": "2.0", "id": 1, "method": "x"}\n'
    ran = subprocess.run(
        [sys.executable, FOLDER / "stock.py"], input=lines, capture_output=True, text=True, timeout=60, check=True,
        env=dict(os.environ),
    )  # fmt: skip
    assert ran.stdout == '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found"}}\n'
