"""The calls of webhooks, and the operations on them (A2A 1.0 §3.1.7 to §3.1.10)."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.engine.api import Run
from dragoman.engine.rules import WEBHOOKS_MAX
from dragoman.model.errors import InvalidParams, TaskNotFound, Unavailable, UnsupportedOperation
from dragoman.model.events import ArtifactChunk, Logged, StatusChanged, Submitted
from dragoman.model.lifecycle import fold
from dragoman.model.message import Part
from dragoman.model.operations import (
    CreatePushConfig,
    DeletePushConfig,
    GetPushConfig,
    ListPushConfigs,
    Manners,
    PushConfig,
    Subscribe,
)
from dragoman.model.task import Record, TaskState
from tests.engine.house import DEADLINE_S, House, Scripted, call, echo, forever, house, read, say, streaming, text_of
from tests.engine.webhook import REFUSED, FullOutbox, Telling, calls, told

S = TaskState
HOOK = "https://hooks.example/a"
OTHER = "https://hooks.example/b"
UUID = "0190b0a0-0000-7000-8000-000000000001"

SUBMITTED, WORKING = ("Submitted", "submitted"), ("StatusChanged", "working")
WHOLE = ("ArtifactChunk", "working")


def ended(state: str) -> tuple[str, str]:
    return "StatusChanged", state


def at(url: str = HOOK, **said: str) -> PushConfig:
    return PushConfig(url=url, **said)


def create(task_id: str, url: str = HOOK, **said: str) -> CreatePushConfig:
    return CreatePushConfig(config=PushConfig(url=url, task_id=task_id, **said))


async def configs(h: House, task_id: str) -> list[tuple[str, str]]:
    return [(each.id, each.url) for each in await h.ask(ListPushConfigs(task_id=task_id))]


async def ask_once(run: Run) -> None:
    await say(run, (await run.ask((Part(text="?"),))).text, last=True)


# -- what is told ------------------------------------------------------------------------------------------------------


async def test_each_status_and_each_artifact_that_is_whole_is_told_once_and_in_order() -> None:
    async def script(run: Run) -> None:
        await say(run, "one, ", "a")
        await run.status((Part(text="half of it"),))
        await say(run, "two", "a", last=True)
        await say(run, "left open", "b")
        await say(run, "at once", "c", append=False, last=True)
        await run.written()
        await say(run, "open too", "d")

    telling = Telling()
    async with house(Scripted(script), announcer=telling) as h:
        await h.send(push_config=at())
        bodies = await calls(h)
    assert told(bodies) == [SUBMITTED, WORKING, WORKING, WHOLE, WHOLE, ended("completed")]
    assert [each["whole"] for each in bodies] == [[], [], [], ["a"], ["c"], ["b", "d"]]
    assert [each["seq"] for each in bodies] == [1, 2, 4, 5, 7, 9]
    assert [each["texts"].get("a") for each in bodies] == [None, None, "one, ", "one, two", "one, two", "one, two"]
    assert bodies[-1]["texts"] == {"a": "one, two", "b": "left open", "c": "at once", "d": "open too"}
    assert telling.wakes


async def test_what_is_told_is_written_with_its_event(tmp_path: Path) -> None:
    """One transaction: a crash leaves the same part of the log and of the outbox."""
    url = f"sqlite:///{tmp_path}/tasks.db"

    async def script(run: Run) -> None:
        for number in range(1000):
            await say(run, "x", f"a{number}", append=False, last=True)
            await asyncio.sleep(0)

    async with house(Scripted(script), url=url, crashes=True, announcer=Telling()) as h:
        task_id = await h.begin(push_config=at())
        stream = await h.open(Subscribe(id=task_id), after="0")
        await read(stream, until=lambda items: len(items) >= 20)
        stream.close()
    async with house(Scripted(script), url=url, announcer=Telling()) as h:
        log = await h.log(task_id)
        assert [each["seq"] for each in await calls(h)] == [logged.seq for logged in log]
    assert len(log) >= 20


async def test_an_event_that_was_refused_is_not_told() -> None:
    """The effects of an agent after its task was canceled reach neither log nor webhook."""
    let_go, over = asyncio.Event(), asyncio.Event()

    async def stubborn(run: Run) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        try:
            await say(run, "too late", last=True)
        finally:
            over.set()

    async with house(Scripted(stubborn), cancel_grace_s=0.02, announcer=Telling()) as h:
        task_id = await h.at_work(push_config=at())
        await h.cancel(task_id)
        let_go.set()
        await over.wait()
        assert told(await calls(h)) == [SUBMITTED, WORKING, ended("canceled")]


async def test_an_event_that_had_to_be_written_twice_is_told_once() -> None:
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await go.wait()
        await echo(run)

    async with house(Scripted(script), announcer=Telling(), retry_s=0.01) as h:
        task_id = await h.at_work(push_config=at())
        h.store.full = 3
        go.set()
        await h.reach(task_id, S.COMPLETED)
        assert told(await calls(h)) == [SUBMITTED, WORKING, WHOLE, ended("completed")]


async def test_a_message_while_the_agent_speaks_is_in_what_is_told_after_it() -> None:
    """Appends of callers and of the run take turns: each record is the task up to its event."""

    async def script(run: Run) -> None:
        for number in range(50):
            await say(run, ".", "a")
            await run.status((Part(text=str(number)),))
            await asyncio.sleep(0)

    telling = Telling()
    async with house(Scripted(script), announcer=telling) as h:
        task_id = await h.begin(push_config=at())
        sends = [h.begin(f"m{number}", task_id=task_id) for number in range(10)]
        await asyncio.gather(*sends, return_exceptions=True)
        await h.reach(task_id, S.COMPLETED)
        log = await h.log(task_id)
    tellable = [logged for logged in log if isinstance(logged.event, StatusChanged | Submitted)]
    assert [step.seq for step in telling.steps] == [logged.seq for logged in tellable]
    for step in telling.steps:
        assert step.stands() == folded(step.stands(), log)


def folded(record: Record, log: list[Logged]) -> Record:
    return fold(record.head, None, [logged for logged in log if logged.seq <= record.seq])


async def test_tasks_without_webhooks_tell_nothing() -> None:
    telling = Telling()
    async with house(announcer=telling) as h:
        await h.send()
        assert await calls(h) == []
    assert (telling.steps, telling.wakes, telling.checked) == ([], 0, [])


@pytest.mark.parametrize("restartable", [False, True])
async def test_the_end_of_a_task_whose_run_died_is_told(tmp_path: Path, restartable: bool) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with house(Scripted(forever), url=url, crashes=True, announcer=Telling()) as h:
        task_id = await h.begin(push_config=at())
        stream = await h.open(Subscribe(id=task_id), after="0")
        await read(stream, until=lambda items: len(items) >= 3)
        stream.close()
        assert told(await calls(h)) == [SUBMITTED, WORKING]
    async with house(Scripted(echo, restartable=restartable), url=url, announcer=Telling()) as h:
        await h.reach(task_id, S.COMPLETED, S.FAILED)
        bodies = await calls(h)
    if restartable:
        assert told(bodies) == [WORKING, WHOLE, ended("completed")]
    else:
        assert told(bodies) == [ended("failed")]
        assert bodies[0]["whole"] == ["a"]


async def test_a_cancel_and_a_drain_are_told(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with house(Scripted(forever), url=url, grace_s=0.2, announcer=Telling()) as h:
        canceled = await h.begin(push_config=at())
        await h.reach(canceled, S.WORKING)
        await h.cancel(canceled)
        assert told(await calls(h)) == [SUBMITTED, WORKING, ended("canceled")]
        drained = await h.begin(push_config=at(OTHER))
        await h.reach(drained, S.WORKING)
    async with house(url=url, announcer=Telling()) as h:
        assert told(await calls(h)) == [SUBMITTED, WORKING, ended("failed")]


async def test_what_cannot_be_rendered_keeps_no_task_from_going_on(caplog: pytest.LogCaptureFixture) -> None:
    telling = Telling()
    async with house(Scripted(ask_once), announcer=telling) as h:
        task_id = (await h.send(push_config=at())).head.id
        telling.broken = True
        assert (await h.send("yes", task_id=task_id)).state is S.COMPLETED
    assert "a fault of ours" in caplog.text


# -- with a message ----------------------------------------------------------------------------------------------------


async def test_a_webhook_that_came_with_the_first_message_belongs_to_its_task() -> None:
    telling = Telling()
    async with house(announcer=telling) as h:
        task = await h.send(push_config=at(token="t", task_id="made up"))
        assert await configs(h, task.head.id) == [(task.head.id, HOOK)]
        kept = await h.store.outbox.configs(task.head.id)
        assert (kept[0].task_id, kept[0].dialect, kept[0].token) == (task.head.id, "1.0", "t")
    assert telling.checked == [("configuration.taskPushNotificationConfig.url", HOOK)]


async def test_a_stream_may_bring_a_webhook_too() -> None:
    async with house(announcer=Telling()) as h:
        await read(await h.open(streaming("hi", push_config=at())))
        assert told(await calls(h)) == [SUBMITTED, WORKING, WHOLE, ended("completed")]


async def test_a_message_with_a_webhook_that_may_not_be_called_makes_no_task() -> None:
    async with house(announcer=Telling()) as h:
        with pytest.raises(InvalidParams, match=r"configuration\.taskPushNotificationConfig\.url: http://10"):
            await h.send(push_config=at(REFUSED))
        assert (await h.listed()).total_size == 0
        with pytest.raises(InvalidParams, match=r"taskPushNotificationConfig\.id: must have at most"):
            await h.send(push_config=at(id="x" * 1000))


async def test_a_webhook_that_comes_with_an_answer_is_told_from_there() -> None:
    async with house(Scripted(ask_once), announcer=Telling()) as h:
        task_id = (await h.send()).head.id
        await h.send("yes", task_id=task_id, push_config=at())
        bodies = await calls(h)
    assert told(bodies) == [WORKING, WHOLE, ended("completed")]
    assert bodies[0]["seq"] == 5


async def test_a_webhook_that_comes_with_a_further_message_is_told_how_the_task_stands() -> None:
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await say(run, "so far")
        await run.written()
        await go.wait()

    async with house(Scripted(script), announcer=Telling()) as h:
        task_id = await h.begin(push_config=at())
        stream = await h.open(Subscribe(id=task_id), after="0")
        await read(stream, until=lambda items: any(isinstance(item.event, ArtifactChunk) for item in items))
        stream.close()
        await h.begin("more", task_id=task_id, push_config=at(OTHER, id="other"))
        go.set()
        await h.reach(task_id, S.COMPLETED)
        bodies = await calls(h)
    assert told(bodies, HOOK) == [SUBMITTED, WORKING, ended("completed")]
    assert told(bodies, OTHER) == [("none", "working"), ended("completed")]
    assert next(each for each in bodies if each["to"] == OTHER)["texts"] == {"a": "so far"}


@pytest.mark.parametrize("refusing", [False, True])
async def test_a_repeated_message_writes_nothing_again_even_if_its_webhook_is_refused_by_now(refusing: bool) -> None:
    telling = Telling()
    async with house(Scripted(ask_once), announcer=telling) as h:
        first = await h.send("hi", message_id=UUID, push_config=at())
        telling.refusing = refusing
        again = await h.send("hi", message_id=UUID, push_config=at(), return_immediately=True)
        assert again.head.id == first.head.id
        assert told(await calls(h)) == [SUBMITTED, WORKING, ended("input-required")]
        telling.refusing, telling.checked = False, []
        answer = {"task_id": first.head.id, "message_id": UUID[:-1] + "2", "push_config": at(OTHER, id="b")}
        await h.send("yes", **answer)
        await h.send("yes", **answer, return_immediately=True)
        assert len(telling.checked) == 1
        assert told(await calls(h), OTHER) == [WORKING, WHOLE, ended("completed")]


async def test_a_message_that_names_another_webhook_is_another_message() -> None:
    async with house(announcer=Telling()) as h:
        first = await h.send("hi", message_id=UUID, push_config=at())
        second = await h.send("hi", message_id=UUID, push_config=at(OTHER))
        assert first.head.id != second.head.id
        assert await configs(h, second.head.id) == [(second.head.id, OTHER)]
        around = {"idempotency_key": "k"}
        await h.send("hi", around=around, push_config=at())
        with pytest.raises(InvalidParams, match="Idempotency-Key"):
            await h.send("hi", around=around, push_config=at(OTHER))


async def test_an_agent_that_makes_no_task_has_nothing_to_tell_webhooks() -> None:
    async with house(Scripted(echo, direct=True), announcer=Telling()) as h:
        with pytest.raises(UnsupportedOperation, match=r"configuration\.taskPushNotificationConfig"):
            await h.send(push_config=at())
        kaos = await h.send(push_config=at(), around={"dialect": "kaos"})
        assert await configs(h, kaos.head.id) == [(kaos.head.id, HOOK)]


# -- operations --------------------------------------------------------------------------------------------------------


async def test_a_webhook_of_a_running_task_is_told_how_it_stands_and_what_follows() -> None:
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await say(run, "before", "a", last=True)
        await run.written()
        await go.wait()
        await say(run, "after", "b", last=True)

    async with house(Scripted(script), announcer=Telling()) as h:
        task_id = await h.begin()
        stream = await h.open(Subscribe(id=task_id), after="0")
        await read(stream, until=lambda items: any(isinstance(item.event, ArtifactChunk) for item in items))
        stream.close()
        made = await h.ask(create(task_id))
        assert (made.id, made.task_id, made.url) == (task_id, task_id, HOOK)
        go.set()
        await h.reach(task_id, S.COMPLETED)
        bodies = await calls(h)
    assert told(bodies) == [("none", "working"), WHOLE, ended("completed")]
    assert bodies[0]["texts"] == {"a": "before"}


async def test_an_agent_that_never_pauses_keeps_no_webhook_from_being_registered() -> None:
    """It is told how the task stood at one moment, and of every event after that one, none before."""
    stop = asyncio.Event()

    async def script(run: Run) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await say(run, "x", f"a{number % 50}", append=False, last=True)
            if run.record.seq % 7 == 0:
                await asyncio.sleep(0)

    async with house(Scripted(script), announcer=Telling()) as h:
        task_id = await h.at_work()
        await h.ask(create(task_id))
        await h.ask(create(task_id, OTHER, id="b"))
        stop.set()
        await h.reach(task_id, S.COMPLETED)
        bodies, log = await calls(h), await h.log(task_id)
    for url in (HOOK, OTHER):
        seqs = [each["seq"] for each in bodies if each["to"] == url]
        assert told(bodies, url)[0][0] == "none"
        assert seqs == list(range(seqs[0], log[-1].seq + 1))


async def test_a_webhook_of_an_ended_task_is_told_at_once() -> None:
    telling = Telling()
    async with house(announcer=telling) as h:
        task_id = (await h.send()).head.id
        await h.ask(create(task_id))
        bodies = await calls(h)
    assert told(bodies) == [("none", "completed")]
    assert bodies[0]["texts"] == {"a": "hi"}
    assert telling.wakes == 1


async def test_the_task_may_end_while_the_address_of_its_webhook_is_looked_up() -> None:
    telling = Telling()
    telling.held = asyncio.Event()
    async with house(Scripted(forever), announcer=telling) as h:
        task_id = await h.at_work()
        registering = asyncio.create_task(h.ask(create(task_id)))
        await asyncio.wait_for(telling.asked.wait(), DEADLINE_S)
        await h.cancel(task_id)
        telling.held.set()
        await registering
        assert told(await calls(h)) == [("none", "canceled")]


async def test_webhooks_of_others_are_not_found() -> None:
    """Invariant 9; and the address that a stranger names is not even looked up."""
    telling = Telling()
    async with house(Scripted(echo), Scripted(echo, "other"), announcer=telling) as h:
        task_id = (await h.send(push_config=at(id="h"))).head.id
        telling.checked.clear()
        for operation in (
            create(task_id, OTHER),
            GetPushConfig(task_id=task_id, id="h"),
            ListPushConfigs(task_id=task_id),
            DeletePushConfig(task_id=task_id, id="h"),
        ):
            for around in ({"owner": "eve"}, {"agent": "other"}):
                with pytest.raises(TaskNotFound) as refusal:
                    await h.ask(operation, **around)
                assert refusal.value.metadata == {"taskId": task_id}
        assert telling.checked == []
        assert await configs(h, task_id) == [("h", HOOK)]


async def test_a_webhook_of_the_same_id_takes_the_place_of_the_one_before() -> None:
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await go.wait()

    async with house(Scripted(script), announcer=Telling()) as h:
        task_id = await h.at_work(push_config=at())
        await calls(h)
        await h.ask(create(task_id, OTHER))
        assert await configs(h, task_id) == [(task_id, OTHER)]
        go.set()
        await h.reach(task_id, S.COMPLETED)
        bodies = await calls(h)
    assert told(bodies, HOOK) == []
    assert told(bodies, OTHER) == [("none", "working"), ended("completed")]


async def test_a_task_has_a_limited_number_of_webhooks() -> None:
    async with house(Scripted(ask_once), announcer=Telling()) as h:
        task_id = (await h.send()).head.id
        made = [h.ask(create(task_id, id=str(number))) for number in range(WEBHOOKS_MAX + 5)]
        outcomes = await asyncio.gather(*made, return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, InvalidParams)]
        assert len(refused) == 5
        assert refused[0].message.startswith(f"id: the task has {WEBHOOKS_MAX} webhooks")
        with pytest.raises(InvalidParams, match=r"configuration\.taskPushNotificationConfig\.id"):
            await h.send("yes", task_id=task_id, push_config=at(id="more"))
        assert (await h.get(task_id)).state is S.INPUT_REQUIRED
        await h.ask(create(task_id, OTHER, id="3"))
        assert len(await configs(h, task_id)) == WEBHOOKS_MAX
        await h.send("yes", task_id=task_id, push_config=at(OTHER, id="4"))


async def test_many_messages_at_once_bring_no_more_webhooks_than_there_may_be() -> None:
    stop = asyncio.Event()

    async def script(run: Run) -> None:
        await stop.wait()

    async with house(Scripted(script), announcer=Telling()) as h:
        task_id = await h.at_work()
        sends = [h.begin("more", task_id=task_id, push_config=at(id=f"m{number}")) for number in range(30)]
        made = [h.ask(create(task_id, id=f"c{number}")) for number in range(10)]
        outcomes = await asyncio.gather(*sends, *made, return_exceptions=True)
        assert {type(each) for each in outcomes if isinstance(each, BaseException)} == {InvalidParams}
        assert len(await configs(h, task_id)) == WEBHOOKS_MAX
        stop.set()
        await h.reach(task_id, S.COMPLETED)


async def test_a_deleted_webhook_is_told_nothing_more() -> None:
    """A2A 1.0 §3.1.10: and once more is the same."""
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await go.wait()

    async with house(Scripted(script), announcer=Telling()) as h:
        task_id = await h.begin(push_config=at(id="a"))
        await h.ask(create(task_id, OTHER, id="b"))
        await h.reach(task_id, S.WORKING)
        for _ in range(2):
            assert await h.ask(DeletePushConfig(task_id=task_id, id="a")) is None
        assert await configs(h, task_id) == [("b", OTHER)]
        await calls(h)
        go.set()
        await h.reach(task_id, S.COMPLETED)
        assert told(await calls(h)) == [ended("completed")]
        await h.ask(create(task_id, HOOK, id="a"))
        assert await h.ask(DeletePushConfig(task_id=task_id)) is None
        assert await configs(h, task_id) == []
        assert await calls(h) == []


async def test_what_nobody_is_told_of_is_not_rendered() -> None:
    telling = Telling()
    async with house(Scripted(ask_once), announcer=telling) as h:
        task_id = (await h.send(push_config=at())).head.id
        await h.ask(DeletePushConfig(task_id=task_id, id=task_id))
        telling.steps.clear()
        await h.send("yes", task_id=task_id)
    assert telling.steps == []


async def test_a_webhook_for_the_end_alone_costs_no_other_event_anything() -> None:
    telling = Telling()
    async with house(Scripted(ask_once), announcer=telling) as h:
        task_id = (await h.send(push_config=replace(at(), events=("completed",)))).head.id
        assert telling.steps == []
        await h.send("yes", task_id=task_id)
        assert told(await calls(h)) == [ended("completed")]
    assert len(telling.steps) == 1


async def test_a_webhook_is_shown_with_its_settings_and_without_its_secrets() -> None:
    """A2A 1.0 §3.1.8: and one that is not there is not found."""
    async with house(announcer=Telling()) as h:
        task_id = (await h.send()).head.id
        secrets = {"token": "tok", "credentials": "cred", "secret": "s3cret", "scheme": "Bearer"}
        answers = [
            await h.ask(create(task_id, id="a", **secrets)),
            await h.ask(GetPushConfig(task_id=task_id, id="a")),
            await h.ask(GetPushConfig(task_id=task_id)),
            *await h.ask(ListPushConfigs(task_id=task_id)),
        ]
        for shown in answers:
            assert (shown.id, shown.url, shown.scheme, shown.task_id) == ("a", HOOK, "Bearer", task_id)
            assert shown.token == "tok"
            assert not {"cred", "s3cret"} & {shown.credentials, shown.secret}
            assert shown.secret is not None  # that there is one may be said
        assert (await h.store.outbox.configs(task_id))[0].secret == "s3cret"
        await h.ask(create(task_id, OTHER, id="b"))
        await h.ask(create(task_id, id="a"))
        again = await h.ask(GetPushConfig(task_id=task_id, id="a"))
        assert (again.token, again.scheme, again.secret) == (None, None, None), "set again, it is replaced"
        assert (await h.ask(GetPushConfig(task_id=task_id))).id == "a"
        assert (await h.ask(GetPushConfig(task_id=task_id, id="b"))).secret is None
        with pytest.raises(TaskNotFound):
            await h.ask(GetPushConfig(task_id=task_id, id="c"))
        with pytest.raises(InvalidParams, match="pageToken"):
            await h.ask(ListPushConfigs(task_id=task_id, page_token="x"))


async def test_a_dialect_may_ask_for_a_webhook_that_is_not_there() -> None:
    async with house(announcer=Telling()) as h:
        task_id = (await h.send()).head.id
        asked = call(GetPushConfig(task_id=task_id))
        lenient = Manners(absent_webhook_is_none=True)
        assert await h.engine.operations.call(replace(asked, manners=lenient)) is None
        with pytest.raises(TaskNotFound):
            await h.engine.operations.call(replace(call(GetPushConfig(task_id=task_id), owner="eve"), manners=lenient))


async def test_a_webhook_that_could_not_be_written_is_not_there() -> None:
    telling = Telling()
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await go.wait()

    async with house(Scripted(script), announcer=telling) as h:
        task_id = await h.at_work(push_config=at())
        await calls(h)
        h.store.full = 1
        with pytest.raises(Unavailable):
            await h.ask(create(task_id, OTHER))
        assert await configs(h, task_id) == [(task_id, HOOK)]
        go.set()
        await h.reach(task_id, S.COMPLETED)
        assert told(await calls(h)) == [ended("completed")]
        outbox, h.store.outbox = h.store.outbox, FullOutbox(h.store.outbox)  # type: ignore[attr-defined]
        with pytest.raises(Unavailable):
            await h.ask(create(task_id, OTHER))
        h.store.outbox = outbox  # type: ignore[attr-defined]
        assert await configs(h, task_id) == [(task_id, HOOK)]


async def test_a_caller_that_leaves_while_a_webhook_is_registered_holds_nothing_up() -> None:
    stop = asyncio.Event()

    async def script(run: Run) -> None:
        while not stop.is_set():
            await say(run, "x", append=False, last=True)
            await run.written()

    async with house(Scripted(script), announcer=Telling()) as h:
        task_id = await h.at_work()
        for turns in range(12):
            registering = asyncio.create_task(h.ask(create(task_id, id=f"h{turns}")))
            for _ in range(turns):
                await asyncio.sleep(0)
            registering.cancel()
            await asyncio.wait((registering,))
        stop.set()
        await h.reach(task_id, S.COMPLETED)
        bodies, kept = await calls(h), await configs(h, task_id)
        seqs: dict[int, int] = {}
        for each in bodies:
            seqs[each["seq"]] = seqs.get(each["seq"], 0) + 1
        last = (await h.log(task_id))[-1].seq
        assert seqs.get(last, 0) == len(kept)


async def test_deleting_and_registering_at_once_ends_in_one_of_both() -> None:
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await go.wait()

    for turns in range(8):
        go.clear()
        async with house(Scripted(script), announcer=Telling()) as h:
            task_id = await h.at_work(push_config=at())
            deleting = asyncio.create_task(h.ask(DeletePushConfig(task_id=task_id, id=task_id)))
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.gather(deleting, h.ask(create(task_id, OTHER)))
            kept = await configs(h, task_id)
            await calls(h)
            go.set()
            await h.reach(task_id, S.COMPLETED)
            assert told(await calls(h)) == [ended("completed")] * len(kept)


async def test_a_task_in_memory_is_let_go_though_it_has_webhooks() -> None:
    async with house(Scripted(ask_once), announcer=Telling(), suspend_max_s=0.01) as h:
        task_id = (await h.send(push_config=at())).head.id
        async with asyncio.timeout(DEADLINE_S):
            while h.in_memory:
                await asyncio.sleep(0.01)
        await calls(h)
        done = await h.send("yes", task_id=task_id)
        assert text_of(done) == "yes"
        assert told(await calls(h)) == [WORKING, WHOLE, ended("completed")]
