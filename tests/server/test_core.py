"""The core of the package stands alone: without the folders of its optional parts it starts, and serves tasks."""

import shutil
import tomllib
from pathlib import Path

import aiohttp
import pytest

import dragoman
from tests.kit.processes import serving_process

ROOT = Path(__file__).parents[2]
V1 = {"A2A-Version": "1.0"}
AGENT = """
from dragoman import Agent, Context

echo = Agent("echo")

@echo.skill("echo")
async def give_back(ctx: Context) -> str:
    return ctx.text
"""
MESSAGE = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}


def optional_modules() -> list[str]:
    """The parts that the contract `core` keeps out of the core."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = [contract["forbidden_modules"] for contract in contracts if contract["id"] == "core"]
    return list(found)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package without its optional parts, in a folder that can be imported from."""
    folder = tmp_path_factory.mktemp("core")
    copy = folder / "dragoman"
    shutil.copytree(Path(dragoman.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name in optional_modules():
        place = folder / name.replace(".", "/")
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.with_suffix(".py").unlink()
    return folder


@pytest.mark.anyio
@pytest.mark.slow
async def test_the_core_serves_without_its_optional_parts(core: Path, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    flags = ("agents.py", "--port", "0", "--store", "sqlite:///tasks.db")
    async with serving_process(tmp_path, *flags, PYTHONPATH=str(core)) as server:
        async with aiohttp.ClientSession(server.url, headers=V1) as http:
            sent = await http.post("/message:send", json=MESSAGE)
            task = (await sent.json())["task"]
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            request = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"]}}
            assert (await (await http.post("/", json=request)).json())["result"]["id"] == task["id"]
            streamed = await http.post(
                "/message:stream", json=MESSAGE | {"message": MESSAGE["message"] | {"messageId": "2"}}
            )
            assert b"TASK_STATE_COMPLETED" in await streamed.read()
            assert (await http.get("/ready")).status == 200
            for path in ("/mcp", "/console", "/admin/v1/remote/card"):
                assert (await http.post(path, json={})).status in (404, 401, 403), path
        assert "Traceback" not in server.said()
