"""Intake: a caller's message becomes a task, or part of one.

Invariant: the task row is written before any agent code runs (invariant 7), but for agents that may answer with a
Message. A repeated call is written once.
"""

import asyncio
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine import policy
from dragoman.engine.api import Runner
from dragoman.engine.auto_runs import AutoRuns
from dragoman.engine.lineage import check_lineage, read_lineage
from dragoman.engine.log import Log, read_whole
from dragoman.engine.policy import EngineSettings
from dragoman.engine.rights import Right
from dragoman.engine.rules import NO_NOTE, AddMessage, Decision, OperatorAnswer, decide, new_task
from dragoman.engine.runs.auto_run import AutoRun, BecameTask, Decided
from dragoman.engine.runs.direct import DirectRun
from dragoman.engine.runs.endings import refusal_of
from dragoman.engine.runs.services import RunServices
from dragoman.engine.spending import TaskSpending
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.tasks import Tasks
from dragoman.engine.upstream_notes import MEMBER
from dragoman.engine.webhooks import WebhookOperations
from dragoman.engine.writes import Outcome, settle
from dragoman.model.errors import (
    A2AError,
    InvalidParams,
    QuestionClosed,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.events import MessageReceived
from dragoman.model.ids import new_id, new_write, timestamp, timestamp_ms
from dragoman.model.message import Message
from dragoman.model.operations import Call, PushConfig, SendMessage
from dragoman.model.principal import KeyLimits
from dragoman.model.task import TaskHead, Usage
from dragoman.store.api import (
    Appended,
    Dedupe,
    NewTask,
    OutcomeUnknown,
    OverBudget,
    OverQuota,
    Repeat,
    Store,
    StoreError,
    Unknown,
)
from dragoman.store.budgets import BudgetClaim
from dragoman.store.members import TeamMembers
from dragoman.store.outbox import Registration
from dragoman.store.usage import AnswerUsage, used_by_answer
from dragoman.store.worker_leases import WORKER

NO_CLAIMS: tuple[BudgetClaim, ...] = ()


class Origin(Struct, frozen=True):
    """The parts of a delegated task's head that the delegation decides, with the id of the task.

    See `model.task.TaskHead`.
    """

    task_id: str
    parent: str
    lineage: tuple[str, ...]
    detached: bool
    deadline_ms: int | None


class AcceptedMessage(Struct, frozen=True):
    """A message that was written to a task: `task` is pinned, `seq` is the log's length after the message.

    `repeated` says that an earlier call had written the message, and nothing was written now.
    """

    task: Log
    seq: int
    repeated: bool


class Intake:
    """Checks incoming messages, writes them, and starts or resumes the runs that work on them."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        supervisor: Supervisor,
        auto_runs: AutoRuns,
        services: RunServices,
        settings: EngineSettings,
        webhooks: WebhookOperations | None,
        spending: TaskSpending,
    ) -> None:
        self._store = store
        self._spending = spending
        self._tasks = tasks
        self._supervisor = supervisor
        self._leases = supervisor.leases
        self._auto_runs = auto_runs
        self._services = services
        self._clock = services.clock
        self._files = services.files
        self._settings = settings
        self._webhooks = webhooks
        self._undecided: dict[bytes, tuple[bytes, AutoRun]] = {}
        """The runs that may answer with a Message or become a task, by the key of their call, with its digest."""
        self._answering: set[DirectRun] = set()
        """The runs under way that answer with a Message."""

    async def take(
        self, runner: Runner | None, call: Call, send: SendMessage, origin: Origin | None = None
    ) -> AcceptedMessage | Message:
        """Write the message to its task, or as a new task, and start or resume the run.

        Without a `runner` the agent is served by other replicas only: the task is left to them.
        Returns the task, or the message of an agent that answers directly. `origin` is given when an agent delegates.
        No quota applies then, since the caller has not asked for the task. Budgets do. Under one of them every answer
        is a task, which reserves before it begins.
        """
        if runner is not None:
            policy.check_send(runner.profile, send, pushes=self._webhooks is not None)
        now_ms = self._clock.now_ms()
        expires_ms = now_ms + int(self._settings.dedupe_s * 1000)
        if call.size < policy.LARGE_CALL_BYTES:
            dedupe = policy.dedupe(call, send, expires_ms)
        else:
            dedupe = await asyncio.to_thread(policy.dedupe, call, send, expires_ms)
        refused = self._leases.served.refusal(call.agent, new=not send.message.task_id)
        if refused is None and runner is not None and runner.offline:
            refused = runner.refusal()
        if refused is not None and (dedupe is None or not await self._known(call, dedupe)):
            raise refused
        principal = call.principal
        if (principal.limits is not None or principal.team_limits is not None) and origin is None:
            await self._check_tokens(call, principal.id, principal.limits, dedupe, now_ms)
            await self._check_tokens(call, TeamMembers(principal.team), principal.team_limits, dedupe, now_ms)
        if send.message.task_id:
            return await self._continue(runner, call, send, send.message.task_id, dedupe)
        direct = runner is not None and runner.traits.direct and call.manners.answers_with_message
        if runner is not None and direct and not self._spending.limits(call.principal, call.agent):
            answered = await self._answer_directly(runner, call, send, dedupe)
            if answered is not None:
                return answered
        files = self._files
        large = files.keeps and files.large(send.message.parts)
        if large and dedupe is not None:
            repeat = await self._store.recall(dedupe.key)
            taken = None if repeat is None else await self._repeated(call, repeat, dedupe)
            if taken is not None:
                return taken
        context_id, claims = "", NO_CLAIMS
        if self._spending.rules.budgets:
            context_id = send.message.context_id or new_id()
            claims = await self._spending.claims(principal, call.agent, context_id, now_ms)
        head, message = self._head(runner, call, send, now_ms, context_id, origin, claims)
        noted = runner is not None and runner.traits.begins_noted
        note = await self._begin_note(runner, call, head, dedupe) if runner is not None and noted else NO_NOTE
        submitted = replace(message, parts=await files.kept(head.id, message.parts)) if large else message
        headers = call.headers_with(message.message_id)
        task = self._tasks.new(head, headers)  # pinned: no run keeps it if other replicas serve the agent
        quota = policy.quota(self._settings, principal, now_ms) if origin is None else None
        holder = None if runner is None or runner.traits.by_workers else self._leases.holder
        new = new_task(
            head, submitted, now_ms, new_write(), holder, dedupe=dedupe, quota=quota, claims=claims, note=note
        )
        if send.push_config is not None and self._webhooks is not None:
            registered = await self._add_webhook(self._webhooks, call, send.push_config, task, new)
            if not isinstance(registered, NewTask):
                return registered
            new = registered
        try:
            written = await self._create(runner, task, new, message)
            while isinstance(written, Repeat):
                assert dedupe is not None  # a call without a key is never a repeat
                if (taken := await self._repeated(call, written, dedupe)) is not None:
                    task.unpin()
                    return taken
                another = replace(new, dedupe=self._instead(call, written, dedupe))
                written = await self._create(runner, task, another, message)
        except (OverQuota, OverBudget) as over:
            if large:
                await files.forget(head.id)
            task.unpin()
            if isinstance(over, OverBudget):
                raise self._spending.refusal(over.claim, now_ms) from over
            raise policy.over_quota(over, new.quota, now_ms) from over
        except BaseException:
            task.unpin()
            raise
        return AcceptedMessage(task, len(new.events), repeated=False)

    async def _answer_directly(
        self, runner: Runner, call: Call, send: SendMessage, dedupe: Dedupe | None
    ) -> AcceptedMessage | Message | None:
        """Let an agent answer that needs no task; None if this message needs one. Raises UnsupportedOperation.

        A repeated call gets the same answer. That is a task if the call was first made to a replica that does not serve
        the agent.
        """
        automatic = runner.traits.direct == "auto"
        if automatic and (send.push_config or send.return_immediately or self._files.large(send.message.parts)):
            return None
        if send.push_config is not None:
            place = call.manners.webhook
            raise UnsupportedOperation(f"{place}: {call.agent} answers with a message, not a task: leave it out")
        if dedupe is not None and (repeat := await self._store.recall(dedupe.key)) is not None:
            if (taken := await self._repeated(call, repeat, dedupe)) is not None:
                return taken
            dedupe = self._instead(call, repeat, dedupe)
        if automatic:
            return await self._answer_or_task(runner, call, send, dedupe)
        return await self._answer(runner, call, send, dedupe)

    async def _add_webhook(
        self, webhooks: WebhookOperations, call: Call, config: PushConfig, task: Log, new: NewTask
    ) -> NewTask | AcceptedMessage | Message:
        """Add the webhook that a message asks for to its new task. Raises A2AError if it may not be called.

        A repeated call gets its outcome all the same: the store is asked for it only then, and says so of any other as
        it makes the task.
        """
        try:
            registration = await webhooks.registration(call, config, task.head.id, f"{call.manners.webhook}.")
        except A2AError:
            dedupe = new.dedupe
            repeat = None if dedupe is None else await self._store.recall(dedupe.key)
            if dedupe is None or repeat is None or (taken := await self._repeated(call, repeat, dedupe)) is None:
                raise
            return taken
        audience = webhooks.audience(task)
        audience.join(registration.config)
        return replace(new, push=registration, deliveries=audience.beginning(task.head, new.events))

    async def _check_tokens(
        self, call: Call, whose: str | TeamMembers, limits: KeyLimits | None, dedupe: Dedupe | None, now_ms: int
    ) -> None:
        """Raises TooManyRequests if the runs of the caller, or of its team, have used the tokens of the day.

        Not for a repeated call.
        """
        most = None if limits is None else limits.max_daily_tokens
        if most is None:
            return
        try:
            used = await self._store.usage.tokens(whose, now_ms // policy.DAY_MS)
        except StoreError as error:
            raise Unavailable("the server's store cannot answer now: try again", 5) from error
        if used >= most and (dedupe is None or not await self._known(call, dedupe)):
            raise policy.over_tokens(most, now_ms, of_team=isinstance(whose, TeamMembers))

    async def _begin_note(self, runner: Runner, call: Call, head: TaskHead, dedupe: Dedupe | None) -> Mapping[str, str]:
        """The notes that a new task begins with. Raises A2AError if its agent does not take it on, but no repeat."""
        try:
            return await runner.begin_note(head, self._services.past)
        except A2AError:
            if dedupe is None or not await self._known(call, dedupe):
                raise
            return NO_NOTE  # the task is there, and no other is made
        except StoreError as error:
            raise Unavailable("the server's store cannot answer now: try again", 5) from error

    async def _repeated(self, call: Call, repeat: Repeat, dedupe: Dedupe) -> AcceptedMessage | Message | None:
        """The outcome of the same call before; None if that was another call, or was refused.

        A Message is none in a dialect that has no Message for an answer.
        """
        if not self._same(call, repeat, dedupe):
            return None
        if repeat.task_id is None:
            return repeat.answer if call.manners.answers_with_message else None
        task = await self._tasks.pin(call, repeat.task_id)
        if task.terminal and refusal_of(task.record()) is not None:
            task.unpin()
            return None
        return AcceptedMessage(task, repeat.seq, repeated=True)

    def _instead(self, call: Call, repeat: Repeat, dedupe: Dedupe) -> Dedupe | None:
        """The dedupe entry with which a call replaces an earlier, refused attempt of the same call.

        Returns None, so that the call is not remembered, if the key belongs to another call, or to a direct agent's
        message, which stays remembered.
        """
        if repeat.task_id is None or not self._same(call, repeat, dedupe):
            return None
        return replace(dedupe, instead_of=repeat.task_id)

    async def _known(self, call: Call, dedupe: Dedupe) -> bool:
        """Whether the store knows the call's key. A refused earlier attempt of the same call does not count."""
        repeat = await self._store.recall(dedupe.key)
        if repeat is None:
            return False
        if repeat.task_id is None or repeat.digest != dedupe.digest:
            return True
        taken = await self._repeated(call, repeat, dedupe)
        if isinstance(taken, AcceptedMessage):
            taken.task.unpin()
        return taken is not None

    def _create(
        self, runner: Runner | None, task: Log, new: NewTask, message: Message, auto: AutoRun | None = None
    ) -> "asyncio.Future[Appended | Repeat | None]":
        """Write the task and start its run, even if the caller leaves meanwhile. With `auto`, that run becomes the
        task's run.

        The future raises StoreError if the outcome stays unknown for long: a caller may repeat the call. An agent that
        delegates waits on.
        """
        waiter: asyncio.Future[Appended | Repeat | None] = self._supervisor.loop.create_future()

        def created(outcome: Outcome) -> None:
            if isinstance(outcome, OutcomeUnknown) and task.head.parent is not None:
                return
            if isinstance(outcome, Appended):
                if runner is not None and not runner.traits.by_workers:
                    self._supervisor.start(runner, task, message, auto=auto)
                else:
                    self._supervisor.queued(task)
            elif auto is not None and waiter.done() and not isinstance(outcome, OutcomeUnknown):
                auto.drop()  # its callers have been told that the outcome was unknown
            settle(waiter, outcome)

        self._tasks.add(task)
        task.writes.create(task, new, created)
        return waiter

    def _head(
        self,
        runner: Runner | None,
        call: Call,
        send: SendMessage,
        now_ms: int,
        context_id: str = "",
        origin: Origin | None = None,
        claims: tuple[BudgetClaim, ...] = NO_CLAIMS,
    ) -> tuple[TaskHead, Message]:
        lineage = origin.lineage if origin is not None else ()
        if send.message.metadata and origin is None:
            lineage = read_lineage(send.message.metadata, self._services.server)
        if lineage:
            check_lineage(lineage, call.agent)
        task_id = new_id() if origin is None else origin.task_id
        context_id = context_id or send.message.context_id or new_id()
        head = TaskHead(
            id=task_id,
            context_id=context_id,
            agent=call.agent,
            owner=call.principal.id,
            dialect=call.dialect,
            mount=call.mount,
            created_at=timestamp(now_ms),
            skill=send.skill,
            metadata=send.metadata,
            extensions=call.extensions,
            accepted_output_modes=send.accepted_output_modes,
            traceparent=call.traceparent,
            key=call.principal.key,
            team=call.principal.team,
            steps_version="" if runner is None else runner.traits.steps_version,
        )  # of more than 15 named arguments CPython makes a dict first
        if send.skills or send.earlier or send.unattended or send.continues:
            head = replace(
                head,
                skills=send.skills,
                earlier=send.earlier,
                unattended=send.unattended,
                continues=send.continues,
            )
        if lineage or claims:
            head = replace(head, lineage=lineage, reservations=tuple([claim.reservation for claim in claims]))
        if origin is not None:
            parent, detached, deadline_ms = origin.parent, origin.detached, origin.deadline_ms
            head = replace(head, parent=parent, detached=detached, deadline_ms=deadline_ms)
        return head, replace(send.message, task_id=task_id, context_id=context_id)

    def _same(self, call: Call, repeat: Repeat, dedupe: Dedupe) -> bool:
        """Whether a call with the same key is the same call.

        Raises InvalidParams if it must be and is not, UnsupportedOperation if its answer cannot be read.
        """
        if repeat.digest == dedupe.digest:
            if repeat.unreadable:
                raise policy.unreadable_answer()
            return True
        if call.idempotency_key is not None:
            raise InvalidParams("Idempotency-Key", "was used with other params within 10 minutes: use a fresh key")
        return False

    async def _continue(
        self, runner: Runner | None, call: Call, send: SendMessage, task_id: str, dedupe: Dedupe | None
    ) -> AcceptedMessage:
        """Write the message to the task it names (A2A 1.0 §3.4.2)."""
        task = await self._tasks.pin(call, task_id, Right.CHANGE if send.push_config is None else Right.OWN)
        try:
            context_id = task.head.context_id
            if send.message.context_id and send.message.context_id != context_id:
                raise InvalidParams(
                    "message.contextId", f"task {task_id} belongs to another context: send {context_id} or leave it out"
                )
            if dedupe is not None and (repeat := await self._store.recall(dedupe.key)) is not None:
                if self._same(call, repeat, dedupe):
                    return AcceptedMessage(task, repeat.seq, repeated=True)
                dedupe = None
            self._leases.served.switches.check_member(call.agent, task.fold.note_of(MEMBER))
            if task.head.reservations and call.operator is None and not task.terminal:
                await self._spending.check_further(task.record(), self._clock.now_ms())
            logged = message = replace(send.message, context_id=context_id)
            if self._files.large(message.parts) and not task.terminal:
                logged = replace(message, parts=await self._files.kept(task_id, message.parts))
            push = None
            if send.push_config is not None and self._webhooks is not None:
                place = f"{call.manners.webhook}."
                push = await self._webhooks.registration(call, send.push_config, task_id, place)
            while True:
                keeper = await self._leases.keeper_of(task) if task.row.keeper is not None else None
                received = MessageReceived(logged, "", send.metadata)
                try:
                    written = await self._append(
                        runner, call, task, message, received, dedupe, push, keeper, send.answers
                    )
                except QuestionClosed:
                    seq = await self._seq_of_answer(task, message.message_id)
                    if seq is None:
                        raise
                    return AcceptedMessage(task, seq, repeated=True)
                if isinstance(written, Appended):
                    return AcceptedMessage(task, written.last_seq, repeated=False)
                if dedupe is not None and self._same(call, written, dedupe):
                    return AcceptedMessage(task, written.seq, repeated=True)
                dedupe = None
        except BaseException as error:
            task.unpin()
            if isinstance(error, Unknown):  # the sweep has deleted it
                raise TaskNotFound(task_id) from error
            raise

    async def _seq_of_answer(self, task: Log, message_id: str) -> int | None:
        """The log's length after an answer that an earlier call has written to the task; None if there is none.

        If the log was pruned, it is one before the end. Raises StoreError.
        """
        await self._tasks.compare(task)
        if all(said.message_id != message_id for said in task.record().history):
            return None
        for logged in await read_whole(task):
            if isinstance(logged.event, MessageReceived) and logged.event.message.message_id == message_id:
                return logged.seq + 1  # the status with which the task goes on is part of the same write
        return task.settled_seq - 1

    async def _append(
        self,
        runner: Runner | None,
        call: Call,
        task: Log,
        message: Message,
        logged: MessageReceived,
        dedupe: Dedupe | None,
        push: Registration | None,
        keeper: str | None,
        answers: str,
    ) -> Appended | Repeat:
        """Append the message in its `logged` form, and hand it to the task's run. Raises A2AError, StoreError.

        `keeper` is another replica that keeps the suspended run. `answers` is as in `SendMessage`.
        """
        goes_on = False
        addressee: str | None = None

        def decide_now(log: Log) -> Decision | None:
            nonlocal goes_on, addressee
            now_ms = self._clock.now_ms()
            request: AddMessage | OperatorAnswer
            if call.operator is None:
                request = AddMessage(
                    logged,
                    dedupe,
                    push,
                    one_message=runner is not None and runner.traits.one_message,
                    in_order=log.followers.attached,
                    webhooks=0 if push is None or webhooks is None else webhooks.number(log, push),
                    place=f"{call.manners.webhook}.id",
                    answers=answers,
                )
            else:
                request = OperatorAnswer(logged, policy.intervention(call, "answer", now_ms), dedupe, answers)
            decision = decide(self._leases.view(log, keeper), request, now_ms)
            addressee = None if decision is None else decision.holder
            goes_on = decision is not None and decision.goes_on
            return decision

        def committed() -> None:
            if call.shown is not None and call.operator is None:  # else the caller's latest credentials stay
                task.note_headers(message.message_id, call.shown)
            if goes_on and addressee == self._leases.holder:
                self._supervisor.answer(task, message)
            elif goes_on and task.row.holder != WORKER:
                self._leases.tell(task, addressee)
            elif goes_on:
                pass  # its worker waits for news of it
            else:
                if task.row.holder is None:  # a claim may have passed the task over, which this write had locked
                    self._leases.tell(task, None)
                if not task.writes.read_back:  # else the run hears of it as of what others wrote
                    self._supervisor.deliver(task, message)

        webhooks = self._webhooks
        written = await task.writes.append(task, decide_now, committed, patient=False)
        assert written is not None  # the rules write a message or refuse it
        return written

    async def _answer(
        self, runner: Runner, call: Call, send: SendMessage, dedupe: Dedupe | None
    ) -> AcceptedMessage | Message:
        """Run a direct agent and return its answer, or that of the same call, which another replica took meanwhile."""
        head, message = self._head(runner, call, send, self._clock.now_ms())
        headers = call.headers_with(message.message_id)
        run = DirectRun(runner, head, replace(message, task_id=None), self._services, headers)
        deadline_s, timeout_s = runner.traits.deadline_s, self._settings.blocking_timeout_s
        self._answering.add(run)
        try:
            if deadline_s is not None and deadline_s < timeout_s:
                answer = await run.answer(new_id(), deadline_s, "deadline_s")
            else:
                answer = await run.answer(new_id(), timeout_s)
        finally:
            self._answering.discard(run)
        if dedupe is not None:
            earlier = await self._store.remember(dedupe, answer, self._usage(head, run.used))
            if earlier is not None and (taken := await self._repeated(call, earlier, dedupe)) is not None:
                return taken
        else:
            self._store.usage.gather(self._usage(head, run.used))
        return answer

    def stop_answers(self, agent: str, error: A2AError) -> None:
        """Stop the runs of an agent that answer with a Message. Their callers get the error."""
        for run in self._answering:
            if run.agent == agent:
                run.stop(error)

    def _usage(self, head: TaskHead, used: Usage | None) -> AnswerUsage:
        """Return the usage of a direct answer's run, which ends now."""
        now_ms = self._clock.now_ms()
        duration_ms = max(0, now_ms - timestamp_ms(head.created_at))
        return AnswerUsage(head.owner, head.agent, now_ms, used_by_answer(used, duration_ms))

    # -- agents that answer with a Message or a task (A2A 1.0 §3.1.1) --------------------------------------------------

    async def _answer_or_task(
        self, runner: Runner, call: Call, send: SendMessage, dedupe: Dedupe | None
    ) -> AcceptedMessage | Message:
        """Run an agent, and return its Message, or the task that its run became.

        A caller that leaves changes nothing. A call that is repeated meanwhile waits for the same run.
        """
        run: AutoRun | None = None
        if dedupe is not None and dedupe.key in self._undecided:
            digest, run = self._undecided[dedupe.key]
            if not self._same(call, Repeat(None, digest, 0), dedupe):
                run = dedupe = None
        repeated = run is not None
        if run is None:
            run = self._begin(runner, call, send, dedupe)
        outcome = await asyncio.shield(run.outcome)
        if isinstance(outcome, Message):
            return outcome
        return AcceptedMessage(await self._tasks.pin(call, outcome.task_id), outcome.seq, repeated=repeated)

    def _begin(self, runner: Runner, call: Call, send: SendMessage, dedupe: Dedupe | None) -> AutoRun:
        head, message = self._head(runner, call, send, self._clock.now_ms())
        run = self._auto_runs.start(
            runner,
            head,
            lambda services, traceparent: AutoRun(
                runner, head, message, services, call=call, dedupe=dedupe, calls=self, traceparent=traceparent
            ),
        )
        if dedupe is not None:
            key = dedupe.key
            self._undecided[key] = dedupe.digest, run
            run.outcome.add_done_callback(lambda _: self._undecided.pop(key))
        return run

    async def keep(self, run: AutoRun, answer: Message, used: Usage | None) -> Decided:
        """See `engine.runs.auto_run.UndecidedCalls`."""
        dedupe, usage = run.dedupe, self._usage(run.head, used)
        if dedupe is None:
            self._store.usage.gather(usage)
            return answer
        earlier = await self._store.remember(dedupe, answer, usage)
        if earlier is None or earlier.digest != dedupe.digest:
            return answer
        return earlier.answer or BecameTask(earlier.task_id or "", earlier.seq)

    def make_task(self, run: AutoRun) -> None:
        """See `engine.runs.auto_run.UndecidedCalls`."""
        if self._supervisor.may_write_tasks:
            self._supervisor.errands.background(self._make_task(run))
        else:
            run.drop(self._supervisor.refusal())

    async def _make_task(self, run: AutoRun) -> None:
        """Write the task that a run has become, and let the run go on with it. Every failure is the run's outcome."""
        head, message, call, dedupe, now_ms = run.head, run.message, run.call, run.dedupe, self._clock.now_ms()
        task = self._tasks.new(head, call.headers_with(message.message_id))
        quota = policy.quota(self._settings, call.principal, now_ms)
        new = new_task(head, message, now_ms, new_write(), self._leases.holder, dedupe=dedupe, quota=quota)
        try:
            written = await self._create(run.runner, task, new, message, run)
            while isinstance(written, Repeat):
                assert dedupe is not None  # a call without a key is never a repeat
                taken = await self._repeated(call, written, dedupe)
                if isinstance(taken, AcceptedMessage):
                    taken.task.unpin()
                    run.drop(BecameTask(taken.task.head.id, taken.seq))
                elif taken is not None:
                    run.drop(taken)
                else:
                    another = replace(new, dedupe=self._instead(call, written, dedupe))
                    written = await self._create(run.runner, task, another, message, run)
                    continue
                return
            run.decide(BecameTask(head.id, len(new.events)))
        except OverQuota as over:
            run.drop(policy.over_quota(over, new.quota, now_ms))
        except StoreError as error:
            if task.writes.busy:
                run.decide(error)  # the write is repeated until its outcome is known
            else:
                run.drop(error)
        except A2AError as error:
            run.drop(error)
        except BaseException:
            run.drop(self._supervisor.refusal())
            raise
        finally:
            task.unpin()
