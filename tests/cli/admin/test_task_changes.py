"""`dragoman admin tasks answer|cancel`: the real command on a real server."""

import asyncio
import base64
import json
from pathlib import Path

import aiohttp

from dragoman.cli.store_commands import operator
from tests.cli.admin.site import dragoman, make_task, site, waiting_agent


async def test_an_answer_reaches_the_agent_and_names_the_operator_in_the_log(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        answered = await here.admin("tasks", "answer", here.echo, "--text", "blue", "--reason", "ann is away")
        assert answered == (0, f"{here.echo} is working.\n", "")
        log = await here.admin("tasks", "log", here.echo, "--follow", "-o", "json")
        events = [json.loads(line) for line in log.out.splitlines()]
        word = next(event for event in events if event["kind"] == "operator")
        assert (word["action"], word["text"]) == ("answer", "ann is away")
        assert word["operator"]
        assert events[events.index(word) + 1]["text"] == "blue"
        assert (events[-1]["state"], events[-1]["kind"]) == ("completed", "status")
        again = await here.admin("tasks", "answer", here.echo, "--text", "blue")
        assert (again.status, again.out, len(again.err.splitlines())) == (1, "", 1)
        assert "completed" in again.err
    trail = await dragoman(tmp_path, "audit", "--json", DRAGOMAN_STORE=here.store)
    answers = [entry for entry in map(json.loads, trail.out.splitlines()) if entry["action"] == "tasks.answer"]
    assert [(entry["task_id"], entry["allowed"]) for entry in answers] == [(here.echo, True), (here.echo, False)]


async def test_parts_of_an_answer_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "map.bin").write_bytes(b"\x00\x01")
    (tmp_path / "seat.json").write_text('{"seat": "12A"}')
    async with (
        site(tmp_path, waiting_agent("any", input_modes=["*/*"])) as here,
        aiohttp.ClientSession(here.url) as http,
    ):
        task = await make_task(http, "any", "three")
        flags = ("--data", "seat.json", "--text", "or this", "--file", "map.bin", "--media-type", "application/x-map")
        answered = await here.admin("tasks", "answer", task, *flags, "-o", "json")
        assert answered.status == 0, answered.err
        assert json.loads(answered.out) == {"id": task, "state": "working"}
        history = await here.history("any", task)
        said = history[-1]
        assert said["parts"] == [
            {"data": {"seat": "12A"}, "mediaType": "application/json"},
            {"text": "or this"},
            {
                "raw": base64.b64encode(b"\x00\x01").decode(),
                "filename": "map.bin",
                "mediaType": "application/x-map",
            },
        ]
        assert "operator" not in json.dumps(history), "callers are not told who answered"


async def test_an_approval_is_given_or_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        refused = await here.admin("tasks", "answer", here.echo, "--refuse", "--reason", "not on a Friday")
        approved = await here.admin("tasks", "answer", here.other, "--approve")
        assert (refused.status, approved.status) == (0, 0), refused.err + approved.err
        for agent, task, words in (("echo", here.echo, "no: not on a Friday"), ("other", here.other, "yes")):
            assert (await here.history(agent, task))[-1]["parts"] == [{"text": words}]


async def test_a_cancel_names_the_operator_in_the_log(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        named, fitting = await asyncio.gather(
            here.admin_process("tasks", "cancel", here.echo, "--reason", "too dear"),
            here.admin_process("tasks", "cancel", "--agent", "other", "--reason", "too dear"),
        )
        assert (named.out, fitting.out) == (f"{here.echo} is canceled.\n", f"{here.other} is canceled.\n")
        for task in (here.echo, here.other):
            *_, word, end = (await here.admin("tasks", "log", task)).out.splitlines()
            assert f" operator {operator()} cancel " in word
            assert word.endswith("too dear")
            assert end.endswith("status canceled")


async def test_ended_tasks_are_deleted_and_open_ones_only_by_force(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        refused = await here.admin("tasks", "delete", here.echo)
        assert (refused.status, len(refused.err.splitlines()), "set force" in refused.err) == (1, 1, True)
        none = await here.admin("tasks", "delete", "--agent", "echo", "--yes")
        assert none == (0, "", "No tasks fit.\n")
        unasked = await here.admin("tasks", "delete", "--agent", "echo", "--force")
        assert (unasked.status, "--yes" in unasked.err) == (2, True)
        dry = await here.admin("tasks", "delete", "--agent", "echo", "--force", "--dry-run")
        assert (here.echo in dry.out, dry.err) == (True, "1 would be deleted.\n")
        fitting = await here.admin("tasks", "delete", "--agent", "echo", "--force", "--yes")
        assert fitting == (0, f"{here.echo} is deleted.\n", "")
        named = await here.admin("tasks", "delete", here.other, "--force", "-o", "json")
        assert json.loads(named.out) == {"id": here.other, "deleted": True}
        assert await here.admin("tasks", "list") == (0, "", "No tasks fit.\n")
        gone = await here.admin("tasks", "show", here.echo)
        assert (gone.status, len(gone.err.splitlines())) == (1, 1)


async def test_a_person_is_asked_before_tasks_are_deleted(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        assert (await here.admin("tasks", "cancel", here.echo)).status == 0
        wanted = ("tasks", "delete", "--agent", "echo")
        status, shown = await here.at_terminal("Delete this task? [y/N]", "n\n", *wanted)
        assert (status, here.echo in shown) == (1, True)
        assert here.echo in (await here.admin("tasks", "list")).out
        status, shown = await here.at_terminal("[y/N]", "y\n", *wanted)
        assert (status, f"{here.echo} is deleted." in shown) == (0, True)
        assert here.echo not in (await here.admin("tasks", "list")).out
