"""TaskView: what a task's log says to the words of one worker."""

from typing import Any, cast

from dragoman.agents.worker.task_cache import CachedTask
from dragoman.agents.worker.task_view import TaskView
from dragoman.model.events import ArtifactChunk, Logged, MessageReceived, Noted
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import Record
from dragoman.store.api import Appended
from tests.agents.worker.test_worker import done, taken, token, worker
from tests.engine.house import house


async def test_only_the_first_chunk_of_an_artifact_needs_the_task_as_it_stands() -> None:
    agent, joined = worker(), 0
    async with house(agent) as here:
        task_id = await here.begin()
        item = await taken(agent)
        record = await here.get(task_id)
        view = TaskView(item.head, await here.log(task_id), item.lease, delivered=0)

        def stands() -> Record:
            nonlocal joined
            joined += 1
            return record

        for number in range(100):
            piece = Artifact(artifact_id="a", parts=(Part(text=str(number)),))
            chunk = view.chunk(ArtifactChunk(piece, append=True), stands)
            assert chunk == ArtifactChunk(piece, number > 0, False)
            view.add(Logged(view.seq + 1, chunk))
        assert joined == 1
        await here.ask(done(task_id, token(item)))


async def test_a_missed_message_is_left_to_be_read_with_the_bytes_of_its_files() -> None:
    agent, nothing = worker(), cast(Any, None)
    async with house(agent) as here:
        task_id = await here.begin()
        item = await taken(agent)
        view = TaskView(item.head, await here.log(task_id), item.lease, delivered=0)
        known, seq = CachedTask(nothing, nothing, item.lease, view, 0), view.seq
        said = Message(message_id="m", role=Role.USER, parts=(Part(text="this"),))
        missed = Logged(seq + 1, Noted({})), Logged(seq + 2, MessageReceived(said, "")), Logged(seq + 3, Noted({}))
        known.add((Noted({}),), item.lease, Appended(seq + 4, 2, 1, missed))
        assert view.seq == seq + 1
        await here.ask(done(task_id, token(item)))
