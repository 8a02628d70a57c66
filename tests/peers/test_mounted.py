"""The official Python client against an application that is mounted below FastAPI, under uvicorn."""

import asyncio
import json
from asyncio.subprocess import PIPE

import pytest
from fastapi import FastAPI

from dragoman import create_app
from tests.kit.asgi_servers import uvicorn_server
from tests.peers.test_peers import HERE, PEER_TIMEOUT_S, REQUIRED, ROOT, SDK1
from tests.processes import ENDS_WITH_US

pytestmark = [pytest.mark.anyio, pytest.mark.peer, pytest.mark.slow]

LANES = ("JSONRPC 1.0/", "HTTP+JSON 1.0/stream", "HTTP+JSON 0.3/resubscribe", "at /a2a/send_blocking")
"""Words of the scenarios that are run: each of one lane, and some of the others. `test_peers` has them all."""


async def test_the_official_client_finds_a_mounted_application_as_any_server(subtests: pytest.Subtests) -> None:
    assert SDK1.exists(), f"{SDK1} is missing: run `make peers`"
    agents = [str(ROOT / "examples" / "agents.py"), str(HERE / "guide.py")]
    app = create_app(agents, {"store": "memory:", "push_allowed_hosts": ["127.0.0.1"], "shutdown_grace_s": 1})
    parent = FastAPI(lifespan=app.lifespan)
    parent.mount("/in/side", app)
    async with uvicorn_server(parent) as url:
        command = [*ENDS_WITH_US, SDK1, HERE / "sdk1.py", f"{url}/in/side", *LANES]
        peer = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        async with asyncio.timeout(PEER_TIMEOUT_S):
            lines, errors = await peer.communicate()
    outcomes = [json.loads(line) for line in lines.splitlines()]
    for outcome in outcomes:
        with subtests.test(outcome["scenario"]):
            assert outcome["ok"], outcome["detail"]
    done = {outcome["scenario"].removeprefix(LANES[0]).replace("_", "") for outcome in outcomes}
    assert done >= REQUIRED, errors.decode()
    assert all(any(lane in outcome["scenario"] for outcome in outcomes) for lane in LANES)
    assert peer.returncode == (not all(outcome["ok"] for outcome in outcomes))
