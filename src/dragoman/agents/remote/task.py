"""Joins one of our tasks to the task that an upstream makes of it: messages go there, updates come back.

`exchange` decides what follows each answer, cut and refusal; this carries it out.

Invariant: a resumed run continues with the upstream's task where it left off. A message is sent twice only to an
upstream that recognises it. A cancel before the upstream has named its task cancels that task, too: the stream is read
on until then, for a bounded time. Over chat completions, as KAOS does when a card offers no A2A or there is no card,
the whole conversation goes with each message, since the other side keeps none.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any, NoReturn, assert_never

from msgspec.structs import replace

from dragoman.agents.remote import exchange, failures
from dragoman.agents.remote.admission import UpstreamAdmission
from dragoman.agents.remote.begun_send import BegunSend
from dragoman.agents.remote.canceled_send import cancel_once_named
from dragoman.agents.remote.failures import UNFOUND, CallWithheld
from dragoman.agents.remote.health import AGAIN_S
from dragoman.agents.remote.ids import UpstreamIds
from dragoman.agents.remote.pool import UpstreamPool
from dragoman.agents.remote.relay import Relay
from dragoman.agents.remote.route import UpstreamRoute
from dragoman.agents.remote.standing import UpstreamStanding
from dragoman.client import Connection
from dragoman.client.errors import NoAnswer, PeerError, no_answer
from dragoman.client.retries import Repetition
from dragoman.client.stream import TaskStream
from dragoman.dialects.extensions import told_chain
from dragoman.engine.api import Ended, Run
from dragoman.engine.upstream_notes import NO_NOTES, WHY_CHARS, UpstreamAttempt, read_upstream_notes, write_attempts
from dragoman.engine.words import QUESTIONS
from dragoman.model.errors import A2AError, AgentOffline
from dragoman.model.ids import timestamp, timestamp_ms
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import StreamMessage, Subscribe
from dragoman.model.task import INTERRUPTED, TERMINAL, Task, TaskState, TaskStatus
from dragoman.model.updates import Update
from dragoman.net.errors import EgressError

log = logging.getLogger("dragoman.upstreams")

HISTORY_MAX = 50
"""The most earlier messages of the conversation that go with one over chat completions."""


class UpstreamTask:
    """The exchange between `run` and one of the upstreams of `pool`.

    `queues`: the task waits for an upstream that cannot be reached. `begun`: the first message has been sent.
    """

    __slots__ = (
        "_attempts",
        "_begun",
        "_bound",
        "_due",
        "_exchange",
        "_headers",
        "_ids",
        "_kept_admission",
        "_message",
        "_noted",
        "_pool",
        "_queues",
        "_read",
        "_relay",
        "_resumptions",
        "_round",
        "_route",
        "_run",
        "_spoken",
        "_standing",
        "_unnoted",
        "_unsent_ms",
    )

    def __init__(
        self, run: Run, pool: UpstreamPool, *, queues: bool, headers: bool, begun: BegunSend | None = None
    ) -> None:
        self._run = run
        self._begun = begun
        self._pool = pool
        self._queues = queues
        self._headers = headers
        self._bound = ""
        """The member of the pool to which the conversation is bound."""
        self._attempts: list[UpstreamAttempt] = []
        """The members that have not carried out the task."""
        self._round = 0
        """How many of these attempts are from before all members could be tried again."""
        self._unnoted = False
        """Whether the member is noted with the task that it names, and not before."""
        self._noted = NO_NOTES if pool.single else read_upstream_notes(run.notes)
        self._begin_at(pool.find_route(self._noted) or pool.routes[0])
        self._standing = UpstreamStanding(run, self._route.access.retrier.clock)
        self._message = run.message
        """The message under way, or the last one."""
        self._due = False
        """Whether the message was sent, and its arrival is not noted."""
        self._unsent_ms = 0
        """A time at which no upstream had the message under way; 0: when the task was made."""
        self._spoken: Connection | None = None
        """The connection of the last send."""
        self._read: tuple[Task, Connection] | None = None
        """The upstream's task as it was last read, and the connection of that read."""
        self._resumptions = 0

    def _begin_at(self, route: UpstreamRoute) -> None:
        """Begin the exchange with this upstream."""
        access = route.access
        self._take_route(route)
        self._exchange = exchange.UpstreamExchange(
            name=route.name,
            queues=self._queues,
            for_callers=access.for_callers,
            over_http=access.over_http,
            mend_s=access.timeouts.mend_s,
            pooled=not self._pool.single,
        )

    def _take_route(self, route: UpstreamRoute) -> None:
        """Have this upstream carry out the task. Nothing of it was sent to another one that might have taken it."""
        run = self._run
        self._route = route
        self._ids = UpstreamIds(run, route)
        self._kept_admission: UpstreamAdmission | None = None
        member = "" if route.member is None else route.member.name
        self._relay = Relay(run, route.access.credentials, route.name, member)

    @property
    def _admission(self) -> UpstreamAdmission:
        """Admits the calls of the run. Made when it is first asked for: most calls need none (`_find_connection`)."""
        admission = self._kept_admission
        if admission is None:
            admission = UpstreamAdmission(self._run, self._route, self._ids, queues=self._queues, headers=self._headers)
            admission.note_doubt(unsure=self._exchange.unsure)
            self._kept_admission = admission
        return admission

    def carry_out(self) -> Coroutine[Any, Any, None]:
        """Have the upstream carry out the task. Raises Ended, unless it completed without a closing message."""
        return self._carry_out() if self._pool.single else self._carry_out_in_pool()

    async def _carry_out_in_pool(self) -> None:
        await self._find_member()
        self._route.begin_task()
        try:
            await self._carry_out()
        finally:
            self._route.end_task()

    async def _carry_out(self) -> None:
        try:
            event: exchange.ExchangeEvent | None = exchange.RunBegan() if self._run.epoch == 1 else await self._resume()
            while event is not None:
                if isinstance(event, exchange.CallFailed):
                    self._admission.record_failure(event.error)
                following: exchange.ExchangeEvent | None = None
                for command in self._advance(event):
                    if isinstance(command, exchange.FailRun):
                        self._fail(command.ended, event)
                    following = await self._do(command)
                event = following
            self._standing.record()
        except Ended as ended:
            self._standing.record()
            parts = self._route.access.credentials.masking.parts(ended.parts)
            raise Ended(ended.state, parts, ended.reason, ended.retry_after_s) from ended
        except asyncio.CancelledError:
            if self._run.canceled and exchange.CancelUpstreamTask() in self._advance(exchange.RunCanceled()):
                self._standing.record_cancel(await self._route.cancel_task(self._ids.task_id))
            raise

    # -- the machine ---------------------------------------------------------------------------------------------------

    def _advance(self, event: exchange.ExchangeEvent) -> tuple[exchange.ExchangeCommand, ...]:
        """Tell the machine of an event, and return what to do."""
        facts = exchange.NO_FACTS if type(event) in exchange.NEEDS_NO_FACTS else self._find_facts(event)
        self._exchange, commands = exchange.advance(self._exchange, facts, event)
        if self._kept_admission is not None:
            self._kept_admission.note_doubt(unsure=self._exchange.unsure)
        return commands

    def _find_facts(self, event: exchange.ExchangeEvent) -> exchange.ExchangeFacts:
        """Find the facts that the rows of an event look at."""
        route, ids = self._route, self._ids
        facts = exchange.ExchangeFacts(
            named=bool(ids.task_id),
            first=ids.number == 1,
            fresh=self._run.epoch == 1,
            due=self._due,
        )
        if isinstance(event, exchange.NEEDS_FACTS):
            pooled = self._exchange.pooled
            facts = replace(
                facts,
                chats=self._spoken is not None and self._spoken.tongue.chats,
                retry_s=route.health.retry_s,
                breaker_s=route.health.breaker.wait_s,
                now_s=time.monotonic(),
                others=pooled and self._pool.has_other(self._bound, self._tried),
                recognises=route.endpoint.may_repeat(self._unsent_ms or timestamp_ms(self._run.head.created_at)),
                shared=pooled and self._pool.shared_dedupe,
            )
        return facts

    def _fail(self, ended: Ended, event: exchange.ExchangeEvent) -> NoReturn:
        """End our task, because of an event."""
        error = event.error if isinstance(event, exchange.CallFailed | exchange.ChatFailed) else None
        if self._exchange.pooled:
            if self._is_away(ended, error):
                ended = failures.offline(self._pool.name, ended.retry_after_s)
            self._note_failure(ended, error)
        raise ended from error

    def _do(self, command: exchange.ExchangeCommand) -> Coroutine[Any, Any, exchange.ExchangeEvent | None]:
        """Carry out a command, and return the event that it leads to, if any. Raises Ended."""
        if type(command) is exchange.SendMessageNow:  # without another coroutine, since every message comes here
            return self._send()
        return self._end(command.status) if type(command) is exchange.EndRun else self._do_other(command)

    async def _do_other(self, command: exchange.ExchangeCommand) -> exchange.ExchangeEvent | None:
        match command:
            case exchange.SendOverChat():
                return await self._chat()
            case exchange.ReadTask():
                return await self._read_task()
            case exchange.FollowTask(subscribe=subscribe):
                return await self._follow_task(subscribe=subscribe)
            case exchange.AskCaller(status=status):
                self._message = await self._ask(status)
                self._unsent_ms = self._now_ms()
                return exchange.CallerReplied()
            case exchange.AskForCredentials():
                await self._admission.ask_for_credentials()
                return exchange.CredentialsShown()
            case exchange.AwaitUpstream(asked_s=asked_s):
                await self._admission.wait(asked_s)
                return exchange.WaitEnded()
            case exchange.PauseReading(pause_s=pause_s):
                await self._route.health.pause(pause_s)
                return exchange.WaitEnded()
            case exchange.RefreshCard():
                return await self._refresh_card()
            case exchange.ChooseMember(error=error):
                return await self._choose_member(error)
            case exchange.NoteTask(task_id=task_id):
                self._record_task(task_id, "", self._standing.begin(()))
            case exchange.NoteTaken():
                self._note_taken()
            case exchange.NoteLinkLost():
                self._standing.set_link(up=False)
            case exchange.FailRun(ended=ended):
                raise ended
            case exchange.CancelUpstreamTask() | exchange.CancelOnceNamed():
                pass  # a canceled run carries them out where the cancel reaches it
            case exchange.SendMessageNow() | exchange.EndRun():
                raise AssertionError("`_do` carries them out")
            case _:
                assert_never(command)
        return None

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _send(self) -> exchange.ExchangeEvent:
        """Send the message, and pass on updates until the upstream's task ends or asks."""
        if (begun := self._begun) is not None:
            self._begun = None
            self._ids.load_context(begun.context_id)
            return await self._follow_send(begun.connection, begun.operation, begun)
        connection = self._find_connection()
        if connection is None:
            try:
                connection = await self._admission.connection()
            except CallWithheld as withheld:
                return exchange.CallFailed(withheld)
            if connection is None:
                return exchange.NoA2a()
        chain = told_chain(self._run.message.metadata) if self._kept_admission is None else self._admission.chain
        operation = await self._ids.build_send(self._message, connection, chain)
        return await self._follow_send(connection, operation, None)

    async def _follow_send(
        self, connection: Connection, operation: StreamMessage, begun: BegunSend | None
    ) -> exchange.ExchangeEvent:
        """Send the message, unless that has `begun`, and pass on updates as `_send` does."""
        self._spoken = connection
        self._due = True
        try:
            stream = connection.task_stream(
                operation,
                traceparent=self._run.traceparent,
                on_link=self._standing.set_link,
                repetition=self._repetition,
                begun=None if begun is None else begun.stream,
            )
            status = await self._follow(stream, connection, None if begun is None else begun.began_s)
        except (A2AError, NoAnswer, PeerError) as error:
            return exchange.CallFailed(error)
        self._route.endpoint.adopt_card()
        return exchange.UpstreamSettled(status)

    def _find_connection(self) -> Connection | None:
        """The connection, if a call may be made at once and has nothing of the caller's with it; else `_admission`
        knows."""
        route = self._route
        if self._kept_admission is not None or route.access.for_callers or route.health.breaker.opened:
            return None
        return None if self._headers or self._run.extensions else route.endpoint.known_connection

    # -- the members of a pool -----------------------------------------------------------------------------------------

    @property
    def _tried(self) -> set[str]:
        """The members that were tried, the present one included."""
        member = self._route.member
        tried = set() if member is None else {member.name}
        if len(self._attempts) > self._round:
            tried |= {each.member for each in self._attempts[self._round :]}
        return tried

    @property
    def _repetition(self) -> Repetition:
        """Whether a failed send is repeated there, or goes to another member."""
        if not self._exchange.pooled or self._ids.number > 1 or self._ids.task_id:
            return Repetition.HERE
        if not self._pool.has_other(self._bound, self._tried):
            return Repetition.HERE
        return Repetition.NEVER if self._pool.shared_dedupe else Repetition.UNLESS_UNTAKEN

    async def _find_member(self) -> None:
        """Find the member that has the task, by the log, or choose one. Raises Ended."""
        run, pool, notes = self._run, self._pool, self._noted
        self._bound = notes.bound
        if notes.tried:
            self._attempts = list(notes.attempts)
            self._round = len(self._attempts)
        if (notes.member or notes.task) and pool.find_route(notes) is not None:
            if notes.context:
                self._ids.load_context(notes.context)
            return
        unsent = run.epoch == 1 or bool(run.notes.get("waits"))
        if notes.task or (notes.member and not unsent):
            raise failures.removed(pool.name)
        if not (unsent or pool.shared_dedupe):
            raise failures.uncertain(pool.name)
        try:
            place = await pool.place_task(run.head, await run.sink.past())
        except AgentOffline:
            raise failures.offline(pool.name, AGAIN_S) from None
        if place is None:
            return  # the first one: the exchange tells how that ends
        self._bound = place.bound
        if place.route is not self._route:
            self._begin_at(place.route)
        self._ids.load_context(place.context)
        if pool.direct and not notes.attempts:
            self._unnoted = True  # a note would make a task of an answer that needs none
        else:
            run.note(**place.note)
            await run.written()

    async def _choose_member(self, error: exchange.CallError | None) -> exchange.MemberChosen | exchange.NoMemberLeft:
        """Take the next member, after noting why this one has not taken the message. Without an error: begin anew."""
        run, left = self._run, self._route
        if error is None:
            self._round = len(self._attempts)
            route = self._pool.choose_route(run.head, self._bound, ())
        else:
            route = self._pool.choose_route(run.head, self._bound, self._tried)
        if route is None or route.member is None:
            return exchange.NoMemberLeft()
        if error is not None:
            self._add_attempt(failures.ending(left.name, error).reason, left.access.describe(error))
            log.warning("upstream %s: task %s goes to %s", left.label, run.head.id, route.label)
        admission = self._admission
        left.end_task()
        route.begin_task()
        self._take_route(route)
        self._admission.follow(admission)
        self._due, self._spoken = False, None
        if not self._unnoted:
            run.note(member=route.member.name, tried=write_attempts(self._attempts))
            await run.written()  # from now on the message may have been sent there
        access = route.access
        return exchange.MemberChosen(
            for_callers=access.for_callers, over_http=access.over_http, mend_s=access.timeouts.mend_s
        )

    def _now_ms(self) -> int:
        return self._route.access.retrier.clock.now_ms()

    def _add_attempt(self, reason: str, why: str) -> None:
        member = self._route.member
        assert member is not None  # only a pool of several has attempts
        at = timestamp(self._now_ms())
        self._attempts.append(UpstreamAttempt(member=member.name, at=at, reason=reason, why=why[:WHY_CHARS]))

    def _is_away(self, ended: Ended, error: exchange.CallError | None) -> bool:
        """Whether the conversation stays with a member that could not be reached, so that nothing was done."""
        nothing_sent = isinstance(error, NoAnswer) and not error.sent and ended.retry_after_s is not None
        return nothing_sent and self._pool.holds(self._bound)

    def _note_failure(self, ended: Ended, error: exchange.CallError | None) -> None:
        """Note that the last member has not carried out the task. One that has not taken it has no conversation."""
        self._add_attempt(ended.reason, "" if error is None else self._route.access.describe(error))
        member = self._bound if ended.retry_after_s is not None else self._attempts[-1].member
        self._run.note(member=member, tried=write_attempts(self._attempts))

    async def _refresh_card(self) -> exchange.CardRefreshed:
        """Read the card again, now, since the agent may have changed its interface."""
        assert self._spoken is not None
        before = self._spoken.interface
        return exchange.CardRefreshed(await self._admission.refresh_card() and self._spoken.interface != before)

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def _follow(
        self, stream: TaskStream, connection: Connection, began_s: float | None = None
    ) -> TaskStatus | None:
        """Pass on a stream to its end, and return how the task stands then. None: the answer was a message.

        `began_s` is the monotonic time at which it was asked for, if that was before now.
        """
        route, relay, fold = self._route, self._relay, stream.fold
        asked_s = time.monotonic() if began_s is None else began_s
        relay.expect_deltas(connection.tongue.deltas)
        self._resumptions = stream.resumptions
        batch = await self._read_first(stream, connection)
        try:
            if batch is not None:
                route.health.record_answer()
                route.health.count("succeeded", time.monotonic() - asked_s)
                self._run.working()
                if self._due:
                    self._note_taken()
            while batch is not None:
                await self._pass_on(batch, stream)
                batch = None if stream.ended else await stream.next()
        finally:
            stream.close()
        state = fold.state
        if state is None:
            if fold.message is not None:
                await relay.emit(fold.message.parts)
                self._ids.keep_context(fold.message.context_id or "")
        elif state in TERMINAL or state in INTERRUPTED:
            if stream.final is not None:
                await relay.pass_snapshot(stream.final)
            await relay.settle()
        return fold.status

    async def _read_first(self, stream: TaskStream, connection: Connection) -> list[Update] | None:
        """Return the first updates of a stream, None if there are none. Raises what the stream raises, and closes it.

        If the run is canceled before that, the upstream's task is canceled once the upstream names it.
        """
        left = False
        try:
            if self._ids.task_id:
                return await stream.next()
            # No branch of the run begins with it, as one would with a task of the loop's own: it says nothing.
            first = asyncio.Task(stream.next(), loop=asyncio.get_running_loop())
            try:
                return await asyncio.shield(first)
            except asyncio.CancelledError:
                if self._run.canceled and exchange.CancelOnceNamed() in self._advance(exchange.RunCanceled()):
                    left = self._route.run_beside(cancel_once_named(first, stream, connection, self._route))
                if not left:
                    first.cancel()
                    await asyncio.wait((first,))
                raise
        except BaseException:
            if not left:
                stream.close()
            raise

    async def _pass_on(self, batch: list[Update], stream: TaskStream) -> None:
        relay, fold = self._relay, stream.fold
        if not self._ids.task_id and fold.task_id:
            more = self._standing.begin(batch)
            if self._unnoted and self._route.member is not None:
                self._unnoted = False
                more |= {"member": self._route.member.name, "tried": write_attempts(self._attempts)}
            self._record_task(fold.task_id, fold.context_id, more)
        if stream.resumptions != self._resumptions:
            self._resumptions = stream.resumptions
            relay.expect_repetition()
        if stream.chunks:
            await relay.pass_chunks(batch)  # type: ignore[arg-type]  # as the stream says
            return
        for update in batch:
            if (waits := relay.pass_on(update)) is not None:
                await waits
        status = fold.status
        if status is not None and status is not self._standing.status:
            self._standing.hear(status)

    def _record_task(self, task_id: str, context_id: str, standing: dict[str, str]) -> None:
        """Record the upstream's ids. Raises Ended if they are beyond what can be kept."""
        try:
            self._ids.record_task(task_id, context_id, standing)
        except ValueError as fault:
            self._relay.leave_out(str(fault))
            said = failures.left_out(self._route.name, self._relay.faults)
            raise Ended(TaskState.FAILED, (said,), failures.UNREADABLE) from fault

    def _note_taken(self) -> None:
        """Record that the upstream has the message."""
        self._due = False
        self._relay.count_taken()
        self._ids.record_taken()
        if self._exchange.pooled:
            self._pool.hold(self._run.head, self._route)

    # -- asking and ending ---------------------------------------------------------------------------------------------

    async def _ask(self, status: TaskStatus) -> Message:
        """Ask the caller what the upstream asks, and return the answer."""
        parts = self._relay.readable(status.message.parts) if status.message is not None else ()
        self._standing.record()
        self._run.note(used=self._relay.usage_note)
        question = self._route.access.credentials.masking.parts(parts or QUESTIONS[status.state])
        return await self._run.ask(question, auth=status.state is TaskState.AUTH_REQUIRED)

    async def _end(self, status: TaskStatus | None) -> None:
        """End our task as the upstream's stands. Raises Ended, unless it completed without a closing message."""
        relay, name = self._relay, self._route.name
        if status is None:
            if relay.faults:
                raise self._completed(())
            return
        parts = relay.readable(status.message.parts) if status.message is not None else ()
        if status.state is not TaskState.COMPLETED:
            word = status.state.value.removeprefix("TASK_STATE_").lower()
            if relay.faults:
                raise Ended(status.state, (*parts, failures.left_out(name, relay.faults)), failures.UNREADABLE)
            if not parts and status.state is not TaskState.CANCELED:
                parts = (Part(text=f"{name} {word} it without a word."),)
            raise Ended(status.state, parts)
        if not relay.emitted:
            await relay.emit(parts or await self._last_words())
            parts = ()
        elif parts and relay.has_emitted(parts):
            parts = ()
        if relay.faults:
            raise self._completed(parts)
        if parts:
            raise Ended(status.state, parts)

    def _completed(self, parts: Sequence[Part]) -> Ended:
        """The end of a task that the upstream completed with content that cannot be read. With no other it failed."""
        said = failures.left_out(self._route.name, self._relay.faults)
        state = TaskState.COMPLETED if self._relay.emitted else TaskState.FAILED
        return Ended(state, (*parts, said), failures.UNREADABLE)

    async def _last_words(self) -> Sequence[Part]:
        """The upstream's last message in its history, for upstreams that put their answer nowhere else."""
        try:
            connection = await self._route.endpoint.connection()
            if connection is None or not self._ids.task_id:
                return ()
            task = await connection.get(self._ids.task_id)
        except (A2AError, *UNFOUND):
            return ()
        last = task.history[-1] if task.history else None
        return last.parts if last is not None and last.role is Role.AGENT else ()

    # -- resuming a task that is there ---------------------------------------------------------------------------------

    async def _resume(self) -> exchange.RunResumed:
        """Load what an earlier run noted, and return how far it got."""
        run, ids, note = self._run, self._ids, self._run.notes
        answers = await self._answers(int(note.get("sent", "1")))
        if used := note.get("used"):
            self._relay.load_usage(used)
        notes = read_upstream_notes(note)
        ids.load(notes, 1 + len(answers))
        if note.get("waits"):
            self._admission.load_wait()
        self._standing.load(notes)
        if not ids.task_id:
            ids.begin_anew()
            may_repeat = self._route.endpoint.may_repeat(timestamp_ms(run.head.created_at))
            untouched = run.epoch <= 1 or bool(note.get("waits"))
            return exchange.RunResumed(repeatable=untouched or may_repeat, unsure=not untouched)
        unsent = bool(answers) and int(note.get("sent", "1")) < ids.number
        if unsent:
            self._message = answers[-1]
            self._unsent_ms = self._now_ms()  # it is sent only if the upstream's task lacks it
        else:
            ids.begin_next()
        return exchange.RunResumed(repeatable=False, unsent=unsent)

    async def _answers(self, sent: int) -> list[Message]:
        """The recorded answers for the upstream, in order, including unasked ones that were sent."""
        history = self._run.record.history
        asked = max((index for index, message in enumerate(history) if message.role is Role.AGENT), default=-1)
        answers: list[Message] = []
        question: tuple[Part, ...] = ()
        for message in history[1 : asked + 2]:
            if message.role is Role.AGENT:
                question = message.parts
                continue
            answer = await self._run.ask(question)
            if question not in self._admission.credentials_questions:
                answers.append(answer)
            question = ()
        while len(answers) < sent - 1:
            answers.append(await self._run.ask(()))
        return answers

    async def _read_task(self) -> exchange.ExchangeEvent:
        """Read how the upstream's task stands."""
        route, ids = self._route, self._ids
        connection = await self._admission.connection()
        if connection is None:
            return exchange.NoA2a()
        try:
            task = await connection.get(ids.task_id)
        except (A2AError, NoAnswer, PeerError) as error:
            return exchange.CallFailed(error)
        route.health.record_answer()
        self._run.working()
        self._standing.hear(task.status)
        self._read = task, connection
        return exchange.TaskRead(task.status, any(ids.message_id == each.message_id for each in task.history))

    async def _follow_task(self, *, subscribe: bool) -> exchange.ExchangeEvent:
        """Pass on the task as it was read; with `subscribe` also what follows, until it ends or asks."""
        run, relay = self._run, self._relay
        assert self._read is not None
        (task, connection), self._read = self._read, None
        relay.expect_deltas(connection.tongue.deltas)
        try:
            await relay.pass_snapshot(task)
            if not subscribe:
                await relay.settle()
                return exchange.UpstreamSettled(task.status)
            stream = connection.task_stream(
                Subscribe(id=self._ids.task_id), traceparent=run.traceparent, on_link=self._standing.set_link
            )
            stream.fold.add(replace(task, artifacts=()) if relay.deltas else task)
            relay.expect_whole()
            status = await self._follow(stream, connection)
            if stream.final is None and status is not None and status.state in TERMINAL:
                await self._pass_on_rest(connection)
        except (A2AError, NoAnswer, PeerError) as error:
            return exchange.CallFailed(error)
        return exchange.UpstreamSettled(status)

    async def _pass_on_rest(self, connection: Connection) -> None:
        """Pass on what the ended task holds beyond its stream, which was joined late (Evo AI)."""
        try:
            await self._relay.pass_snapshot(await connection.get(self._ids.task_id))
        except (A2AError, NoAnswer, PeerError) as error:
            self._admission.record_failure(error)

    # -- chat completions ----------------------------------------------------------------------------------------------

    async def _chat(self) -> exchange.UpstreamSettled | exchange.ChatFailed:
        """Send the message over chat completions, and emit the agent's answer."""
        try:
            await self._chat_once()
        except Ended as ended:
            return exchange.ChatFailed(ended, _cause_of(ended))
        return exchange.UpstreamSettled(TaskStatus(state=TaskState.COMPLETED, timestamp=""))

    async def _chat_once(self) -> None:
        """Do what `_chat` says. Raises Ended if there is no answer, or nothing that can be sent."""
        run, route = self._run, self._route
        self._admission.set_caller(old=False)
        if not run.message.text:
            raise failures.ended(TaskState.REJECTED, f"{route.name} takes text only.")
        messages = [
            {"role": "user" if message.role is Role.USER else "assistant", "content": message.text}
            for message in (*await run.history(HISTORY_MAX), run.message)
            if message.text
        ]
        asked_s = time.monotonic()
        try:
            text = await route.chat(messages, run.traceparent)
        except (A2AError, PeerError, EgressError) as error:
            self._admission.record_failure(error)
            raise failures.ending(route.name, error, route.health.retry_s) from error
        route.health.record_answer()
        route.health.count("succeeded", time.monotonic() - asked_s)
        run.working()
        await self._relay.emit((Part(text=text),))


def _cause_of(ended: Ended) -> exchange.CallError | None:
    """The failure of a call that led to an end."""
    cause = ended.__cause__
    if isinstance(cause, EgressError):
        return no_answer(cause, "answer_s")
    return cause if isinstance(cause, A2AError | NoAnswer | PeerError) else None
