"""`dragoman admin tasks`: the real command, on a server and on its store."""

import asyncio
import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from dragoman.admin.tasks import ActingLine
from dragoman.auth.operator_token import read_token
from dragoman.cli.admin.task_tree import describe_link
from tests.cli.admin.site import DEADLINE_S, dragoman, make_task, site
from tests.drills.proxy import before
from tests.systems.test_upstream import partner


async def test_tasks_are_found_read_and_canceled(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        token = read_token(here.store, 0)
        assert token is not None
        from_afar = ("--server", here.url)
        for more, environ in (((), {}), (from_afar, {"DRAGOMAN_API_KEY": token})):
            listed = await here.admin("tasks", "list", *more, **environ)
            assert listed.status == 0, listed.err
            head, *rows = listed.out.splitlines()
            assert head.split() == ["ID", "STATE", "AGE", "AGENT", "PRINCIPAL", "CONTEXT", "DIALECT", "TITLE"]
            assert {row.split()[0] for row in rows} == {here.echo, here.other}
            one = await here.admin("tasks", "list", "--agent", "other", "-o", "json", *more, **environ)
            assert [task["id"] for task in json.loads(one.out)["tasks"]] == [here.other]
            texts = await here.admin("tasks", "list", "--text", "TWO", *more, **environ)
            assert [row.split()[0] for row in texts.out.splitlines()[1:]] == [here.other]
            short = await here.admin("tasks", "list", "--limit", "1", *more, **environ)
            assert (len(short.out.splitlines()), "There are more" in short.err) == (2, True)
            shown = await here.admin("tasks", "show", here.echo, *more, **environ)
            assert "input-required" in shown.out
            assert "\x1b" not in shown.out
            timeline = await here.admin("tasks", "log", here.echo, *more, **environ)
            assert timeline.out.splitlines()[0].split()[1:3] == ["1", "submitted"]
            assert "which one?" in timeline.out
            missing = await here.admin("tasks", "show", "none", *more, **environ)
            assert (missing.status, len(missing.err.splitlines())) == (1, 1)
        dry = await here.admin("tasks", "cancel", "--agent", "other", "--dry-run")
        assert (here.other in dry.out, dry.err) == (True, "1 would be canceled.\n")
        fitting = await here.admin("tasks", "cancel", "--agent", "other")
        assert fitting == (0, f"{here.other} is canceled.\n", "")
        named = await here.admin("tasks", "cancel", here.echo, *from_afar, DRAGOMAN_API_KEY=token)
        assert named == (0, f"{here.echo} is canceled.\n", "")
        followed = await here.admin("tasks", "log", here.echo, "--follow", "-o", "json")
        assert json.loads(followed.out.splitlines()[-1])["state"] == "canceled"
        audit = await here.admin("tasks", "list", "--state", "working")
        assert audit == (0, "", "No tasks fit.\n")
    trail = await dragoman(tmp_path, "audit", "--json", DRAGOMAN_STORE=here.store)
    entries = [json.loads(line) for line in trail.out.splitlines()]
    cancels = [entry["task_id"] for entry in entries if entry["action"] == "tasks.cancel"]
    assert cancels == [here.other, here.echo]
    readers = {entry["principal"].partition(":")[0] for entry in entries if entry["action"] == "tasks.show"}
    assert readers == {"operator"}


async def test_the_server_tells_what_it_serves_and_has_to_do(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        agents = await here.admin("agents")
        assert [row.split() for row in agents.out.splitlines()[1:]] == [
            [name, "python", "1.0.0", "-", "0", "-", "0", "0", "1", "1", "-", "-"] for name in ("echo", "other")
        ]
        stats = await here.admin("stats", "-o", "json")
        told = json.loads(stats.out)
        assert (told["tasks"]["input-required"], told["tasks"]["failed"], told["outage"]) == (2, 0, None)
        replicas = await here.admin("replicas")
        assert len(replicas.out.splitlines()) == 2
        for none in ("workers", "upstreams"):
            assert await here.admin(none) == (0, "", "There are none.\n")


async def test_what_waits_for_a_person_is_answered_by_its_question_once(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        listed = await here.admin("inbox", "-o", "jsonl", "--fields", "id,asks,words,question")
        first, second = map(json.loads, listed.out.splitlines())
        assert (first["id"], first["asks"], second["id"]) == (here.echo, "question", here.other)
        said = "tasks", "answer", here.echo, "--question", first["question"], "--text", "blue"
        assert (await here.admin(*said)).status == 0
        late = await here.admin(*said)
        assert late.status != 0
        assert "has answered this question already" in late.err


async def test_a_follower_sees_the_end_of_a_task(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        following = asyncio.create_task(here.admin_process("tasks", "log", here.echo, "--follow"))
        assert (await here.admin("tasks", "cancel", here.echo)).status == 0
        assert "status canceled" in (await following).out.splitlines()[-1]


async def until_line(process: asyncio.subprocess.Process, words: str) -> list[str]:
    """The lines of a command's output up to one with these words."""
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(DEADLINE_S):
        while not lines or words not in lines[-1]:
            lines.append((await process.stdout.readline()).decode())
            assert lines[-1], lines
    return lines


async def test_a_stream_that_breaks_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        token = read_token(here.store, 0)
        assert token is not None
        address = urlsplit(here.url)
        async with before(str(address.hostname), int(address.port or 0)) as proxy:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dragoman", "admin", "tasks", "log", here.echo, "--follow", "-o", "json"),
                *("--server", f"http://127.0.0.1:{proxy.port}"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=os.environ | {"DRAGOMAN_OPERATOR_KEY": token},
            )
            first = await until_line(process, '"input-required"')
            proxy.cut()
            assert process.stderr is not None
            told = (await asyncio.wait_for(process.stderr.readline(), DEADLINE_S)).decode()
            assert told.startswith("The stream broke: ")
            assert (await here.admin("tasks", "answer", here.echo, "--text", "blue")).status == 0
            proxy.heal()
            rest = await until_line(process, '"completed"')
            assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0, "it ends with the task"
        seqs = [json.loads(line)["seq"] for line in first + rest]
        assert seqs == list(range(1, len(seqs) + 1)), "each event once, in order"
        whole = await here.admin("tasks", "log", here.echo, "-o", "json")
        assert whole.out == "".join(first + rest)


async def test_a_follower_without_a_server_looks_into_the_store(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        assert (await here.admin("tasks", "cancel", here.echo)).status == 0
    followed = await here.admin("tasks", "log", here.echo, "--follow")
    assert (followed.status, "status canceled" in followed.out.splitlines()[-1]) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tasks", "cancel"), "name tasks by their ids"),
        (("tasks", "cancel", "t1", "--agent", "echo"), "but not both"),
        (("tasks", "cancel", "t1", "--dry-run"), "goes with filters"),
        (("tasks", "cancel", "t1"), "DRAGOMAN_OPERATOR_KEY"),
        (("tasks", "list", "--older-than", "soon"), "like 90s"),
        (("tasks", "list", "--state", "dead"), "'dead' is not one of"),
        (("tasks", "list", "--server", "example.org:0"), "must be an address"),
        (("tasks", "list"), "name its store with --store, or the server itself with --server"),
        (("tasks", "list", "--limit", "0"), "--limit"),
        (("tasks", "log"), "ID"),
        (("tasks", "list", "--newer-than", "5"), "like 90s"),
        (("tasks", "show"), "ID"),
        (("tasks", "answer", "t1"), "--approve"),
        (("tasks", "answer", "t1", "--approve", "--text", "x"), "say what to answer"),
        (("tasks", "answer", "t1", "--file", "none.txt"), "none.txt"),
        (("tasks", "answer", "t1", "--data", "none.json"), "none.json"),
        (("tasks", "answer", "t1", "--media-type", "a/b"), "no part before it"),
        (("tasks", "answer", "t1", "--text", "x"), "DRAGOMAN_OPERATOR_KEY"),
        (("tasks", "delete"), "name tasks by their ids"),
        (("tasks", "delete", "t1", "--agent", "echo"), "but not both"),
        (("tasks", "delete", "t1", "--dry-run"), "goes with filters"),
        (("tasks", "delete", "--agent", "echo", "--limit", "1001"), "--limit"),
        (("tasks", "cancel", "--older-than", "1h", "--limit", "0"), "--limit"),
        (("tasks", "burn"), "burn"),
        (("agents",), "DRAGOMAN_OPERATOR_KEY"),
        (("workers", "-o", "yaml"), "yaml"),
        (("upstreams", "--server", "ftp://example.org"), "must be an address"),
        (("replicas", "now"), "now"),
        (("webhooks", "redeliver"), "--all"),
        (("webhooks", "redeliver", "0"), "NUMBER"),
        (("webhooks", "delete", "1", "--all"), "--all"),
        (("webhooks", "list", "--limit", "0"), "--limit"),
        (("webhooks", "list"), "there is no store file"),
        (("audit", "--since", "yesterday"), "--since"),
        (("audit", "--limit", "0"), "--limit"),
        (("audit", "--server", "https://"), "must be an address"),
        (("keys", "create", "a b"), "NAME"),
        (("keys", "create", "ann", "--expires", "soon"), "--expires"),
        (("keys", "create", "ann", "--role", "king"), "king"),
        (("keys", "revoke", "none"), "there is no store file"),
    ],
)
async def test_wrong_input_says_how_to_put_it_right(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    alone = arguments[0] in ("webhooks", "audit", "keys")
    ran = await dragoman(tmp_path, *(() if alone else ("admin",)), *arguments)
    assert (ran.status, words in ran.err) == (2, True), ran.err
    assert len(ran.err.splitlines()) == 1


async def test_a_server_that_refuses_or_is_not_there_is_one_line(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        refused = await here.admin("tasks", "list", "--server", here.url, DRAGOMAN_API_KEY="wrong")
        assert (refused.status, len(refused.err.splitlines())) == (4, 1)
    gone = await here.admin("tasks", "list", "--server", here.url)
    assert gone.status == 3
    assert gone.err.endswith("/tasks: no connection: is the server running?\n")
    assert gone.err.count("?") == gone.err.count("\n") == 1


async def test_the_tree_of_a_task_shows_what_another_server_made_of_it(tmp_path: Path) -> None:
    behind, ours = tmp_path / "behind", tmp_path / "ours"
    behind.mkdir()
    ours.mkdir()
    async with site(behind) as there, site(ours, partner(f"{there.url}/agents/echo")) as here:
        async with aiohttp.ClientSession(here.url) as http:
            task = await make_task(http, "partner", "for you")
        shown = await here.admin("tasks", "tree", task)
        head, mine, theirs = shown.out.splitlines()
        assert head.split() == ["TASK", "AGENT", "STATE", "BEGAN", "ENDED", "AT", "REMARKS"]
        assert mine.split()[:3] == [task, "partner", "input-required"]
        assert theirs.startswith("  ")
        assert theirs.split()[1:3] == ["partner", "input-required"]
        assert f"{there.url}/agents/echo" in theirs
        assert "its clock: 20" in theirs
        assert "a Dragoman" in theirs
        as_json = await here.admin("tasks", "tree", task, "-o", "json")
        assert [each["elsewhere"] for each in json.loads(as_json.out)["tasks"]] == [False, True]
        asked = await here.admin("tasks", "ask-upstream", task)
        assert (asked.status, asked.err) == (0, "")
        assert f"{theirs.split()[0]} at partner is input-required: since 20" in asked.out
        assert "which one?" in asked.out
        for command, of in (("tree", "none"), ("ask-upstream", "none"), ("ask-upstream", here.echo)):
            refused = await here.admin("tasks", command, of)
            assert (refused.status, len(refused.err.splitlines())) == (1, 1)


def test_a_chain_is_told_in_words() -> None:
    link = ActingLine(
        subject="alice",
        actors=("gateway", "app"),
        client="gateway",
        issuer="https://issuer",
        audience="https://back.example",
        scope="read",
        at="2026-11-29T09:12:44.123Z",
        told=True,
    )
    assert describe_link(link) == (
        "for alice at https://back.example as gateway, before: app, scope read, since 2026-11-29T09:12:44Z, "
        "as the message tells"
    )
