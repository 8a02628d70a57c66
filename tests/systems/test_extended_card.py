"""The extended card is for callers who have said who they are, under each of its names; cards are for everybody."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.config import Config
from dragoman.dialects.cards import WELL_KNOWN
from dragoman.server import serving
from tests.spec.agents import Gates
from tests.systems.conftest import DEADLINE_S, Site

V = {"a2a_version": "1.0"}
PASCAL, OFFICIAL, SHORT = (
    *("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard", "agent/authenticatedExtendedCard"),
)
MOUNTS = ("/", "/agents/desk", "/a2a", "/api/v1/a2a/desk", "/desk")
CALLS = [
    (mount, name) for mount in MOUNTS for name in (PASCAL, OFFICIAL, SHORT) if (mount, name) != (MOUNTS[3], PASCAL)
]
"""Evo AI's mount does not speak 1.0."""


def desk() -> Agent:
    """It has a skill that only callers who are known are told of."""
    agent = Agent("desk")

    @agent.skill("open")
    async def answer(ctx: Context) -> str:
        """For everybody."""
        return ctx.text

    @agent.skill("hidden", extended=True)
    async def tell(ctx: Context) -> str:
        """For some."""
        return ctx.text

    return agent


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Site]:
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1, api_key="k")
    async with serving(config, [desk()]) as url, aiohttp.ClientSession(timeout=timeout) as http:
        yield Site(url, http, Gates())


def skills(card: Any) -> list[str]:
    return [skill["id"] for skill in card["skills"]]


@pytest.mark.parametrize(("mount", "name"), CALLS)
async def test_by_each_of_its_names(served: Site, mount: str, name: str) -> None:
    headers = V if name == PASCAL else {}
    assert (await served.rpc(mount, name, {}, **headers)).status == 401
    card = (await served.by("k").rpc(mount, name, {}, **headers)).result
    assert skills(card) == ["open", "hidden"]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/extendedAgentCard", V),
        ("/agents/desk/extendedAgentCard", V),
        ("/desk/extendedAgentCard", V),
        ("/v1/card", {}),
    ],
)
async def test_over_http_json(served: Site, path: str, headers: dict[str, str]) -> None:
    assert (await served.ask("GET", path, **headers)).status == 401
    assert skills((await served.by("k").ask("GET", path, **headers)).body) == ["open", "hidden"]


@pytest.mark.parametrize("mount", MOUNTS)
@pytest.mark.parametrize("path", WELL_KNOWN)
async def test_the_public_one_has_the_public_skills_and_says_that_there_is_another(
    served: Site, mount: str, path: str
) -> None:
    card = (await served.ask("GET", mount.rstrip("/") + path)).body
    assert skills(card) == ["open"]
    assert card["supportsAuthenticatedExtendedCard"] is True
    assert card["capabilities"]["extendedAgentCard"] is True


@pytest.mark.parametrize(("mount", "name"), CALLS)
async def test_where_nobody_is_asked_there_is_none(mount: str, name: str) -> None:
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1)
    async with serving(config, [desk()]) as url, aiohttp.ClientSession(timeout=timeout) as http:
        told = await Site(url, http, Gates()).rpc(mount, name, {}, **(V if name == PASCAL else {}))
        assert (told.status, told.error["code"]) == (200, -32004)
