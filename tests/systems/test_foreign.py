"""Invariant 9: what is not there and what is another's look the same, to the byte, on every mount."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.systems.conftest import Json, Site, Told
from tests.systems.speakers import ALL, BEEOS, NEW, OLD, Speaker

EVERYWHERE = (
    *ALL,
    replace(BEEOS, name="beeos by aliases", methods=OLD.methods),
    replace(OLD, name="0.3 at the root", path="/"),
    replace(OLD, name="0.3 at Evo AI", path="/api/v1/a2a/{agent}"),
    replace(NEW, name="1.0 at the root", path="/"),
    replace(NEW, name="1.0 at protoAgent", path="/a2a"),
)

_gates = itertools.count()

MASK = b"00000000-0000-0000-0000-000000000000"


def unknown(task_id: str) -> str:
    """An id of nothing, as long as the other."""
    return task_id[:-4] + ("ffff" if not task_id.endswith("ffff") else "0000")


async def same(ask: Callable[[str], Awaitable[Told]], foreign: str) -> bytes:
    """The answers to both; the ids in them are masked."""
    nothing = unknown(foreign)
    first, second = await ask(foreign), await ask(nothing)
    told = [
        (answer.status, _without_date(answer.headers), answer.raw.replace(task_id.encode(), MASK))
        for answer, task_id in ((first, foreign), (second, nothing))
    ]
    assert told[0] == told[1]
    return first.raw


def _without_date(headers: Any) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name.lower() != "date"]


@pytest.mark.parametrize("speaker", EVERYWHERE, ids=lambda speaker: speaker.name)
@pytest.mark.parametrize("made_as", ALL, ids=lambda speaker: f"made-as-{speaker.name}")
async def test_a_task_of_another_agent_is_not_there(served: Site, speaker: Speaker, made_as: Speaker) -> None:
    """Made through the other agent's mount of the same system, so that its stored dialect is the one to tempt us."""
    if made_as.at("x") == made_as.at("y"):
        made_as = OLD  # these two have the default agent only; the other agent's task is made through its own mount
    foreign = await made_as.send(served, "mine", agent="other")
    gate = f"foreign-{next(_gates)}"
    held = await made_as.start(served, gate, agent="other")
    for task_id in (foreign, held):
        for method in speaker.methods[1:]:
            if method is None:
                continue

            async def ask(asked: str, method: str = method) -> Told:
                return await speaker.call(served, method, {speaker.key: asked})

            body = await same(ask, task_id)
            assert b'"error"' in body

        async def goes_on(asked: str) -> Told:
            return await speaker.call(served, speaker.methods[0], speaker.said("more", task_id=asked))

        await same(goes_on, task_id)
    served.open(gate)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/desk/stream?task_id={id}", {}),
        ("/desk/stream?task_id={id}&since=0", {}),
        ("/desk/stream?task_id={id}&since=999", {}),
        ("/a2a/tasks/{id}", {}),
        ("/a2a/tasks/{id}/pushNotificationConfig", {}),
        ("/agents/desk/tasks/{id}", {"a2a_version": "1.0"}),
        ("/agents/desk/v1/tasks/{id}", {}),
        ("/desk/tasks/{id}", {}),
        ("/tasks/{id}", {}),
    ],
)
async def test_the_same_outside_json_rpc(served: Site, path: str, headers: Json) -> None:
    foreign = await OLD.send(served, "mine", agent="other")
    await same(lambda asked: served.ask("GET", path.format(id=asked), **headers), foreign)


@pytest.mark.parametrize("method", ["CompleteTask", "UpdateStatus"])
async def test_the_same_for_reports_of_workers(served: Site, method: str) -> None:
    foreign = await OLD.send(served, "mine", agent="other")
    given = {"artifacts": [], "status": {"state": "working"}}
    await same(lambda asked: served.rpc("/desk", method, {"id": asked, **given}), foreign)


async def test_two_agents_list_their_own_tasks_only(served: Site) -> None:
    foreign = await OLD.send(served, "mine", agent="other")
    for path, params, headers in (
        ("/desk", {}, {}),
        ("/", {}, {}),
        ("/agents/desk", {"pageSize": 100}, {"a2a_version": "1.0"}),
    ):
        tasks = (await served.rpc(path, "ListTasks", params, **headers)).result["tasks"]
        assert foreign not in [task["id"] for task in tasks]
