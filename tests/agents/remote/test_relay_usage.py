"""The tokens of another server's task: counted as it reports them, unless that cannot be."""

from typing import Any

import pytest

from dragoman.agents.remote.credentials import CallCredentials
from dragoman.agents.remote.relay import Relay
from dragoman.dialects.client import objects
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import Usage
from dragoman.model.updates import ArtifactUpdate
from dragoman.store.usage import Used, used_by_answer
from dragoman.testing.run import FakeRun


async def counted(*reports: dict[str, Any], upstream: str = "") -> tuple[Usage, str]:
    """The usage of a task whose upstream reports these sums in turn, and the note for a later run."""
    run = FakeRun(Message(message_id="m", role=Role.USER, parts=(Part(text="Hi"),)))
    relay = Relay(run, CallCredentials(None, forwards=False), "partner", upstream)
    relay.count_taken()
    for report in reports:
        artifact = Artifact(artifact_id="a", parts=(Part(text="x"),))
        update = ArtifactUpdate(task_id="t", context_id="c", artifact=artifact, usage=objects.usage(report))
        await relay.pass_chunk(update)
    await run.status(())
    return run.record.usage or Usage(), relay.usage_note


def told(given: Any, made: Any, **more: Any) -> dict[str, Any]:
    return {"inputTokens": given, "outputTokens": made, **more}


async def test_sums_are_counted_once_with_the_tokens_of_a_cache() -> None:
    first, last = told(5, 1), told(9, 2, cachedTokens=4)
    assert await counted(first, first, last, last) == (Usage(9, 2, 11, cached_tokens=4), "9,2,11,4")
    assert await counted(last, first) == (Usage(9, 2, 11, cached_tokens=4), "5,1,6")


@pytest.mark.parametrize(
    "bad", [told(-5, 1), told(1e300, 1), told(float("nan"), 1), told(100_000_006, 1), told(6, 1, cachedTokens=-1)]
)
async def test_a_bad_sum_is_left_out_and_later_ones_count(
    bad: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    found, note = await counted(told(5, 1), bad, bad, told(9, 2))
    assert (found, note) == (Usage(5, 1, 6) + Usage.unknown() + Usage(4, 1, 5), "9,2,11")
    assert caplog.text.count("a report of tokens is not counted") == 1


async def test_the_member_of_a_pool_is_told_apart_also_if_it_reports_nothing() -> None:
    assert (await counted(told(5, 1), told(9, 2), upstream="eu"))[0] == Usage.of(9, 2, upstream="eu")
    silent, _ = await counted(upstream="eu")
    assert silent == Usage.of(0, 0, upstream="eu")
    assert used_by_answer(silent, 7) == (Used("", 1, 0, 1, duration_ms=7, upstream="eu"),)
    assert await counted() == (Usage(), "0,0,0")
