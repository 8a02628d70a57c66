"""The code of the guides works as the guides say."""

import asyncio
import os
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from dragoman.agents.adapters import adapt
from dragoman.testing import run
from tests.docs.test_readme import ROOT

GUIDES = ROOT / "docs" / "guides"


def blocks(name: str, language: str) -> list[str]:
    """The blocks of a language in a guide."""
    text = (GUIDES / f"{name}.md").read_text(encoding="utf-8")
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


def agent_of(source: str) -> Any:
    names: dict[str, Any] = {}
    exec(source, names)
    return names["agent"]


def test_the_function_does_what_the_executor_did() -> None:
    (function,) = blocks("from-a2a-sdk", "python")
    ran = asyncio.run(run(agent_of(function), "A table", answers=["Friday"]))
    assert (ran.questions, ran.text) == (["For which day?"], "Booked for Friday")


def executor() -> str:
    """The executor of the official SDK that a page shows, and the guide turns into a function."""
    text = (ROOT / "docs" / "agents" / "a2a-sdk.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]


def test_the_executor_of_the_page_is_served_as_it_is() -> None:
    source = executor()
    names: dict[str, Any] = {}
    exec(source, names)
    agent = adapt(names["Booking"], "booking")
    assert agent is not None
    ran = asyncio.run(run(agent, "A table", answers=["Friday"]))
    assert (ran.questions, ran.text) == (["For which day?"], "Booked for Friday")


EXECUTED = """
import asyncio, sys
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.types import Message, Role, SendMessageRequest, Task
from a2a.helpers import get_message_text, new_text_message

class Told(EventQueue):
    def __init__(self): self.seen = []
    async def enqueue_event(self, event): self.seen.append(event)
    async def dequeue_event(self): ...
    async def close(self, immediate=False): ...
    def task_done(self): ...
    def tap(self, max_queue_size=0): ...
    def is_closed(self): return False

async def main():
    told, message = Told(), new_text_message("Friday", role=Role.ROLE_USER)
    message.task_id, message.context_id = "t", "c"
    request = SendMessageRequest(message=message)
    for task in (None, Task(id="t", context_id="c")):
        context = RequestContext(ServerCallContext(), request, task_id="t", context_id="c", task=task)
        await Booking().execute(context, told)
    for event in told.seen:
        status = getattr(event, "status", None)
        text = get_message_text(status.message) if status is not None else event.artifact.parts[0].text
        print(type(event).__name__, text)

asyncio.run(main())
"""


@pytest.mark.peer
@pytest.mark.slow
def test_the_executor_of_the_page_runs_on_the_official_sdk() -> None:
    python = Path(os.environ.get("DRAGOMAN_PEER_SDK1", ROOT / ".venv-sdk1" / "bin" / "python"))
    assert python.exists(), f"{python} is missing: run `make peers`"
    ran = subprocess.run([python, "-c", executor() + EXECUTED], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    said = [line.split(" ", 1)[1] for line in ran.stdout.splitlines() if line.split(" ", 1)[1]]
    assert said == ["For which day?", "Booked for Friday"]
