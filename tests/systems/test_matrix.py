"""A task made through one dialect is read, followed and canceled through every other, in the reader's words."""

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from tests.systems.conftest import Site
from tests.systems.grpc_speakers import CLIENTS, Client
from tests.systems.speakers import BEEOS, EVOAI, KAOS, NEW, OLD, PASCAL, SLASH, Speaker, V

PAIRS = list(itertools.product(CLIENTS, CLIENTS))
NAMES = [f"{writer.name}-{reader.name}" for writer, reader in PAIRS]


def texts(holder: Any) -> set[str]:
    """All texts of parts, wherever they stand."""
    if isinstance(holder, dict):
        own = {holder["text"]} if isinstance(holder.get("text"), str) else set()
        return own.union(*map(texts, holder.values()))
    return set().union(*map(texts, holder)) if isinstance(holder, list) else set()


@pytest.mark.parametrize(("writer", "reader"), PAIRS, ids=NAMES)
async def test_a_task_that_has_ended_is_read(served: Site, writer: Client, reader: Client) -> None:
    text = f"hello from {writer.name}"
    task_id = await writer.send(served, text)
    task = (await reader.get(served, task_id)).result
    assert (task["id"], task["status"]["state"]) == (task_id, reader.spelled("completed"))
    assert reader.shows(task), task
    assert text in texts(task)


@pytest.mark.parametrize(("writer", "reader"), PAIRS, ids=NAMES)
async def test_a_task_that_runs_is_read_followed_and_canceled(served: Site, writer: Client, reader: Client) -> None:
    gate = f"{writer.name}-{reader.name}"
    task_id = await writer.start(served, gate)
    task = (await reader.get(served, task_id)).result
    assert (task["id"], task["status"]["state"]) == (task_id, reader.spelled("working"))
    assert reader.shows(task), task
    if reader.methods[3] is None:
        canceled = (await reader.cancel(served, task_id)).result
    else:
        async with reader.followed(served, task_id) as flow:
            first = await flow.next()
            assert first is not None
            assert reader.state(first) == reader.spelled("working")
            canceled = (await reader.cancel(served, task_id)).result
            states = [reader.state(frame) for frame in await flow.rest()]
            assert states[-1] == reader.spelled("canceled")
    assert (canceled["id"], canceled["status"]["state"]) == (task_id, reader.spelled("canceled"))
    assert reader.shows(canceled), canceled
    assert (await writer.get(served, task_id)).result["status"]["state"] == writer.spelled("canceled")


@pytest.mark.parametrize(
    "reader", [each for each in CLIENTS if each is not KAOS], ids=lambda reader: f"to-{reader.name}"
)
@pytest.mark.parametrize("writer", CLIENTS, ids=lambda writer: writer.name)
async def test_a_task_that_runs_is_followed_to_its_end(served: Site, writer: Client, reader: Client) -> None:
    """KAOS has no streams."""
    gate = f"end-{writer.name}-{reader.name}"
    task_id = await writer.start(served, gate)
    async with reader.followed(served, task_id) as flow:
        assert await flow.next() is not None
        served.open(gate)
        frames = await flow.rest()
    assert reader.state(frames[-1]) == reader.spelled("completed")
    assert "done" in texts([frame.body for frame in frames])


OLD_HERE = replace(OLD, name="0.3 at the tenant", path="/{agent}")
NEW_HERE = replace(NEW, path="/{agent}")
BEEOS_SLASH = replace(BEEOS, methods=SLASH)
EVOAI_ID = replace(EVOAI, key="id")
OLD_AT_EVOAI = replace(OLD, path="/api/v1/a2a/{agent}")
KAOS_SLASH = replace(KAOS, methods=("tasks/send", "tasks/get", "tasks/cancel", None))
OLD_AT_ROOT = replace(OLD, path="/")


@pytest.mark.parametrize(
    ("writer", "reader", "otherwise"),
    [
        (OLD_HERE, BEEOS_SLASH, BEEOS),
        (NEW_HERE, BEEOS, BEEOS),
        (BEEOS, OLD_HERE, BEEOS),
        (BEEOS, NEW_HERE, BEEOS),
        (OLD_AT_EVOAI, EVOAI_ID, EVOAI),
        (EVOAI, OLD_AT_EVOAI, EVOAI),
        (KAOS, OLD_AT_ROOT, OLD),
        (OLD_AT_ROOT, KAOS_SLASH, OLD),
    ],
    ids=lambda speaker: f"{speaker.name} {speaker.path}",
)
async def test_where_only_the_task_can_tell_it_answers_in_the_words_it_was_made_in(
    served: Site, writer: Speaker, reader: Speaker, otherwise: Speaker
) -> None:
    """The same request: of a task made here its own words, of one made through another mount those of the mount."""
    made_here = (await reader.get(served, await writer.send(served, "x"))).result
    assert writer.shows(made_here), made_here
    elsewhere = (await reader.get(served, await replace(NEW, path="/agents/{agent}").send(served, "x"))).result
    assert otherwise.shows(elsewhere), elsewhere


@pytest.mark.parametrize("version", ["1.0", None])
async def test_at_the_root_a_version_and_a_role_decide(served: Site, version: str | None) -> None:
    """Pascal names with 1.0 are 1.0, without a version KAOS, unless the role is 1.0's."""
    headers = {} if version is None else V
    task_id = await KAOS.send(served, "x")
    task = (await served.rpc("/", PASCAL[1], {"id": task_id}, **headers)).result
    assert (KAOS if version is None else NEW).shows(task)
    sent = (await served.rpc("/", PASCAL[0], NEW.said("x"), **headers)).result
    assert list(sent) == ["task"]
