"""The requests of an `openai:` agent fit the types of the official package."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.cli.entries import make_agent
from dragoman.config import load
from dragoman.model.message import Part
from dragoman.testing import run
from tests.agents.model.completions import called, completions, said
from tests.agents.model.test_agent import model
from tests.agents.model.test_tool_loop import ADD, Adding
from tests.peers.test_peers import HERE, OPENAI, PEER_TIMEOUT_S

pytestmark = [pytest.mark.peer, pytest.mark.slow]

SETTINGS = """
[[agents]]
id = "chat"
run = "openai:URL"
model = "small"
system = "Be brief."
temperature = 0.5
top_p = 0.9
max_tokens = 100
stop = ["END"]
seed = 7
frequency_penalty = 0.1
presence_penalty = 0.1
reasoning_effort = "low"
extra = { logit_bias = { "1" = 2 }, user = "me" }
"""

FILES = [
    Part(text="look"),
    Part(data={"a": 1}),
    Part(raw=b"\x89PNG", media_type="image/png", metadata={"detail": "low"}),
    Part(url="https://example.org/a.png"),
    Part(raw=b"RIFF", media_type="audio/wav"),
    Part(raw=b"%PDF", media_type="application/pdf"),
]


async def requests(tmp_path: Path) -> list[dict[str, Any]]:
    """Requests of every kind."""
    async with completions() as api:
        file = tmp_path / "dragoman.toml"
        file.write_text(SETTINGS.replace("URL", api.url))
        (entry,) = load(file, {}, {}).agents
        assert entry.model is not None
        host = replace(entry.model, url="https://api.openai.com/v1")
        assert host.max_tokens == 100
        agents = [make_agent(entry), model(api.url), model(api.url, schema={"type": "object"})]
        for agent in agents:
            api.answers(said("{}"))
            await run(agent, FILES)
        api.answers(called(("c1", "add", ADD), ("c2", "add", ADD), text="See."), said("3."))
        await run(model(api.url, tools=Adding()), "2 + 1?")
        return [asked.body for asked in api.asked]


def judged(bodies: list[dict[str, Any]]) -> list[str]:
    lines = "".join(f"{json.dumps(body)}\n" for body in bodies)
    script = str(HERE / "openai_types.py")
    done = subprocess.run(
        [str(OPENAI), script], input=lines, capture_output=True, text=True, timeout=PEER_TIMEOUT_S, check=True
    )
    return done.stdout.splitlines()


async def test_every_request_is_one_that_the_official_types_take(tmp_path: Path) -> None:
    bodies = await requests(tmp_path)
    assert len(bodies) == 5
    assert judged(bodies) == ["ok"] * 5


def test_the_official_types_refuse_what_is_wrong() -> None:
    sound = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    image = {"type": "image_url", "image_url": {"href": "x"}}
    wrong = [
        sound | {"extra": 1},
        sound | {"messages": [{"role": "user", "content": [image]}]},
        sound | {"messages": [{"role": "tool", "content": "x"}]},
        sound | {"tools": [{"type": "function", "function": {"parameters": {}}}]},
    ]
    assert [line == "ok" for line in judged([sound, *wrong])] == [True, False, False, False, False]
