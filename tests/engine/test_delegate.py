"""An agent delegates to another: tasks of the same caller, which end with their parent."""

import asyncio
from typing import Any

import pytest

from dragoman.dialects.extensions import LINEAGE
from dragoman.engine.api import Delegation, DelegationFailed, Reject, Run
from dragoman.engine.delegation import ACTION
from dragoman.engine.handlers.audit import Keeping, Trail
from dragoman.engine.lineage import DEPTH_MAX, child_of, full_lineage, read_lineage, server_name
from dragoman.model.errors import TaskNotFound, UnsupportedOperation
from dragoman.model.events import ArtifactChunk, Delegated, StatusChanged
from dragoman.model.message import Part
from dragoman.model.operations import ListTasks, SendMessage
from dragoman.model.principal import Principal
from dragoman.model.task import TERMINAL, Progress, TaskHead, TaskState, Usage
from dragoman.store.open import open_store
from tests.engine.house import (
    DEADLINE_S,
    House,
    Scripted,
    StandingClock,
    call,
    echo,
    house,
    message,
    say,
    states,
    text_of,
)
from tests.store.cases.bench import ending

S = TaskState


def order(agent: str = "other", text: str = "do it", **wishes: Any) -> Delegation:
    return Delegation(agent=agent, parts=(Part(text=text),), **wishes)


def delegating(text: str = "do it", traits: dict[str, Any] | None = None, **wishes: Any) -> Scripted:
    """An agent that gives a task to `other` and gives out what comes of it."""

    async def script(run: Run) -> None:
        delegated = await run.delegate(order(text=text, **wishes))
        await say(run, f"{delegated.agent} says {delegated.text}", append=False, last=True)

    return Scripted(script, **(traits or {}))


class Forever:
    """An agent that works until it is stopped, and tells how often it has begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_work = asyncio.Event()
        self.stopped = asyncio.Event()

    async def __call__(self, run: Run) -> None:
        self.begun += 1
        self.at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


async def child(h: House, parent_id: str, number: int = 1, *states_: TaskState) -> Any:
    return await h.reach(child_of(parent_id, number), *(states_ or tuple(S)), agent="other")


async def test_what_is_delegated_is_a_task_of_the_caller_in_the_same_context() -> None:
    async def other(run: Run) -> None:
        run.usage(Usage(1, 2, 3))
        await echo(run)

    async with house(delegating(), Scripted(other, "other")) as h:
        parent = await h.send(around={"owner": "ben", "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"})
        assert text_of(parent) == "other says do it"
        made = await h.get(child_of(parent.head.id, 1), agent="other", owner="ben")
        assert (made.head.parent, made.head.lineage) == (parent.head.id, ("agent",))
        assert (made.head.context_id, made.head.owner) == (parent.head.context_id, "ben")
        assert made.head.traceparent == parent.head.traceparent is not None
        assert [record.head.id for record in (await h.listed(agent="other", owner="ben")).records] == [made.head.id]
        assert (await h.listed(agent="other", owner="anna")).total_size == 0
        with pytest.raises(TaskNotFound):
            await h.get(made.head.id, agent="other", owner="anna")


async def test_the_outcome_has_all_that_the_other_gave_out() -> None:
    found: list[Delegated] = []

    async def script(run: Run) -> None:
        found.append(await run.delegate(order(context_id="elsewhere", skill="talk")))

    async def other(run: Run) -> None:
        assert (run.skill, run.head.context_id) == ("talk", "elsewhere")
        run.usage(Usage(1, 2, 3))
        await say(run, "one, ", "a")
        await say(run, "two", "a", last=True)
        await run.status((Part(text="nearly"),))

    async with house(Scripted(script), Scripted(other, "other")) as h:
        parent = await h.send()
        assert parent.state is S.COMPLETED
        (came,) = found
        assert (came.agent, came.state, came.text, came.usage) == ("other", S.COMPLETED, "one, two", Usage(1, 2, 3))
        assert came.task_id == child_of(parent.head.id, 1)
        assert [item.event for item in await h.log(parent.head.id) if isinstance(item.event, Delegated)] == [came]


@pytest.mark.parametrize(
    ("raised", "state", "text"), [(Reject("not today"), S.REJECTED, "not today"), (ValueError("secret"), S.FAILED, "")]
)
async def test_an_agent_may_catch_that_the_other_failed(raised: Exception, state: TaskState, text: str) -> None:
    caught: list[DelegationFailed] = []

    async def script(run: Run) -> None:
        try:
            await run.delegate(order())
        except DelegationFailed as failed:
            caught.append(failed)

    async def other(run: Run) -> None:
        raise raised

    async with house(Scripted(script), Scripted(other, "other")) as h:
        parent = await h.send()
        assert parent.state is S.COMPLETED
        (failed,) = caught
        assert (failed.agent, failed.state, failed.task_id) == ("other", state, child_of(parent.head.id, 1))
        assert text in failed.text
        assert "secret" not in str(failed)


async def test_what_cannot_be_delegated_makes_no_task() -> None:
    caught: list[DelegationFailed] = []

    async def script(run: Run) -> None:
        for wrong in (order("nobody"), order(skill="unknown"), order("agent")):
            try:
                await run.delegate(wrong)
            except DelegationFailed as failed:
                caught.append(failed)

    async with house(Scripted(script), Scripted(echo, "other")) as h:
        await h.send()
        assert [(failed.state, failed.task_id) for failed in caught] == [(S.REJECTED, "")] * 3
        assert "nobody" in caught[0].text
        assert "unknown" in caught[1].text
        assert "agent → agent" in caught[2].text
        assert (await h.listed(agent="other")).total_size == 0


async def test_a_delegation_that_goes_round_is_refused_and_shows_the_way() -> None:
    caught: list[str] = []

    async def script(run: Run) -> None:
        await run.delegate(order("b"))

    async def back(run: Run) -> None:
        with pytest.raises(DelegationFailed) as failed:
            await run.delegate(order("agent"))
        caught.append(failed.value.text)

    async with house(Scripted(script), Scripted(back, "b")) as h:
        assert (await h.send()).state is S.COMPLETED
        assert "agent → b → agent" in caught[0]


async def test_a_chain_is_at_most_so_long() -> None:
    caught: list[str] = []

    def link(number: int) -> Scripted:
        async def script(run: Run) -> None:
            try:
                await run.delegate(order(f"a{number + 1}"))
            except DelegationFailed as failed:
                caught.append(failed.text)

        return Scripted(script, f"a{number}")

    async with house(*(link(number) for number in range(DEPTH_MAX + 3))) as h:
        await h.send(around={"agent": "a0"})
        way = " → ".join(f"a{number}" for number in range(DEPTH_MAX + 2))
        assert caught == [f"a delegation through more than {DEPTH_MAX} agents: {way}"]


async def test_a_caller_may_say_through_whom_its_message_came() -> None:
    async with house(Scripted(echo, "other"), delegating()) as h:
        server = server_name(h.engine.replica_id)
        with pytest.raises(UnsupportedOperation, match="other → elsewhere/b → other"):
            said = {LINEAGE: [f"{server}/other", "elsewhere/b"]}
            await h.ask(SendMessage(message=message(metadata=said)), agent="other")
        with pytest.raises(UnsupportedOperation, match="more than 8"):
            await h.ask(
                SendMessage(message=message(metadata={LINEAGE: [f"x/{n}" for n in range(1000)]})), agent="other"
            )
        for malformed in ("x", {"a": 1}, None, [1, None, ""]):
            await h.ask(SendMessage(message=message(metadata={LINEAGE: malformed})), agent="other")
        parent = await h.ask(SendMessage(message=message(metadata={LINEAGE: ["elsewhere/b"]})))
        assert (await child(h, parent.head.id)).head.lineage == ("elsewhere/b", "agent")


def test_what_other_servers_are_told_comes_back_as_our_own() -> None:
    server = server_name("me")
    head = TaskHead(
        id="1", context_id="c", agent="b", owner="o", dialect="1.0", mount="/", created_at="", lineage=("x/y", "a")
    )
    assert full_lineage(head, server) == ("x/y", f"{server}/a", f"{server}/b")
    assert read_lineage({LINEAGE: list(full_lineage(head, server))}, server) == ("x/y", "a", "b")
    assert read_lineage({LINEAGE: list(full_lineage(head, server))}, "another") == full_lineage(head, server)


async def test_a_cancel_of_the_parent_cancels_what_it_delegated() -> None:
    other = Forever()
    async with house(delegating(), Scripted(other, "other")) as h:
        parent_id = await h.begin()
        await other.at_work.wait()
        assert (await h.cancel(parent_id)).state is S.CANCELED
        assert (await child(h, parent_id, 1, S.CANCELED)).state is S.CANCELED
        assert other.stopped.is_set()


async def test_a_parent_that_ends_cancels_what_it_left_running() -> None:
    other = Forever()

    async def script(run: Run) -> None:
        left = asyncio.create_task(run.delegate(order()))
        await other.at_work.wait()
        left.cancel()

    async with house(Scripted(script), Scripted(other, "other")) as h:
        parent = await h.send()
        assert parent.state is S.COMPLETED
        await child(h, parent.head.id, 1, S.CANCELED)


async def test_what_is_detached_goes_on_without_its_parent() -> None:
    other = Forever()
    found: list[Delegated] = []

    async def script(run: Run) -> None:
        found.append(await run.delegate(order(detach=True)))

    async with house(Scripted(script), Scripted(other, "other"), grace_s=0) as h:
        parent = await h.send()
        assert parent.state is S.COMPLETED
        assert found[0].state in (S.SUBMITTED, S.WORKING)
        await other.at_work.wait()
        assert (await child(h, parent.head.id)).state is S.WORKING
        await h.cancel(found[0].task_id, agent="other")


@pytest.mark.parametrize("progress", [False, True], ids=["unheard", "heard"])
async def test_what_takes_too_long_is_canceled_and_fails_for_the_parent(*, progress: bool) -> None:
    other = Forever()
    caught: list[DelegationFailed] = []

    async def script(run: Run) -> None:
        try:
            await run.delegate(order(timeout_s=0.05, progress=progress))
        except DelegationFailed as failed:
            caught.append(failed)

    async with house(Scripted(script), Scripted(other, "other")) as h:
        parent = await h.send()
        assert parent.state is S.COMPLETED
        assert caught[0].state is S.CANCELED
        assert "time" in caught[0].text
        assert (await child(h, parent.head.id)).state is S.CANCELED


async def test_a_deadline_holds_for_all_below() -> None:
    async def middle(run: Run) -> None:
        await run.delegate(order("last", timeout_s=900))

    async with house(delegating(timeout_s=100), Scripted(middle, "other"), Scripted(echo, "last")) as h:
        parent = await h.send()
        first = await child(h, parent.head.id)
        second = await h.get(child_of(first.head.id, 1), agent="last")
        assert first.head.deadline_ms == second.head.deadline_ms == h.clock.ms + 100_000


async def test_a_report_as_long_as_a_text_may_be_is_shown_in_the_parent() -> None:
    async def other(run: Run) -> None:
        await run.status((Part(text="x" * 100),))

    async with house(delegating(progress=True), Scripted(other, "other"), max_text=100) as h:
        record = await h.send()
        assert record.state is S.COMPLETED, record.status
        said = [
            [part.text for part in item.event.message.parts]
            for item in await h.log(record.head.id)
            if isinstance(item.event, StatusChanged) and item.event.message is not None
        ]
        assert said == [["other:", "x" * 100]]


async def test_progress_is_shown_in_the_parent_if_asked_for() -> None:
    async def other(run: Run) -> None:
        await run.status((Part(text="half"),), progress=(1, 2))
        await echo(run)

    async with house(delegating(progress=True), Scripted(other, "other")) as h:
        parent = await h.send()
        said = [
            (item.event.message.text, item.event.progress)
            for item in await h.log(parent.head.id)
            if isinstance(item.event, StatusChanged) and item.event.message is not None
        ]
        assert said == [("other: half", Progress(1, 2, "other: half"))]
        assert text_of(parent) == "other says do it"
    async with house(delegating(), Scripted(other, "other")) as h:
        parent = await h.send()
        assert states(await h.log(parent.head.id)) == [S.WORKING, S.COMPLETED]


async def test_chunks_are_heard_as_they_come() -> None:
    heard_chunks: list[str] = []
    go_on = asyncio.Event()

    async def hear(chunk: ArtifactChunk) -> None:
        heard_chunks.append(chunk.artifact.parts[0].text or "")
        go_on.set()

    async def script(run: Run) -> None:
        await run.delegate(order(), hear)

    async def other(run: Run) -> None:
        await say(run, "one")
        await go_on.wait()
        await say(run, "two")

    async with house(Scripted(script), Scripted(other, "other")) as h:
        assert (await h.send()).state is S.COMPLETED
        assert heard_chunks == ["one", "two"]


async def booking(run: Run) -> None:
    start = await run.ask((Part(text="From where?"),))
    goal = await run.ask((Part(text="To where?"),), auth=True)
    await say(run, f"{start.text}-{goal.text}", append=False, last=True)


async def test_what_the_other_asks_is_asked_of_the_caller() -> None:
    async with house(delegating(), Scripted(booking, "other")) as h:
        parent = await h.send()
        assert parent.state is S.INPUT_REQUIRED
        question = parent.status.message
        assert question is not None
        assert question.text == "From where?"
        assert question.reference_task_ids == (child_of(parent.head.id, 1),)
        parent = await h.send("Lyon", task_id=parent.head.id)
        assert parent.state is S.AUTH_REQUIRED
        parent = await h.send("Rome", task_id=parent.head.id)
        assert text_of(parent) == "other says Lyon-Rome"


async def test_what_the_other_asks_is_raised_if_that_is_wanted() -> None:
    caught: list[DelegationFailed] = []

    async def script(run: Run) -> None:
        try:
            await run.delegate(order(asks="raise"))
        except DelegationFailed as failed:
            caught.append(failed)

    async with house(Scripted(script), Scripted(booking, "other")) as h:
        parent = await h.send()
        assert (caught[0].state, caught[0].text) == (S.INPUT_REQUIRED, "From where?")
        await child(h, parent.head.id, 1, S.CANCELED)


async def asking(run: Run) -> None:
    """Says something, delegates, asks a question of its own, delegates again."""
    await say(run, "[", "a")
    first = await run.delegate(order(text="one"))
    await say(run, first.text, "a")
    answer = await run.ask((Part(text="Go on?"),))
    second = await run.delegate(order(text="two"))
    await say(run, f",{answer.text},{second.text}]", "a")


@pytest.mark.parametrize("crashes", [False, True])
async def test_a_run_that_is_taken_up_again_is_given_the_recorded_outcome(url: str, crashes: bool) -> None:
    begun: list[str] = []

    async def other(run: Run) -> None:
        begun.append(run.message.text)
        await echo(run)

    async with house(Scripted(asking), Scripted(other, "other"), url=url, crashes=crashes) as h:
        task = await h.send()
        assert task.state is S.INPUT_REQUIRED
    async with house(Scripted(asking), Scripted(other, "other"), url=url) as h:
        task = await h.send("yes", task_id=task.head.id)
        assert text_of(task) == "[one,yes,two]"
        assert begun == ["one", "two"]


async def test_the_recorded_outcome_outlives_the_task_that_was_delegated(url: str) -> None:
    begun: list[str] = []

    async def other(run: Run) -> None:
        begun.append(run.message.text)
        await run.artifact(_file(), append=False, last_chunk=True)

    async def script(run: Run) -> None:
        first = await run.delegate(order(text="one"))
        await run.ask((Part(text="Go on?"),))
        assert first.files[0].raw == b"x" * 5000
        await say(run, "same", append=False, last=True)

    async with house(Scripted(script), Scripted(other, "other"), url=url) as h:
        task = await h.send()
        await child(h, task.head.id, 1, S.COMPLETED)
        while await h.store.sweep(h.clock.ms + 10, 0, -1, -1):
            pass
        assert await h.get(child_of(task.head.id, 1), agent="other"), "its parent has not ended"
        assert await h.store.delete((child_of(task.head.id, 1),))
        with pytest.raises(TaskNotFound):
            await h.get(child_of(task.head.id, 1), agent="other")
    async with house(Scripted(script), Scripted(other, "other"), url=url) as h:
        task = await h.send("yes", task_id=task.head.id)
        assert text_of(task) == "same"
        assert begun == ["one"]


def _file() -> Any:
    from dragoman.model.message import Artifact

    return Artifact(artifact_id="f", parts=(Part(raw=b"x" * 5000, filename="f"),))


async def test_a_question_that_was_passed_on_is_answered_after_a_restart(url: str) -> None:
    async def script(run: Run) -> None:
        await say(run, "[", "a")
        delegated = await run.delegate(order())
        await say(run, delegated.text, "a")
        own = await run.ask((Part(text="Sure?"),))
        await say(run, f" {own.text}]", "a")

    agents = (Scripted(script), Scripted(booking, "other"))
    async with house(*agents, url=url) as h:
        task_id = (await h.send()).head.id
    async with house(*agents, url=url, crashes=True) as h:
        task = await h.send("Lyon", task_id=task_id)
        assert (task.state, task.status.message.text) == (S.AUTH_REQUIRED, "To where?")  # type: ignore[union-attr]
    async with house(*agents, url=url) as h:
        task = await h.send("Rome", task_id=task_id)
        assert (task.state, task.status.message.text) == (S.INPUT_REQUIRED, "Sure?")  # type: ignore[union-attr]
    async with house(*agents, url=url) as h:
        task = await h.send("yes", task_id=task_id)
        assert text_of(task) == "[Lyon-Rome yes]"
        assert (await h.listed(ListTasks(), agent="other")).total_size == 1


async def test_what_is_still_running_after_a_crash_is_waited_for(url: str) -> None:
    begun: list[int] = []

    class Slow:
        halts = True

        async def __call__(self, run: Run) -> None:
            begun.append(run.epoch)
            at_work.set()
            if self.halts:
                await asyncio.Event().wait()
            await echo(run)

    slow, at_work = Slow(), asyncio.Event()
    parent_script = delegating(traits={"restartable": True})
    other = Scripted(slow, "other", restartable=True)
    async with house(parent_script, other, url=url, crashes=True) as h:
        parent_id = await h.begin()
        await at_work.wait()
        await child(h, parent_id, 1, S.WORKING)
    slow.halts = False
    async with house(parent_script, other, url=url) as h:
        parent = await h.reach(parent_id, S.COMPLETED)
        assert text_of(parent) == "other says do it"
        assert begun == [1, 2]
        assert (await h.listed(agent="other")).total_size == 1


async def test_what_was_delegated_by_a_run_that_died_is_canceled(url: str) -> None:
    other = Forever()
    agents = (delegating(), Scripted(other, "other", restartable=True))
    async with house(*agents, url=url, crashes=True) as h:
        parent_id = await h.begin()
        await other.at_work.wait()
        await child(h, parent_id, 1, S.WORKING)
    async with house(*agents, url=url) as h:
        assert (await h.get(parent_id)).state is S.FAILED
        await child(h, parent_id, 1, S.CANCELED)


async def test_what_was_delegated_in_an_earlier_life_is_canceled_with_its_parent(url: str) -> None:
    agents = (delegating(), Scripted(booking, "other"))
    async with house(*agents, url=url) as h:
        parent = await h.send()
        assert parent.state is S.INPUT_REQUIRED
    async with house(*agents, url=url) as h:
        assert (await h.cancel(parent.head.id)).state is S.CANCELED
        await child(h, parent.head.id, 1, S.CANCELED)


async def test_another_agent_than_before_the_restart_is_a_mismatch(url: str) -> None:
    async def script(run: Run) -> None:
        await run.delegate(order(names[0]))
        await run.ask((Part(text="Go on?"),))

    names = ["other"]
    agents = (Scripted(script), Scripted(echo, "other"), Scripted(echo, "third"))
    async with house(*agents, url=url) as h:
        task_id = (await h.send()).head.id
    names[0] = "third"
    async with house(*agents, url=url) as h:
        task = await h.send("yes", task_id=task_id)
        assert task.state is S.FAILED
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "replay_mismatch"}


async def test_another_agent_than_the_one_that_still_works_on_it_is_a_mismatch(url: str) -> None:
    async def script(run: Run) -> None:
        await run.delegate(order(names[0]))

    names, other = ["other"], Forever()
    agents = (
        Scripted(script, restartable=True),
        Scripted(other, "other", restartable=True),
        Scripted(echo, "third"),
    )
    async with house(*agents, url=url, crashes=True) as h:
        task_id = await h.begin()
        await other.at_work.wait()
        await child(h, task_id, 1, S.WORKING)
    names[0] = "third"
    async with house(*agents, url=url) as h:
        task = await h.reach(task_id, *TERMINAL)
        assert task.state is S.FAILED
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "replay_mismatch"}
        await child(h, task_id, 1, S.CANCELED)


async def test_quotas_are_the_callers_and_count_only_what_it_asks_for() -> None:
    async with house(delegating(), Scripted(echo, "other"), max_open_tasks=1, max_daily_tasks=1) as h:
        assert text_of(await h.send()) == "other says do it"


async def test_several_at_once_are_told_apart() -> None:
    async def script(run: Run) -> None:
        both = await asyncio.gather(run.delegate(order(text="one")), run.delegate(order(text="two")))
        await say(run, " ".join(each.text for each in both))

    async with house(Scripted(script), Scripted(echo, "other")) as h:
        parent = await h.send()
        assert text_of(parent) == "one two"
        assert (await h.listed(agent="other")).total_size == 2


async def test_no_caller_is_told_that_something_was_delegated() -> None:
    """Every dialect's frames of the event are none, and a stream goes on past it."""
    from dragoman.dialects import beeos, evoai, kaos, protoagent, v03, v1

    event = Delegated(1, "other", "t", S.COMPLETED, "2026-01-01T00:00:00.000Z")
    head = TaskHead(id="1", context_id="c", agent="b", owner="o", dialect="1.0", mount="/", created_at="")
    for dialect in (v1.JSONRPC, v03.JSONRPC, v03.REST, beeos.JSONRPC, evoai.JSONRPC, kaos.JSONRPC, protoagent.JSONRPC):
        assert dialect.encode_event(head, event, None) == ()


async def test_the_audit_trail_says_who_delegated_through_which_task() -> None:
    store = open_store("memory:", StandingClock())
    await store.open("audit")
    try:
        trail = Trail(store.audit, Keeping.ALL)
        async with house(delegating(), Scripted(echo, "other"), trail=trail) as h:
            parent = await h.send()
        await trail.stop()
        (entry,) = [entry for entry in await store.audit.read() if entry.action == ACTION]
        assert (entry.principal, entry.agent, entry.allowed) == ("anna", "other", True)
        assert (entry.task_id, entry.peer) == (child_of(parent.head.id, 1), f"task:{parent.head.id}")
    finally:
        await store.close()


async def test_a_caller_whose_key_is_not_for_the_other_agent_is_served_by_it_all_the_same() -> None:
    """The operator who put the delegating agent on this server decided that; the caller may call that one."""
    async with house(delegating(), Scripted(echo, "other")) as h:
        only = Principal("anna", agents=frozenset({"agent"}))
        from msgspec.structs import replace

        async with asyncio.timeout(DEADLINE_S):
            task = await h.engine.operations.call(replace(call(SendMessage(message=message())), principal=only))
        assert text_of(task) == "other says do it"  # type: ignore[arg-type]


async def test_a_delegation_that_is_given_up_at_once_makes_no_task() -> None:
    """The engine hears of it in the next turn of the loop, and by then nobody waits for it."""

    async def script(run: Run) -> None:
        delegation = asyncio.create_task(run.delegate(order()))
        await asyncio.sleep(0)
        delegation.cancel()
        await asyncio.wait((delegation,))

    async with house(Scripted(script), Scripted(echo, "other")) as h:
        assert (await h.send()).state is S.COMPLETED
        assert (await h.listed(ListTasks(), agent="other")).total_size == 0


async def test_a_direct_agent_cannot_delegate() -> None:
    from dragoman.model.errors import InternalError

    agent = delegating(traits={"direct": True})
    async with house(agent, Scripted(echo, "other")) as h:
        with pytest.raises(InternalError):
            await h.ask(SendMessage(message=message()))


async def test_a_delegation_that_the_store_has_lost_is_made_again() -> None:
    """A standby that takes over may lack a task that was just made, for which a run waits."""
    begun = asyncio.Queue[str]()

    class Other:
        halts = True

        async def __call__(self, run: Run) -> None:
            begun.put_nowait(run.head.id)
            if self.halts:
                await asyncio.Event().wait()
            await echo(run)

    other = Other()

    async def script(run: Run) -> None:
        delegated = await run.delegate(order(text="one"))
        await say(run, delegated.text, append=False, last=True)

    async with house(Scripted(script), Scripted(other, "other")) as h:
        task_id = await h.begin()
        async with asyncio.timeout(DEADLINE_S):
            child_id = await begun.get()
            other.halts = False
            assert child_id == child_of(task_id, 1)
            await h.reach(child_id, S.WORKING, agent="other")
            found = await h.store.load(child_id)
            await h.store.append(ending(child_id, found.seq))
            assert await h.store.delete((child_id,)) == (child_id,)
            await h.engine.tasks.reread(0.1)
            assert text_of(await h.reach(task_id, S.COMPLETED)) == "one"
            assert begun.get_nowait() == child_id


async def test_a_delegation_that_was_deleted_elsewhere_has_failed_and_is_not_made_again() -> None:
    """No hint has told of its end, nor of the deletion. It was made once, and acts no second time."""
    begun, polls = asyncio.Queue[str](), 3600.0

    async def other(run: Run) -> None:
        begun.put_nowait(run.head.id)
        await asyncio.Event().wait()

    async def script(run: Run) -> None:
        with pytest.raises(DelegationFailed) as failed:
            await run.delegate(order(text="one"))
        delegated = failed.value.delegated
        await say(run, f"{delegated.state.name}: {delegated.text}", append=False, last=True)

    async with house(Scripted(script), Scripted(other, "other"), poll_s=polls, healthy_poll_s=polls, claim_s=0.05) as h:
        task_id = await h.begin()
        async with asyncio.timeout(DEADLINE_S):
            child_id = await begun.get()
            await h.reach(child_id, S.WORKING, agent="other")
            found = await h.store.load(child_id)
            await h.store.append(ending(child_id, found.seq))
            assert await h.store.delete((child_id,)) == (child_id,)
            done = await h.reach(task_id, S.COMPLETED)
            assert text_of(done) == "FAILED: The task of other was deleted before its outcome was read."
            assert begun.empty()


@pytest.mark.parametrize("ends", [True, False])
async def test_a_delegation_that_was_deleted_while_no_run_waited_is_not_made_again(ends: bool) -> None:
    """Nothing in its parent's log says that it was made. One that has not ended is not deleted."""
    begun, goes_on = list[str](), asyncio.Event()

    async def other(run: Run) -> None:
        begun.append(run.head.id)
        await goes_on.wait()
        await echo(run)

    async def outcome(run: Run) -> str:
        try:
            return (await run.delegate(order(text="one"))).text
        except DelegationFailed as failed:
            return failed.delegated.text

    async def script(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            came = group.create_task(outcome(run))
            await run.ask((Part(text="Go on?"),))
        await say(run, came.result(), append=False, last=True)

    async with house(Scripted(script), Scripted(other, "other"), suspend_max_s=0.01, claim_s=0.05) as h:
        task_id = (await h.send()).head.id
        async with asyncio.timeout(DEADLINE_S):
            while not begun or h.in_memory > 1:  # the suspended run of the parent is there
                await asyncio.sleep(0.01)
        (child_id,) = begun
        if ends:
            goes_on.set()
            await h.reach(child_id, S.COMPLETED, agent="other")
        assert await h.engine.operated.delete((child_id,)) == ((child_id,) if ends else ())
        await h.send("yes", task_id=task_id, return_immediately=True)
        goes_on.set()
        done = await h.reach(task_id, S.COMPLETED)
        assert text_of(done) == ("The task of other was deleted before its outcome was read." if ends else "one")
        assert begun == [child_id]


def served_of_late(h: House) -> asyncio.Event:
    """Let `other` be an agent that a replica served which is started again just now. Set once somebody looks."""
    looked = asyncio.Event()

    async def served_of_late(within_s: float) -> frozenset[str]:
        looked.set()
        return frozenset({"other"})

    h.store.replicas.served_of_late = served_of_late  # type: ignore[attr-defined]
    return looked


async def test_an_answer_waits_for_an_agent_that_nobody_serves_for_a_while() -> None:
    """As while the only replica that serves it is started again."""

    async def asks(run: Run) -> None:
        await say(run, (await run.ask((Part(text="Which?"),))).text)

    ours, other = delegating(), Scripted(asks, "other")
    async with house(ours, other, poll_s=1.0, retry_s=0.01) as h:
        task_id = (await h.send()).head.id
        await h.reach(task_id, S.INPUT_REQUIRED)
        looked = served_of_late(h)
        h.engine.serve({"agent": ours})
        await h.send("this", task_id=task_id, return_immediately=True)
        await looked.wait()
        await asyncio.sleep(0.05)
        assert (await h.get(task_id)).state is S.WORKING
        h.engine.serve({"agent": ours, "other": other})
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "other says this"


async def test_a_stop_does_not_wait_for_a_delegation_that_an_agent_has_left_behind() -> None:
    """An asyncio task that an agent starts, and waits for in no group, outlives its run."""
    delegating: list[asyncio.Task[Delegated]] = []

    async def leaves(run: Run) -> None:
        order = Delegation(agent="asker", parts=(Part(text="go"),))
        delegating.append(asyncio.create_task(run.delegate(order)))
        await asyncio.Event().wait()

    async def asks(run: Run) -> None:
        await run.ask((Part(text="which?"),))

    async with asyncio.timeout(DEADLINE_S / 4):
        async with house(Scripted(leaves, restartable=True), Scripted(asks, "asker", restartable=True)) as h:
            await h.reach(await h.begin(), TaskState.INPUT_REQUIRED)
            await h.drain(0.05)
        await asyncio.wait(delegating)
    assert delegating[0].cancelled()


async def test_a_delegation_waits_for_an_agent_that_nobody_serves_for_a_while() -> None:
    ours, other = delegating(), Scripted(echo, "other")
    async with house(ours, poll_s=1.0, retry_s=0.01) as h:
        looked = served_of_late(h)
        task_id = (await h.send(return_immediately=True)).head.id
        await looked.wait()
        h.engine.serve({"agent": ours, "other": other})
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "other says do it"


async def test_a_delegation_waits_for_an_absent_agent_no_longer_than_its_time() -> None:
    async def script(run: Run) -> None:
        with pytest.raises(DelegationFailed) as failed:
            await run.delegate(order(timeout_s=0.02))
        await say(run, failed.value.delegated.text)

    async with house(Scripted(script), poll_s=1.0, retry_s=0.01) as h:
        served_of_late(h)
        assert text_of(await h.send()) == "agent other is served by no replica at present"


@pytest.mark.parametrize("server", ["this replica", "another"])
async def test_a_delegation_to_a_version_of_an_agent_is_refused_at_once(server: str) -> None:
    """Replicas know such names, too, but no agent has one, so that nobody would ever take the task."""

    async def script(run: Run) -> None:
        with pytest.raises(DelegationFailed) as failed:
            await run.delegate(order("agent@2"))
        await say(run, failed.value.delegated.text)

    async with house(Scripted(script), poll_s=1.0, retry_s=0.01) as h:
        (here,) = await h.store.replicas.all()
        name = here.id if server == "this replica" else server
        await h.store.replicas.join(name, address="", agents=("agent", "agent@2"))
        async with asyncio.timeout(5):
            assert "agent@2" in text_of(await h.send())
