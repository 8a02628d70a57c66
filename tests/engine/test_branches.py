"""Numbered words of an agent whose branches work at the same time, whenever its server is killed."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from dragoman.agents.python.memory import Memory
from dragoman.engine.api import Run
from dragoman.engine.words import Delegation, Step, StepDone
from dragoman.model.events import Logged, StatusChanged, Stepped
from dragoman.model.ids import SystemClock
from dragoman.model.message import Part
from dragoman.model.operations import ListTasks
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskState
from dragoman.store.open import open_store
from tests.engine.house import House, Scripted, echo, house, say
from tests.kit.waiting import until
from tests.soak import times

S = TaskState

BRANCHES = 5
WORDS = 3


MIXES: dict[str, dict[str, int]] = {
    "questions and delegations": {"question": 6, "delegation": 4},
    "steps": {"step": 1},
    "all words": {"question": 3, "delegation": 3, "step": 4},
}
"""How often each kind of word is told."""


class Travel:
    """An agent with five branches, each of which tells three words, at moments that differ in each run."""

    def __init__(self, seed: int, port: int, mix: Mapping[str, int]) -> None:
        self.random = Random(seed)
        self.port = port
        self.kinds: dict[str, str] = {
            self.words(branch, word): self.random.choices(list(mix), list(mix.values()))[0]
            for branch in range(BRANCHES)
            for word in range(WORDS)
        }
        self.executed: defaultdict[str, list[str]] = defaultdict(list)
        """The keys with which each step was executed."""
        self.recorded: set[str] = set()
        """The steps that the log held when the last life of the server had ended."""

    def of_kind(self, kind: str) -> Counter[str]:
        """Each word of that kind, once."""
        return Counter(words for words, its_kind in self.kinds.items() if its_kind == kind)

    @staticmethod
    def words(branch: int, word: int) -> str:
        return f"branch {branch} word {word}"

    async def __call__(self, run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            branches = [group.create_task(self.work(run, branch)) for branch in range(BRANCHES)]
        await say(run, " | ".join(branch.result() for branch in branches), "all", last=True)

    async def work(self, run: Run, branch: int) -> str:
        heard: list[str] = []
        for word in range(WORDS):
            await self.dawdle()
            said = self.words(branch, word)
            heard.append(await self.tell(run, said))
            await say(run, f"{word}.", f"branch-{branch}")
            await say(run, f"{said}. ", "shared")
        return ", ".join(heard)

    async def tell(self, run: Run, said: str) -> str:
        match self.kinds[said]:
            case "question":
                return (await run.ask((Part(text=said),))).text
            case "delegation":
                return (await run.delegate(Delegation(agent="other", parts=(Part(text=said),)))).text
            case _:

                async def execute(key: str) -> StepDone:
                    assert said not in self.recorded
                    self.executed[said].append(key)
                    await self.dawdle()
                    return StepDone((Part(text=said),), "text")

                return (await run.step(Step("work"), execute)).result[0].text or ""

    async def dawdle(self) -> None:
        """Take a random time, and start tasks that tell nothing, a random number of them."""
        for _ in range(self.random.randrange(3)):
            await asyncio.wait_for(asyncio.sleep(self.random.random() * 0.002), 60)
        if self.random.random() < 0.2:
            await asyncio.wait_for(self.connect(), 60)

    async def connect(self) -> None:
        _, writer = await asyncio.open_connection("localhost", self.port)
        writer.close()


async def answer_questions(h: House, task_id: str) -> Record:
    """Answer each question with its own words, until the task has ended."""
    while (task := await h.reach(task_id, *INTERRUPTED, *TERMINAL)).state not in TERMINAL:
        assert task.status.message is not None
        await h.send(task.status.message.text, task_id=task_id, return_immediately=True)
    return task


def steps_of(log: Sequence[Logged]) -> Counter[str]:
    """The steps that a log holds, by what they gave."""
    return Counter(item.event.result[0].text or "" for item in log if isinstance(item.event, Stepped))


async def recorded(url: str, task_id: str) -> set[str]:
    """The same, read while no server runs."""
    store = open_store(url, SystemClock())
    await store.open("between")
    try:
        return set(steps_of(await store.read(task_id, 0, 1 << 30)))
    finally:
        await store.close()


@pytest.mark.parametrize("mix", MIXES)
async def test_branches_are_told_apart_whenever_the_server_is_killed(tmp_path: Path, mix: str) -> None:
    """No branch gets the outcome of another one, nothing is recorded twice, and no recorded step is executed."""
    doors = await asyncio.start_server(lambda _, writer: writer.close(), "localhost", 0)
    port: int = doors.sockets[0].getsockname()[1]
    kills = Random()
    try:
        for seed in range(times(10, 1000)):
            agent = Travel(seed, port, MIXES[mix])
            agents = Scripted(agent, restartable=True), Scripted(echo, "other", restartable=True)
            url = f"sqlite:///{tmp_path}/{seed}.db"
            async with house(*agents, url=url, crashes=True) as h:
                task_id = await h.begin()
                await asyncio.sleep(kills.random() * 0.02)
            for lives in range(3):
                agent.recorded = await recorded(url, task_id)
                async with house(*agents, url=url, crashes=True) as h:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(kills.random() * 0.05 * lives):
                            await answer_questions(h, task_id)
            agent.recorded = await recorded(url, task_id)
            async with house(*agents, url=url) as h:
                task = await answer_questions(h, task_id)
                assert task.state is S.COMPLETED, (seed, task.status)
                texts = {
                    artifact.artifact_id: "".join(p.text or "" for p in artifact.parts) for artifact in task.artifacts
                }
                assert texts["all"] == " | ".join(
                    ", ".join(agent.words(branch, word) for word in range(WORDS)) for branch in range(BRANCHES)
                )
                for branch in range(BRANCHES):
                    assert texts[f"branch-{branch}"] == "0.1.2.", (seed, texts)
                for said in agent.kinds:
                    assert f"{said}. " in texts["shared"], (seed, texts["shared"])
                log = await h.log(task_id)
                asked = Counter(
                    item.event.message.text
                    for item in log
                    if isinstance(item.event, StatusChanged) and item.event.state in INTERRUPTED and item.event.message
                )
                assert asked == agent.of_kind("question"), seed
                assert steps_of(log) == agent.of_kind("step"), seed
                for said in agent.of_kind("step"):
                    assert len(set(agent.executed[said])) == 1, (seed, said, agent.executed)
                delegated = await h.listed(ListTasks(page_size=100), agent="other")
                assert Counter(each.history[0].text for each in delegated.records) == agent.of_kind("delegation"), seed
    finally:
        doors.close()
        await doors.wait_closed()


async def test_a_change_of_memory_is_known_as_such_until_it_is_on_record() -> None:
    """A failover may lose it, and nothing of the log. An open question keeps it off the record."""
    asks = asyncio.Event()

    async def script(run: Run) -> None:
        memory = Memory(run)

        async def change() -> None:
            await asks.wait()
            await memory.set("k", 1)

        async with asyncio.TaskGroup() as group:
            group.create_task(run.ask((Part(text="Which?"),)))
            group.create_task(change())

    async with house(Scripted(script, restartable=True)) as h:
        task_id = (await h.send()).head.id
        (log,) = (task for task in h.engine.tasks.all() if task.head.id == task_id)
        assert not log.followers.remembers_more(log)
        asks.set()
        await until(lambda: log.followers.remembers_more(log))
        assert (await h.send("this", task_id=task_id)).state is S.COMPLETED
        assert not log.followers.remembers_more(log)
