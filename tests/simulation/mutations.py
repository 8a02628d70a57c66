"""Bugs to put in on purpose, so that it shows whether the simulation finds them.

Invariant: each breaks one rule of docs/architecture.md, at the place where the rule is kept, and nothing else.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.agents.worker.leases import Leases
from dragoman.agents.worker.lessee import ServerSink
from dragoman.engine.api import Execute
from dragoman.engine.effect_loop import EffectLoop
from dragoman.engine.effects import CancelChildren, Effect, Effects
from dragoman.engine.leases import TaskLeases
from dragoman.engine.log import Log, Page
from dragoman.engine.runs.places import in_first_branch
from dragoman.engine.runs.replay import RecordedSleep, Replay
from dragoman.engine.runs.task_sink import TaskSink
from dragoman.engine.state_space import StoredSpace
from dragoman.engine.tasks import Tasks
from dragoman.engine.words import Step
from dragoman.model.events import ArtifactChunk, Stepped
from dragoman.model.ids import new_write
from dragoman.model.message import Message, Part
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskState
from dragoman.store.api import Append, Stored
from dragoman.store.budgets import Charge
from dragoman.store.worker_leases import LeaseFault, LeaseTable, WorkerLease, WorkerLeaseChange
from dragoman.telemetry.job_group import JobGroup
from tests.buses import HubBus
from tests.simulation.agents import ScriptedAgent, Witness, agents
from tests.simulation.database import EVENT_BYTES
from tests.simulation.loop import Process
from tests.simulation.store import SimulatedStore
from tests.simulation.world import World


def ignore_the_epoch(world: World) -> None:
    """The store lets a run write whose lease somebody else has."""
    world.database.guard.ignores_epoch = True


def take_over_a_lease_that_is_alive(world: World) -> None:
    """A claim takes tasks whose holder is alive, too."""
    world.database.guard.claims_from_the_living = True


def renew_an_expired_heartbeat(world: World) -> None:
    """A replica that was dead for a while comes to life again."""
    world.database.guard.renews_the_expired = True


def publish_before_commit(world: World) -> None:
    """The events of a write go to the other replicas before the store has them."""

    def alter(store: SimulatedStore, bus: HubBus) -> None:
        def tell(append: Append) -> Append:
            events, first = append.events, append.read_seq + 1
            if events:
                page = Page(
                    first, events, append.status_ms, EVENT_BYTES * len(events), append.epoch, history=append.history
                )
                bus.publish(append.task_id, first + len(events) - 1, msgspec.msgpack.encode(page))
            return append

        store.alter = tell

    _alter_all(world, alter)


def repeat_an_unknown_write_without_its_id(world: World) -> None:
    """A write whose outcome is unknown is sent again as if it were another one."""

    def alter(store: SimulatedStore, bus: HubBus) -> None:
        sent: set[int | None] = set()

        def rename(append: Append) -> Append:
            if append.write in sent:
                return replace(append, write=new_write())
            sent.add(append.write)
            return append

        store.alter = rename

    _alter_all(world, alter)


def let_a_question_overtake_an_answer(world: World) -> None:
    """A question is written whatever its run has not read yet."""

    def alter(store: SimulatedStore, bus: HubBus) -> None:
        def hasten(append: Append) -> Append:
            if append.epoch is not None and append.state in INTERRUPTED:
                return replace(append, expected_seq=None, snapshot=None)
            return append

        store.alter = hasten

    _alter_all(world, alter)


def leave_holders_untold(world: World) -> None:
    """The holder of a lease, or of an offer, hears nothing of what others do to its task."""

    def alter(store: SimulatedStore, bus: HubBus) -> None:
        publish = bus.publish

        def tell_followers(task_id: str, seq: int, page: bytes | None = None, *, to: str | None = None) -> None:
            publish(task_id, seq, page)

        bus.tell, bus.publish = _say_nothing, tell_followers  # type: ignore[method-assign]

    _alter_all(world, alter)


def leave_cancels_untold(world: World) -> None:
    """A cancel marks the row of the task, and its holder is not told to look."""
    _alter_all(world, lambda store, bus: setattr(bus, "tell", _say_nothing))


def leave_queued_work_untold(world: World) -> None:
    """A task waits in the queue of its agent, and nobody who serves that agent is told."""
    _alter_all(world, lambda store, bus: setattr(bus, "queued", _say_nothing))


def leave_free_slots_untold(world: World) -> None:
    """A worker waits for a task, and nobody looks into the queue for it."""
    world.patch(Leases, "offer", _say_nothing)


def leave_waiters_asleep_after_a_refresh(world: World) -> None:
    """Those who wait for a task are not woken when a read of the store has brought news of it."""
    extend_to = Log.extend_to

    def quietly(log: Log, stored: Stored, history: str | None = None) -> bool:
        followers = log.followers
        waiting, followers.waiters = followers.waiters, None
        try:
            return extend_to(log, stored, history)
        finally:
            followers.waiters = waiting

    world.patch(Log, "extend_to", quietly)


def keep_offers_for_ever(world: World) -> None:
    """An offer that nobody accepts does not run out."""
    world.database.guard.keeps_offers_for_ever = True


def let_children_outlive_their_parent(world: World) -> None:
    """The end of a task leaves its delegations to the jobs that look for orphans."""
    lose(world, (CancelChildren,))


def keep_suspended_runs_that_are_gone(world: World) -> None:
    """A replica that gives up a suspended run goes on to be named as its keeper."""

    async def disown(leases: TaskLeases, task: Log) -> bool:
        return False

    world.patch(TaskLeases, "disown", disown)


def run_again_what_is_not_restartable(world: World) -> None:
    """A task whose run died is run again, whatever its agent has declared."""

    def make(witness: Witness, names: Sequence[str]) -> Mapping[str, ScriptedAgent]:
        made = agents(witness, names)
        for agent in made.values():
            agent.traits = replace(agent.traits, restartable=True)
        return made

    for place in world.places:
        place.make_agents = make


def lose(world: World, kinds: tuple[type[Effect], ...]) -> None:
    """Carry out no effect of these kinds, so that it is left to the queries that find it again."""
    put = Effects.put

    def put_others(effects: Effects, effect: Effect) -> None:
        if not isinstance(effect, kinds):
            put(effects, effect)

    world.patch(Effects, "put", put_others)


def end_children_before_their_parent(world: World) -> None:
    """The delegations of a task end when the end of the task is sent to the store, which may refuse it or lose it."""
    loops: dict[Process, EffectLoop] = {}
    start = EffectLoop.start

    def note(effect_loop: EffectLoop, jobs: JobGroup) -> None:
        loops[world.loop.current] = effect_loop
        start(effect_loop, jobs)

    world.patch(EffectLoop, "start", note)

    def alter(store: SimulatedStore, bus: HubBus) -> None:
        def hasten(append: Append) -> Append:
            effect_loop = loops.get(store.process)
            if append.state in TERMINAL and effect_loop is not None:
                task = effect_loop._delegations._tasks.known(append.task_id)  # noqa: SLF001
                if task is not None:
                    effect_loop._carry_out(CancelChildren(task))  # noqa: SLF001
            return append

        store.alter = hasten

    _alter_all(world, alter)


def ignore_the_end_of_workers_leases(world: World) -> None:
    """The store lets a worker write whose lease has run out."""
    world.database.guard.ignores_the_end_of_leases = True


def take_words_of_earlier_leases(world: World) -> None:
    """The store lets a worker write under a lease, and in an epoch, that is over as another worker has the task."""
    world.database.guard.takes_words_of_earlier_leases = True


def lose_the_last_event_before_a_take_over(world: World) -> None:
    """A replica that takes a task over goes on from what readers see, and a commit that they do not see yet is lost."""
    world.database.guard.claims_what_readers_see = True


def owe_deliveries_before_the_commit(world: World) -> None:
    """The webhook calls of a write are owed when it reaches the store, which may refuse it."""
    world.database.guard.owes_before_the_commit = True


def take_a_word_again(world: World) -> None:
    """The store takes a word of a worker that another replica has written, if that one's answer was lost."""
    fault = LeaseTable.fault

    def ignore_the_number(table: LeaseTable, change: WorkerLeaseChange) -> LeaseFault | None:
        return fault(table, change if change.number is None else replace(change, number=0))

    world.patch(LeaseTable, "fault", ignore_the_number)


def forget_what_workers_know(world: World) -> None:
    """A worker does not say which of its reports were confirmed."""
    confirm = ServerSink.confirm

    def forget(sink: ServerSink, body: Any) -> None:
        confirm(sink, body)
        if hasattr(body, "confirmed"):
            body.confirmed = 0

    world.patch(ServerSink, "confirm", forget)


def renew_workers_leases_that_have_run_out(world: World) -> None:
    """The heartbeat of a worker that was silent for too long renews its lease."""

    def renew(table: LeaseTable, tokens: Collection[tuple[str, str]], ttl_ms: int) -> Mapping[str, WorkerLease]:
        renewed: dict[str, WorkerLease] = {}
        for task_id, token in tokens:
            row = table.rows.get(task_id)
            if row is not None and row.lease.token == token:
                row.until_s, row.over = world.database.now_s() + ttl_ms / 1000, False
                renewed[token] = row.lease
        return renewed

    world.patch(LeaseTable, "renew", renew)


def take_answers_of_branches_in_their_order(world: World) -> None:
    """A run whose agent has branches takes recorded answers as if it had none."""
    answer = Replay.answer

    def take_next(replay: Replay, question: Sequence[Part], place: str = "") -> Message | None:
        return answer(replay, question)

    world.patch(Replay, "answer", take_next)


def execute_recorded_steps_again(world: World) -> None:
    """A later run executes a step that is recorded, and records it again."""

    def find_nothing(replay: Replay, word: Step, place: str) -> Stepped | None:
        stepped(replay, word, place)
        return None

    stepped = Replay.stepped
    world.patch(Replay, "stepped", find_nothing)


def sleep_again(world: World) -> None:
    """A later run puts the task to sleep where it has slept."""
    slept = Replay.slept

    def find_nothing(replay: Replay, place: str) -> RecordedSleep | None:
        slept(replay, place)
        return None

    world.patch(Replay, "slept", find_nothing)


def wake_sleepers_early(world: World) -> None:
    """A claim takes tasks that sleep before their time has come."""
    world.database.guard.wakes_early = True


def forget_sleepers(world: World) -> None:
    """A claim leaves tasks alone that sleep, whatever the time."""
    world.database.guard.forgets_sleepers = True


def execute_steps_of_branches_again(world: World) -> None:
    """A later run finds a recorded step only in the first branch of an agent."""
    stepped = Replay.stepped

    def find_in_first(replay: Replay, word: Step, place: str) -> Stepped | None:
        known = stepped(replay, word, place)
        return known if in_first_branch(place) else None

    world.patch(Replay, "stepped", find_in_first)


def go_on_before_a_step_is_recorded(world: World) -> None:
    """A run goes on with the result of a step that is not committed yet."""

    step = TaskSink.step

    async def take_soon(sink: TaskSink, word: Step, execute: Execute) -> Stepped:
        return await step(sink, replace(word, soon=True), execute)

    world.patch(TaskSink, "step", take_soon)


def keep_what_a_dead_run_said_after_a_step(world: World) -> None:
    """What a run said after its last recorded step stays, when the next run says it again."""
    begin = Replay.begin

    def append(replay: Replay, chunk: ArtifactChunk, record: Callable[[], Record]) -> ArtifactChunk:
        begun = any(known.artifact_id == chunk.artifact.artifact_id for known in record().artifacts)
        return chunk if begun else begin(replay, chunk, record)

    world.patch(Replay, "begin", append)


def ignore_changed_webhooks(world: World) -> None:
    """A write carries the calls of the webhooks that its writer knows, whichever there are by then."""
    world.database.guard.ignores_changed_webhooks = True


def keep_what_the_store_has_lost(world: World) -> None:
    """A replica goes on with what it has read, when a standby has taken over that lacks it."""

    async def reread(tasks: Tasks, retry_s: float) -> None:
        """Compare nothing."""

    world.patch(Tasks, "reread", reread)
    world.patch(Log, "outdated", False)


def continue_what_the_store_has_lost(world: World) -> None:
    """What others write is added to a log, whatever stood before it when it was written."""
    adopt = Log.adopt

    def adopt_any(log: Log, page: Page) -> bool:
        return adopt(log, replace(page, history=log.history))

    world.patch(Log, "adopt", adopt_any)
    world.patch(Log, "outdated", False)


def let_streams_go_on_after_a_failover(world: World) -> None:
    """A stream goes on that has shown what the store has lost since."""
    rewind = Log.rewind

    def untold(log: Log, stored: Stored | None, history: str = "") -> None:
        rewound = log.rewound
        rewind(log, stored, history)
        log.rewound = rewound

    world.patch(Log, "rewind", untold)


def sweep_what_is_open(world: World) -> None:
    """The sweep deletes tasks by their age alone."""
    world.database.guard.sweeps_what_is_open = True


def write_state_under_an_old_epoch(world: World) -> None:
    """The store lets a run write its agent's state that has lost its task."""
    world.database.guard.writes_state_under_old_epochs = True


def read_memory_again(world: World) -> None:
    """A later run does not get what an earlier one has read of its memory."""
    stepped = Replay.stepped

    def forgetful(replay: Replay, word: Step, place: str) -> Stepped | None:
        recorded = stepped(replay, word, place)
        return None if word.name.endswith(".get") else recorded

    world.patch(Replay, "stepped", forgetful)


def write_memory_again(world: World) -> None:
    """The store does not know a write again that a run has made before it died."""
    write_entries = StoredSpace.write_entries

    async def unnamed(space: StoredSpace, **changes: Any) -> int:
        return await write_entries(space, **{**changes, "act": None})

    world.patch(StoredSpace, "write_entries", unnamed)


def charge_canceled_tasks_for_nothing(world: World) -> None:
    """A task that is canceled keeps what it has reserved of its budgets for good."""
    charges = Tasks.charges

    def charge(tasks: Tasks, record: Record) -> tuple[Charge, ...]:
        return () if record.state is TaskState.CANCELED else charges(tasks, record)

    world.patch(Tasks, "charges", charge)


def _say_nothing(*said: object) -> None:
    """Take the place of something that is to be said to others."""


def _alter_all(world: World, alter: Callable[[SimulatedStore, HubBus], None]) -> None:
    for place in world.places:
        place.alter = alter


MUTATIONS: Mapping[str, Callable[[World], None]] = {
    mutation.__name__: mutation
    for mutation in (
        ignore_the_epoch,
        publish_before_commit,
        take_over_a_lease_that_is_alive,
        renew_an_expired_heartbeat,
        repeat_an_unknown_write_without_its_id,
        let_a_question_overtake_an_answer,
        leave_holders_untold,
        leave_cancels_untold,
        leave_queued_work_untold,
        leave_free_slots_untold,
        leave_waiters_asleep_after_a_refresh,
        keep_offers_for_ever,
        let_children_outlive_their_parent,
        end_children_before_their_parent,
        keep_suspended_runs_that_are_gone,
        run_again_what_is_not_restartable,
        ignore_the_end_of_workers_leases,
        renew_workers_leases_that_have_run_out,
        take_words_of_earlier_leases,
        take_a_word_again,
        forget_what_workers_know,
        lose_the_last_event_before_a_take_over,
        owe_deliveries_before_the_commit,
        take_answers_of_branches_in_their_order,
        execute_recorded_steps_again,
        execute_steps_of_branches_again,
        sleep_again,
        wake_sleepers_early,
        forget_sleepers,
        go_on_before_a_step_is_recorded,
        keep_what_a_dead_run_said_after_a_step,
        ignore_changed_webhooks,
        keep_what_the_store_has_lost,
        continue_what_the_store_has_lost,
        let_streams_go_on_after_a_failover,
        sweep_what_is_open,
        write_state_under_an_old_epoch,
        read_memory_again,
        write_memory_again,
        charge_canceled_tasks_for_nothing,
    )
}
"""All mutations by name."""
