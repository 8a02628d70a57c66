"""How much of Dragoman's own code a send, a streamed event and a worker's word pass.

`python bench/calls.py [TREE] [--list]`

A server runs in this process, on SQLite, with one caller who sends raw HTTP over loopback. The interpreter's profile
hook counts the calls of Python functions of the package in all threads, a resumed coroutine as another call. Prints
the calls, the distinct functions, and the distinct modules, for one blocking SendMessage, for one event of a stream
whose agent pauses before each chunk, so that each is written and sent alone, and for one numbered word of a worker who
is alone. TREE is another tree of Dragoman's sources. With --list each function follows, with its calls for one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).parent
SENDS = 200
FEW_EVENTS, MANY_EVENTS = 50, 350
PAUSE_S = 0.01
WORDS = 200


class Calls:
    """Counts the calls of functions whose file lies below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}/"
        self._ours: dict[CodeType, bool] = {}
        self.counted: Counter[CodeType] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if (ours := self._ours.get(code)) is None:
            ours = self._ours[code] = code.co_filename.startswith(self._folder)
        if ours:
            self.counted[code] += 1

    async def during(self, work: Callable[[], Awaitable[None]]) -> Counter[CodeType]:
        """What is called while that is done."""
        before = self.counted.copy()
        await work()
        return self.counted - before


class Caller:
    """A caller with one connection, which it keeps."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, agent: str, method: str, text: str) -> bytes:
        """Send a message, and return the body of the answer, which may be a stream."""
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        params = {"message": message, "configuration": {"returnImmediately": agent == "work"}}
        return await self.post(f"/agents/{agent}", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    async def post(self, path: str, content: dict[str, Any]) -> bytes:
        """Post JSON, and return the body of the answer."""
        body = json.dumps(content).encode()
        lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json")
        head = "\r\n".join((*lines, "A2A-Version: 1.0", f"Content-Length: {len(body)}", "", ""))
        self._writer.write(head.encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if not answer.startswith(b"http/1.1 200"):
            raise SystemExit(f"{path}: {answer.splitlines()[0].decode()}")
        if b"content-length:" in answer:
            length = int(answer.partition(b"content-length:")[2].partition(b"\r")[0])
            return await self._reader.readexactly(length)
        pieces = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            pieces.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(pieces)


async def counted(calls: Calls, directory: str) -> None:
    """Serve three agents, and print a line for each of the three."""
    from dragoman import Agent, Context
    from dragoman.agents.worker.agent import WorkerAgent
    from dragoman.config import Config
    from dragoman.model.card import Profile
    from dragoman.server import serving

    echo = Agent("echo", description="Gives back the parts it got", version="1.0.0")
    chunks = Agent("chunks", description="Yields as many chunks as the text says", version="1.0.0")

    @echo.skill("echo", tags=["bench"])
    async def run_echo(ctx: Context) -> Any:
        return ctx.parts

    @chunks.skill("chunks", tags=["bench"])
    async def run_chunks(ctx: Context) -> AsyncIterator[str]:
        for i in range(int(ctx.text)):
            await asyncio.sleep(PAUSE_S)
            yield f"chunk {i:06d} "

    profile = Profile(id="work", name="work", description="Waits for workers", version="1.0.0", skills=())
    work = WorkerAgent(profile, queues=True, lease_s=3600)

    config = Config(port=0, store=f"sqlite:///{directory}/bench.db", shutdown_grace_s=0)
    async with serving(config, [echo, chunks, work]) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2].strip("/")))
        caller = Caller(reader, writer)

        async def sends() -> None:
            for _ in range(SENDS):
                if b"TASK_STATE_COMPLETED" not in await caller.send("echo", "SendMessage", "hi"):
                    raise SystemExit("a task was not completed")

        async def stream(events: int) -> None:
            came = await caller.send("chunks", "SendStreamingMessage", str(events))
            if came.count(b"artifactUpdate") < events:
                raise SystemExit(f"{came.count(b'artifactUpdate')} events came of {events}")

        async def words() -> None:
            for number in range(told + 1, told + WORDS + 1):
                artifact = {"artifactId": "a", "parts": [{"text": f"chunk {number:06d} "}]}
                said = {"lease": lease, "number": number, "artifact": artifact, "append": number > 1}
                await caller.post("/workers/work/artifact", said)

        await sends()
        await stream(FEW_EVENTS)
        await caller.send("work", "SendMessage", "begin")
        lease = json.loads(await caller.post("/workers/work/lease", {"worker": "bench", "wait_s": 30}))["lease"]
        told = 0
        await words()
        told = WORDS
        one = await calls.during(sends)
        few = await calls.during(lambda: stream(FEW_EVENTS))
        many = await calls.during(lambda: stream(MANY_EVENTS))
        said = await calls.during(words)
        writer.close()
    print(line("a blocking SendMessage", one, SENDS))
    print(line("a streamed event", many - few, MANY_EVENTS - FEW_EVENTS))
    print(line("a worker's word", said, WORDS))


def line(what: str, calls: Counter[CodeType], times: int) -> str:
    """The calls for one of so many. A function that is called less than once in two is not on its way."""
    usual = {code: count for code, count in calls.items() if count * 2 >= times}
    modules = {code.co_filename for code in usual}
    found = f"{what}: {calls.total() / times:.0f} calls, {len(usual)} functions, {len(modules)} modules"
    if "--list" not in sys.argv:
        return found
    named = {
        f"{code.co_filename.rpartition('/dragoman/')[2]} {code.co_qualname}": count for code, count in calls.items()
    }
    return "\n".join((found, *(f"  {count / times:6.2f} {name}" for name, count in sorted(named.items()))))


def main() -> None:
    trees = [each for each in sys.argv[1:] if each != "--list"]
    source = Path(trees[0] if trees else HERE.parent).resolve() / "src"
    sys.path.insert(0, str(source))
    import dragoman

    package = Path(dragoman.__file__).parent
    if package.parent != source:
        sys.exit(f"{source} has no package dragoman")
    calls: Any = Calls(package)
    threading.setprofile(calls)
    sys.setprofile(calls)
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as directory:
        asyncio.run(counted(calls, directory))


if __name__ == "__main__":
    main()
