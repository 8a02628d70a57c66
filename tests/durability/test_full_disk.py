"""A disk that is full: a clear error, reads go on, nothing is lost, and the server recovers when there is space."""

import asyncio
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from dragoman.store.sqlite.schema import check
from tests.durability.caller import RUNNING, Caller, Refusal, message
from tests.durability.conftest import DEADLINE_S, Serve, Server
from tests.durability.ledger import text_of
from tests.push.receiver import receiving

pytestmark = pytest.mark.slow

Call = Callable[[Server], Caller]

ANSWERED_S = 20.0
"""A caller has an answer after so long, whatever can be written."""

REASON = "its disk (is full|reports an error)"
"""The words of `/ready` and the log: files that may not grow are an error, a full disk is one."""

SIZE = "24m"
"""The size of the small filesystem."""

BIG = "x" * 100_000
"""A message that no rest of a page takes."""


class Disk(Protocol):
    """A disk that a test can fill, and empty again."""

    def fill(self) -> None: ...

    def empty(self) -> None: ...


@pytest.fixture(autouse=True)
def compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python keeps what it could write of compiled code: no process could import that module any more."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


class FileSizeLimit:
    """No file of the process may grow: writes beyond the limit fail (EFBIG), as they do on a full disk (ENOSPC)."""

    def __init__(self, server: Server, store: Path) -> None:
        self._pid = server.pid
        self._store = store

    def fill(self, spare_bytes: int = 0) -> None:
        """Nothing grows beyond the longest file of the store, or only so much."""
        longest = max(path.stat().st_size for path in self._store.parent.iterdir())
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (longest + spare_bytes, resource.RLIM_INFINITY))

    def empty(self) -> None:
        """Everything may grow."""
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class SmallFilesystem:
    """A filesystem of its own, seen through the server's mount namespace, with a file that fills it."""

    def __init__(self, server: Server, store: Path) -> None:
        self._filler = Path(f"/proc/{server.pid}/root{store.parent}/filler")

    def fill(self) -> None:
        """Until not one byte more is taken."""
        with self._filler.open("wb", buffering=0) as filler:
            for size in (1 << 20, 4096, 1):
                with pytest.raises(OSError, match="No space left"):
                    while True:
                        filler.write(b"\0" * size)

    def empty(self) -> None:
        """As it was."""
        self._filler.unlink()


def namespace() -> tuple[str, ...]:
    """The command that gives a process mounts of its own, as root or not; empty if this machine allows neither."""
    if shutil.which("unshare") is None:
        return ()
    for command in (("unshare", "-m"), ("unshare", "-U", "-r", "-m")):
        tried = subprocess.run(
            [*command, "sh", "-c", "mount -t tmpfs -o size=1m none /tmp"], capture_output=True, timeout=DEADLINE_S
        )
        if tried.returncode == 0:
            return command
    return ()


async def refused(attempt: Any) -> Refusal:
    """The 503 that a write must end with."""
    with pytest.raises(Refusal) as refusal:
        await attempt
    said = refusal.value
    assert said.status == 503, said.body
    assert int(said.headers["Retry-After"]) > 0
    assert "Traceback" not in str(said.body)
    return said


async def goes_through(caller: Caller, disk: Disk) -> None:
    """The rules that hold before, while and after there is no space."""
    done = await caller.send("echo", message("before"))
    waiting = await caller.send("ask", message("hello"))
    running = await caller.send("count", message("40 every 0.05"), at_once=True)
    seen = []
    said = message(BIG)
    async with caller.subscribe("count", running["id"], "0") as frames:
        async for frame in frames:
            seen.append(frame)
            if len(seen) == 5:
                disk.fill()
                error = await refused(caller.send("echo", said))
                assert error.body["error"]["status"] == "UNAVAILABLE"
                await refused(caller.send("echo", message(BIG), at_once=True))
                await refused(caller.send("ask", message(BIG, task_id=waiting["id"])))
                await refused(stream(caller, BIG))
                assert await caller.get("echo", done["id"]) == done  # reads go on
                assert len((await caller.tasks("ask"))[0]) == 1
                assert (await caller.replay("echo", done["id"]))[-1].state == "TASK_STATE_COMPLETED"
                assert (await caller.get("count", running["id"]))["status"]["state"] in RUNNING
                assert (await caller.read("/health"))["status"] == "ok"
                reason = (await unready(caller)).body["reason"]
                assert re.fullmatch(rf"the store cannot be written: {REASON}; \d+ writes failed since \S+", reason)
                disk.empty()
    assert frame.state == "TASK_STATE_COMPLETED"  # the run waited, and wrote what it had to say
    assert text_of(await caller.get("count", running["id"])) == "".join(f"{number} " for number in range(40))
    assert seen == await caller.replay("count", running["id"])

    first = await caller.send("echo", said)  # the same message again: the first time it was not taken
    assert text_of(first) == BIG
    assert (await caller.send("echo", said))["id"] == first["id"]
    await ready(caller)
    waiting = await caller.send("ask", message("one", task_id=waiting["id"]))
    answered = await caller.send("ask", message("two", task_id=waiting["id"]))
    assert text_of(answered) == "one, two"
    tasks, total = await caller.tasks("echo")
    assert len(tasks) == total == 2
    assert {task["id"] for task in tasks} == {done["id"], first["id"]}


def told_once(server: Server) -> int:
    """How many writes failed, as the log says it in the one line that an outage ends with; it began with one, too."""
    lines = [line for line in server.said().splitlines() if " dragoman.store: " in line]
    begun, over = lines
    assert re.search(rf" error +dragoman\.store: the store cannot be written: {REASON}\. Callers get 503", begun)
    (failed,) = re.findall(
        r" info +dragoman\.store: store \S+ can be written again: (\d+) writes failed in [\d.]+ s", over
    )
    return int(failed)


async def stream(caller: Caller, text: str) -> None:
    """A stream that must not begin."""
    async with caller.stream("echo", message(text)):
        raise AssertionError("it began")


async def unready(caller: Caller) -> Refusal:
    """The answer of `/ready` once it has noticed."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await caller.read("/ready")
            except Refusal as refusal:
                refusal.must_be("unavailable")
                return refusal
            await asyncio.sleep(0.1)


async def ready(caller: Caller) -> None:
    """Wait until `/ready` says so."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await caller.read("/ready")
                return
            except Refusal:
                await asyncio.sleep(0.1)


async def test_files_that_cannot_grow_are_an_error_that_passes(serve: Serve, call: Call, store: Path) -> None:
    server = await serve()
    caller = call(server)
    await goes_through(caller, FileSizeLimit(server, store))
    failed = told_once(server)
    assert failed >= 4
    page = await caller.read_text("/metrics")
    assert f"\ndragoman_store_writes_failed_total {failed:.1f}\n" in page
    server.signal()
    assert await server.ended() == 0


async def test_a_result_for_which_there_is_no_space_is_kept_until_there_is(
    serve: Serve, call: Call, store: Path
) -> None:
    server = await serve("--blocking-timeout-s", "3")
    caller, disk = call(server), FileSizeLimit(server, store)
    text = "0123456789" * 90_000
    said = message(text)
    disk.fill(1_200_000)  # enough for the message, not for the answer
    async with asyncio.timeout(ANSWERED_S):
        late = await refused(caller.send("echo", said))
    task_id = late.body["error"]["details"][0]["metadata"]["taskId"]  # it was taken, and goes on when there is space
    async with asyncio.timeout(ANSWERED_S):
        await refused(caller.send("echo", message(text)))
    assert (await caller.get("echo", task_id))["status"]["state"] in RUNNING
    disk.empty()
    assert (await caller.replay("echo", task_id))[-1].state == "TASK_STATE_COMPLETED"
    again = await caller.send("echo", said)
    assert (again["id"], text_of(again)) == (task_id, text)
    await server.kill()
    assert text_of(await call(await serve()).get("echo", task_id)) == text


async def test_a_full_filesystem_is_an_error_that_passes(serve: Serve, call: Call, store: Path) -> None:
    unshare = namespace()
    if not unshare:
        pytest.skip("no mounts of one's own on this machine")
    store.parent.mkdir()
    mount = f'mount -t tmpfs -o size={SIZE} none "$0" && exec "$@"'
    server = await serve(prefix=(*unshare, "sh", "-c", mount, str(store.parent)))
    inside = Path(f"/proc/{server.pid}/root{store}")
    assert os.stat(inside.parent).st_dev != os.stat(store.parent).st_dev
    await goes_through(call(server), SmallFilesystem(server, store))
    assert told_once(server) >= 4
    for path in inside.parent.iterdir():  # the filesystem goes with the process
        shutil.copy(path, store.parent)
    assert check(store) == []
    server.signal()
    assert await server.ended() == 0


async def test_killed_while_the_disk_is_full_it_starts_when_there_is_space_and_nothing_is_lost(
    serve: Serve, call: Call, store: Path
) -> None:
    server = await serve()
    caller, disk = call(server), FileSizeLimit(server, store)
    done = [await caller.send("echo", message(f"before {number}")) for number in range(20)]
    running = await caller.send("again", message("20 every 0.02"), at_once=True)
    disk.fill()
    await refused(caller.send("echo", message(BIG)))
    await server.kill()
    assert check(store) == []
    still_full = ("sh", "-c", 'ulimit -S -f 1 && exec "$0" "$@"')
    server = await serve(prefix=still_full, wait=False)  # the end of `running` cannot be written
    assert await server.ended() == 1
    assert server.said().startswith("dragoman: store ")
    assert check(store) == []
    caller = call(await serve())
    for task in done:
        assert await caller.get("echo", task["id"]) == task
    await caller.replay("again", running["id"])
    task = await caller.get("again", running["id"])
    assert text_of(task) == "".join(f"{number} " for number in range(20))


async def test_stopped_while_the_disk_is_full_it_ends_in_time_and_nothing_is_lost(
    serve: Serve, call: Call, store: Path
) -> None:
    server = await serve("--shutdown-grace-s", "2")
    caller, disk = call(server), FileSizeLimit(server, store)
    done = await caller.send("echo", message("before"))
    lost = await caller.send("count", message("900 every 0.05"), at_once=True)
    again = await caller.send("again", message("20 every 0.02"), at_once=True)
    disk.fill()
    await refused(caller.send("echo", message(BIG)))
    server.signal()
    async with asyncio.timeout(ANSWERED_S):
        assert await server.ended() == 0
    caller = call(await serve())
    assert await caller.get("echo", done["id"]) == done
    assert (await caller.get("count", lost["id"]))["status"]["state"] == "TASK_STATE_FAILED"
    await caller.replay("again", again["id"])
    assert text_of(await caller.get("again", again["id"])) == "".join(f"{number} " for number in range(20))


async def test_webhooks_wait_while_there_is_no_space_and_all_arrives_once(
    serve: Serve, call: Call, store: Path
) -> None:
    server = await serve("--push-allowed-cidrs", "127.0.0.0/8")
    caller, disk = call(server), FileSizeLimit(server, store)
    async with receiving() as receiver:
        receiver.hold.clear()
        body = {"message": message("3 every 0"), "configuration": {"taskPushNotificationConfig": {"url": receiver.url}}}
        task = (await caller.post("/agents/count/message:send", body))["task"]
        async with asyncio.timeout(DEADLINE_S):
            await receiver.came(1)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))  # not even a little goes
        receiver.hold.set()  # it has arrived, and that cannot be noted
        await unready(caller)
        assert len(receiver.asked) == 1
        disk.empty()
        async with asyncio.timeout(DEADLINE_S):
            while b"TASK_STATE_COMPLETED" not in receiver.bodies[-1]:
                await receiver.came(len(receiver.asked) + 1)
        assert await caller.get("count", task["id"]) == task
    names = [asked.headers["webhook-id"] for asked in receiver.asked]
    assert len(set(names)) == len(names), "none was called again"
    server.signal()
    assert await server.ended() == 0
