"""The bytes written for webhooks of a task that grows and grows (invariant 8)."""

import msgspec
import pytest

from dragoman.dialects import v03, v1
from dragoman.engine.api import Run
from dragoman.model.message import Artifact, Part
from dragoman.model.operations import PushConfig
from dragoman.model.task import TaskState
from dragoman.net.address import Guard
from dragoman.push.announcer import EACH_BYTES_MAX, WebhookAnnouncer
from dragoman.store.outbox import Delivery
from tests.engine.house import Scripted, house
from tests.push.test_announcer import Names

PIECE = "x" * 20_000
PIECES = 60
FORMS = {dialect.name: dialect.push for dialect in (v1.JSONRPC, v03.JSONRPC) if dialect.push is not None}


async def artifacts(run: Run) -> None:
    """Many, each whole, and a word between them."""
    for number in range(PIECES):
        await run.artifact(Artifact(artifact_id=f"a{number}", parts=(Part(text=PIECE),)), append=False, last_chunk=True)
        await run.status((Part(text="so far so good"),))
        await run.written()


async def one_that_grows(run: Run) -> None:
    """One, which is whole each time it has grown."""
    for number in range(PIECES):
        await run.artifact(Artifact(artifact_id="a", parts=(Part(text=PIECE),)), append=number > 0, last_chunk=True)
        await run.written()


@pytest.mark.parametrize("script", [artifacts, one_that_grows])
@pytest.mark.parametrize("dialect", FORMS)
async def test_all_bodies_of_a_task_together_are_a_few_times_what_it_amounts_to(dialect: str, script: object) -> None:
    owed: list[Delivery] = []
    announcer = WebhookAnnouncer(FORMS, Guard(), Names(hooks_example="203.0.114.7"), lambda: None)
    deliveries = announcer.deliveries

    def noted(*given: object) -> object:
        found = deliveries(*given)  # type: ignore[arg-type]
        owed.extend(found[0])
        return found

    announcer.deliveries = noted  # type: ignore[method-assign, assignment]
    async with house(Scripted(script), announcer=announcer) as h:  # type: ignore[arg-type]
        config = PushConfig(url="https://hooks.example/x")
        task = await h.send(push_config=config, around={"dialect": dialect})
    assert task.state is TaskState.COMPLETED
    task_bytes = PIECES * len(PIECE)
    large = [each for each in owed if len(each.body) > EACH_BYTES_MAX]
    assert sum(len(each.body) for each in large) < 2 * task_bytes
    assert sum(len(each.body) for each in owed) < 3 * task_bytes + PIECES * 1024
    last = owed[-1]
    assert last.kept
    whole = msgspec.json.decode(last.body if dialect != "1.0" else owed[-2].body)
    if script is one_that_grows:
        found = whole["artifactUpdate"]["artifact"] if dialect == "1.0" else whole["artifacts"][0]
        assert len(found["parts"][0]["text"]) == task_bytes
    elif dialect != "1.0":
        assert len(whole["artifacts"]) == PIECES
