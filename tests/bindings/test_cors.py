"""CORS: off, or for the origins that are configured."""

from collections.abc import AsyncIterator

import pytest

from tests.bindings.conftest import EXTENSION, V1, Site, site

APP = "https://app.example.org"
PREFLIGHT = {"Origin": APP, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "a2a-version"}


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Site]:
    async with site(origins=[APP]) as running:
        yield running


async def test_without_configuration_no_page_may_call(served: Site) -> None:
    async with served.http.options("/", headers=PREFLIGHT) as answer:
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    async with served.http.get("/agents", headers={"Origin": APP}) as answer:
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_configured_origin_may_call_and_read(shared: Site) -> None:
    async with shared.http.options("/", headers=PREFLIGHT) as answer:
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == APP
        allowed = answer.headers["Access-Control-Allow-Headers"]
        for name in (
            "content-type",
            "a2a-version",
            "a2a-extensions",
            "last-event-id",
            "idempotency-key",
            "x-agent-api-key",
        ):
            assert name in allowed
        assert "DELETE" in answer.headers["Access-Control-Allow-Methods"]
        assert "Access-Control-Allow-Credentials" not in answer.headers
    headers = {**V1, "Origin": APP, "A2A-Extensions": EXTENSION}
    async with shared.http.get("/tasks/t1", headers=headers) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == APP
        assert answer.headers["Vary"] == "Origin"
        assert "a2a-extensions" in answer.headers["Access-Control-Expose-Headers"]
    async with shared.http.get("/tasks/t1:subscribe", headers=headers) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == APP


async def test_errors_can_be_read_too(shared: Site) -> None:
    async with shared.http.get("/nope", headers={"Origin": APP}) as answer:
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (404, APP)


async def test_another_origin_is_told_nothing(shared: Site) -> None:
    for origin in ("https://evil.example", "null", APP + ".evil.example"):
        async with shared.http.options("/", headers={**PREFLIGHT, "Origin": origin}) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert "Access-Control-Allow-Methods" not in answer.headers
        async with shared.http.get("/agents", headers={"Origin": origin}) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert answer.headers["Vary"] == "Origin"


async def test_a_star_lets_every_page_call() -> None:
    headers = {"Origin": "https://x.example"}
    async with site(origins=["*"]) as running, running.http.get("/agents", headers=headers) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
