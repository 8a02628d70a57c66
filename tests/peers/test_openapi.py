"""The descriptions of the HTTP APIs, read by strangers: a validator, and Schemathesis, which makes requests of them.

Schemathesis takes a boundary and an invalid value of everything that `/openapi.json` describes, random values, and
chains of operations. Whatever it sends, an answer has a status, a type, headers and a body that the document names. The
admin API gets random values alone.
"""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.admin.question import PREFIX
from dragoman.auth.operator_token import read_token
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

OPEN = frozenset({"AgentCard", "AgentCapabilities", "CardV03", "Empty", "ErrorStatus"})
"""Schemas whose answers may have more members, such as a card for both versions."""

SETTINGS = """
[phases.coverage]
unexpected-methods = ["PATCH"]

[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 501]
"""
"""A2A 0.3 has the status 501 for what an agent does not support."""

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


def close(document: dict[str, Any]) -> dict[str, Any]:
    """The document, with no room for members that it does not name."""
    for name, schema in document["components"]["schemas"].items():
        if "properties" in schema and name not in OPEN:
            schema["additionalProperties"] = False
    return document


async def tried(document: dict[str, Any], url: str, folder: Path, *more: str) -> None:
    """Have a validator read the document, and Schemathesis make requests of it."""
    described = folder / "openapi.json"
    described.write_text(json.dumps(document))
    status, told = await run(BIN / "openapi-spec-validator", described, cwd=folder)
    assert status == 0, told
    (folder / "schemathesis.toml").write_text(SETTINGS)
    options = ["--seed", "1", "--checks", ",".join(CHECKS), "--no-color", "--request-timeout", "60", *more]
    status, told = await run(BIN / "schemathesis", "run", described, "--url", url, *options, cwd=folder)
    assert status == 0, told
    assert re.search(r"Tested: [1-9]", told), told


async def test_strangers_read_and_try_the_description(tmp_path: Path) -> None:
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1)
    async with serving(config, [make_agent()]) as url:
        async with aiohttp.ClientSession(url) as http, http.get("/openapi.json") as answer:
            document = close(await answer.json())
        await tried(document, url, tmp_path, "--max-examples", "3", "--phases", "coverage,fuzzing,stateful")


async def test_strangers_read_and_try_the_description_of_the_admin_api(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    async with serving(Config(port=0, store=store, shutdown_grace_s=0.1), [make_agent()]) as url:
        bearer = f"Authorization: Bearer {read_token(store, 0)}"
        document = json.loads(make_admin_document("1.2.3"))
        endless = ["--exclude-path", f"{PREFIX}/events"]
        await tried(document, url, tmp_path, "--max-examples", "3", "--phases", "fuzzing", "-H", bearer, *endless)
