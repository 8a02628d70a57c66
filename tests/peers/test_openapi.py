"""The descriptions of the HTTP APIs, read by strangers: a validator, and Schemathesis, which makes requests of them.

Schemathesis takes a boundary and an invalid value of everything that `/openapi.json` describes, random values, and
chains of operations. Whatever it sends, an answer has a status, a type, headers and a body that the document names.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.bindings.admin.openapi import make_admin_document
from dragoman.config import Config
from dragoman.server import serving
from tests.processes import ENDS_WITH_US

BIN = Path(__file__).parents[2] / ".venv-openapi" / "bin"
TIMEOUT_S = 300.0

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
)
"""Without negative_data_rejection, as any clear spelling of a request is understood."""

OPEN = frozenset({"AgentCard", "AgentCapabilities", "Empty", "ErrorStatus"})
"""Schemas whose answers may have more members, such as a card for both versions."""

SETTINGS = '[phases.coverage]\nunexpected-methods = ["PATCH"]\n'

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def make_agent() -> Agent:
    agent = Agent("fuzzed", description="Answers, or asks")

    @agent.skill
    async def answer(ctx: Context) -> str:
        """Asks about every second message, so that tasks stay open."""
        if len(ctx.text) % 2:
            await ctx.ask("More?")
        return ctx.text

    return agent


async def run(*command: str | Path, cwd: Path) -> tuple[int, str]:
    """Run a command; the exit status, and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        *ENDS_WITH_US, *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            told, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, told.decode()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1)
    async with serving(config, [make_agent()]) as url:
        yield url


def close(document: dict[str, Any]) -> dict[str, Any]:
    """The document, with no room for members that it does not name."""
    for name, schema in document["components"]["schemas"].items():
        if "properties" in schema and name not in OPEN:
            schema["additionalProperties"] = False
    return document


async def test_strangers_read_and_try_the_description(url: str, tmp_path: Path) -> None:
    async with aiohttp.ClientSession(url) as http, http.get("/openapi.json") as answer:
        document = await answer.json()
    described, admin = tmp_path / "openapi.json", tmp_path / "admin.json"
    described.write_text(json.dumps(close(document)))
    admin.write_bytes(make_admin_document("1.2.3"))
    for each in (described, admin):
        status, told = await run(BIN / "openapi-spec-validator", each, cwd=tmp_path)
        assert status == 0, told
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    options = ["--seed", "1", "--max-examples", "3", "--checks", ",".join(CHECKS), "--no-color"]
    phases = ["--phases", "coverage,fuzzing,stateful", "--request-timeout", "60"]
    status, told = await run(BIN / "schemathesis", "run", described, "--url", url, *options, *phases, cwd=tmp_path)
    assert status == 0, told
    assert f"Tested: {sum(len(item.keys() - {'servers'}) for item in document['paths'].values())}" in told
