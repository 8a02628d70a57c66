"""The AI Catalog, read by a validator of CDDL, the language of the specification's own schema.

The schema is closed: a member that the specification does not have is refused as well.
"""

import json
import subprocess
from pathlib import Path

import pytest

from dragoman import Agent, Context
from dragoman.model.card import AgentProvider
from tests.kit.places import server

PYTHON = Path(__file__).parents[2] / ".venv-openapi" / "bin" / "python"

MEMBERS = """
AICatalog = {
  specVersion: text, entries: [* Entry], ? host: Host, ? extensions: { * text => any }
}
Host = { displayName: text, ? identifier: text, ? documentationUrl: text, ? logoUrl: text }
Entry = {
  identifier: text, type: text, url: text, ? displayName: text, ? description: text, ? version: text,
  ? tags: [* text], ? publisher: Publisher, ? digest: text, ? extensions: { * text => any }
}
Publisher = { identifier: text, displayName: text, ? identityType: text }
"""
"""The members in release 0.9.0 (CDDL Schema), without those for signatures and trust, which a server here never has."""

READER = """
import json, sys, cbor2, pycddl
schema, catalog = json.load(sys.stdin)
pycddl.Schema(schema).validate_cbor(cbor2.dumps(catalog))
"""

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def read_by_schema(catalog: object) -> subprocess.CompletedProcess[str]:
    told = json.dumps([MEMBERS, catalog])
    return subprocess.run([PYTHON, "-c", READER], input=told, capture_output=True, text=True, timeout=60, check=False)


async def test_a_stranger_finds_nothing_wrong_with_the_catalog() -> None:
    provider = AgentProvider(organization="Example Bank", url="https://bank.example")
    agent = Agent("desk", description="Answers everybody", provider=provider)

    @agent.skill("talk", tags=["small"])
    async def talk(ctx: Context) -> str:
        """Small talk."""
        return ctx.text

    async with (
        server(agent, public_url="https://agents.example.org") as http,
        http.get("/.well-known/ai-catalog.json") as answer,
    ):
        catalog = await answer.json(content_type=None)
    assert len(catalog["entries"]) == 2
    assert "publisher" in catalog["entries"][0]
    assert (read := read_by_schema(catalog)).returncode == 0, read.stderr
    assert "unexpected key" in read_by_schema({**catalog, "agents": []}).stderr
    del catalog["entries"][1]["type"]
    assert "type" in read_by_schema(catalog).stderr
