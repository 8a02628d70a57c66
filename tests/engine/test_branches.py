"""Questions and delegations of an agent whose branches work at the same time, whenever its server is killed."""

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

from dragoman.engine.api import Run
from dragoman.engine.words import Delegation
from dragoman.model.events import StatusChanged
from dragoman.model.message import Part
from dragoman.model.operations import ListTasks
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskState
from tests.engine.house import House, Scripted, echo, house, say
from tests.soak import times

S = TaskState

BRANCHES = 5
WORDS = 3


class Travel:
    """An agent with five branches, each of which asks or delegates three times, at moments that differ in each run."""

    def __init__(self, seed: int, port: int) -> None:
        self.random = Random(seed)
        self.delegates = {
            (branch, word): self.random.random() < 0.4 for branch in range(BRANCHES) for word in range(WORDS)
        }
        self.port = port

    @property
    def orders(self) -> set[str]:
        return {self.words(*word) for word, delegates in self.delegates.items() if delegates}

    @property
    def questions(self) -> set[str]:
        return {self.words(*word) for word, delegates in self.delegates.items() if not delegates}

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
            if self.delegates[branch, word]:
                heard.append((await run.delegate(Delegation(agent="other", parts=(Part(text=said),)))).text)
            else:
                heard.append((await run.ask((Part(text=said),))).text)
            await say(run, f"{word}.", f"branch-{branch}")
            await say(run, f"{said}. ", "shared")
        return ", ".join(heard)

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


async def test_branches_are_told_apart_whenever_the_server_is_killed(tmp_path: Path) -> None:
    """No branch gets the answer of another one, and nothing is asked or delegated twice."""
    doors = await asyncio.start_server(lambda _, writer: writer.close(), "localhost", 0)
    port: int = doors.sockets[0].getsockname()[1]
    kills = Random()
    try:
        for seed in range(times(20, 1000)):
            agent = Travel(seed, port)
            agents = Scripted(agent, restartable=True), Scripted(echo, "other", restartable=True)
            url = f"sqlite:///{tmp_path}/{seed}.db"
            async with house(*agents, url=url, crashes=True) as h:
                task_id = await h.begin()
                await asyncio.sleep(kills.random() * 0.02)
            for lives in range(3):
                async with house(*agents, url=url, crashes=True) as h:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(kills.random() * 0.05 * lives):
                            await answer_questions(h, task_id)
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
                for said in agent.questions | agent.orders:
                    assert f"{said}. " in texts["shared"], (seed, texts["shared"])
                asked = Counter(
                    item.event.message.text
                    for item in await h.log(task_id)
                    if isinstance(item.event, StatusChanged) and item.event.state in INTERRUPTED and item.event.message
                )
                assert asked == Counter(agent.questions), seed
                delegated = await h.listed(ListTasks(page_size=100), agent="other")
                assert Counter(each.history[0].text for each in delegated.records) == Counter(agent.orders), seed
    finally:
        doors.close()
        await doors.wait_closed()
