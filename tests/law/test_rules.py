"""The rules say what the engine does: the table of decisions, held against `engine.rules` without an engine."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.engine import rules
from dragoman.engine.rules import (
    AcceptOffer,
    AddMessage,
    AddWebhook,
    Decision,
    Disown,
    EndTask,
    EndWorkerLease,
    GiveBack,
    HandOver,
    LawRule,
    LeaseChange,
    LeaseToWorker,
    NoteCancel,
    OperatorAnswer,
    PutAside,
    Request,
    UseClaim,
    View,
    WithdrawQuestion,
    WriteGuard,
    WritePage,
    WriteWords,
)
from dragoman.model.errors import A2AError
from dragoman.model.events import Intervened, MessageReceived, Noted, StatusChanged
from dragoman.model.lifecycle import FOLLOWS
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import PushConfig
from dragoman.model.task import TERMINAL, TaskState
from dragoman.store.api import ASLEEP, TaskEnded
from dragoman.store.outbox import Registration
from dragoman.store.worker_leases import WORKER, WorkerLeaseChange
from tests.law.decisions import (
    ANSWERS,
    AT,
    ELSEWHERE,
    EPOCH,
    EPOCHS,
    HEAD,
    HERE,
    HOLDERS,
    KEEPERS,
    LEASE,
    REQUESTS,
    RUNS,
    STATE,
    Facts,
    cells,
    leasing,
    question,
    show,
    sleeping,
    switching_off,
    words,
)
from tests.law.stage import told
from tests.law.tables import kept

KEPT = {name: {row["word"]: row for row in rows} for name, rows in kept("decisions").items()}

NOW_MS = 1_800_000_000_000

SAID = Message(message_id="m", role=Role.USER, parts=(Part(text="this"),))


def view_of(facts: Facts) -> View:
    """The task and the replica as the facts say."""
    run, keeper = RUNS[facts.get("run", "none")], KEEPERS[facts.get("keeper", "nobody")]
    agent, stopping = facts.get("agent", "here"), facts.get("stopping") == "yes"
    alive = keeper == ELSEWHERE and facts.get("keeper is alive") == "yes"
    return View(
        head=HEAD,
        state=STATE[facts["state"]],
        epoch=EPOCH + (facts.get("leased anew meanwhile") == "yes"),
        holder=HOLDERS[facts.get("lease", "nobody")],
        keeper=keeper,
        question=question(facts),
        here=HERE,
        run_epoch=None if run is None else run[0],
        run_asks=run is not None and run[1],
        living_keeper=keeper if alive else None,
        served=agent != "elsewhere",
        waits=agent == "here, and waits to be taken on",
        closed=stopping,
        wakes_on_message=facts.get("a message wakes it") == "yes",
    )


def request_of(name: str, facts: Facts) -> Request:
    """The request that the facts belong to."""
    received = MessageReceived(SAID, "")
    push = Registration(config=PushConfig(url="https://example.org/new", id="new"), host="")
    match name:
        case name if name.startswith("AddMessage"):
            one = facts.get("one message") == "yes" and facts["agent"] != "elsewhere"
            attached = facts.get("run", "none") != "none"
            if "webhooks" not in facts:
                answers = ANSWERS[facts.get("answers", "whatever is asked")]
                return AddMessage(received, one_message=one, in_order=attached, answers=answers)
            place = "configuration.taskPushNotificationConfig.id"
            return AddMessage(received, push=push, in_order=attached, webhooks=facts["webhooks"] + 1, place=place)
        case "OperatorAnswer" | "OperatorAnswer to one question":
            answers = ANSWERS[facts.get("answers", "whatever is asked")]
            return OperatorAnswer(received, Intervened("op", "answer", AT), answers=answers)
        case "NoteCancel":
            return NoteCancel(Intervened("op", "cancel", AT))
        case "AddWebhook":
            return AddWebhook(push, facts["webhooks"] + 1, "id")
        case "UseClaim":
            return UseClaim()
        case "AcceptOffer":
            return AcceptOffer(EPOCH)
        case "WithdrawQuestion":
            return WithdrawQuestion("child")
        case "GiveBack":
            return GiveBack(EPOCHS[facts["epoch"]])
        case "HandOver":
            return HandOver(EPOCHS[facts["epoch"]], ELSEWHERE)
        case "PutAside":
            return PutAside(EPOCHS[facts["epoch"]], 2)
        case "Disown":
            return Disown()
        case "EndTask":
            said = Message(
                message_id="e", role=Role.AGENT, parts=(Part(text="broken"),), metadata={"reason": "because"}
            )
            end = StatusChanged(TaskState.FAILED, AT, message=said)
            return EndTask(end, EPOCHS.get(facts["epoch"]))
        case "SwitchOff":
            return switching_off()
        case "WritePage":
            says = STATE[facts["says"]]
            return WritePage((StatusChanged(says, AT),), EPOCH, says, 1)
        case "WritePage that puts the task to sleep":
            return WritePage((StatusChanged(TaskState.WORKING, AT),), EPOCH, TaskState.WORKING, 1, wakes_ms=2)
        case "LeaseToWorker":
            return leasing(facts)
        case "EndWorkerLease":
            return EndWorkerLease(WorkerLeaseChange(LEASE, over=True))
        case "WriteWords":
            return words(facts)
        case "WriteWords that put the task to sleep":
            return sleeping(facts)
        case _:
            raise ValueError(name)


def outcome(view: View, request: Request) -> dict[str, Any]:
    """What the rules say, as a row has it."""
    try:
        decision = rules.decide(view, request, NOW_MS)
    except (A2AError, TaskEnded) as error:
        return {"told": told(error)}
    return {} if decision is None else show(decision)


CASES = {name: [(word, view_of(facts), request_of(name, facts)) for word, facts in cells(name)] for name in REQUESTS}


def wrong(name: str) -> Iterator[str]:
    """The cells of a kind of request at which the rules say something else than the table."""
    for word, view, request in CASES[name]:
        said, row = outcome(view, request), {**KEPT[name].get(word, {})}
        row.pop("word", None)
        if said != row:
            yield f"{word}\nthe rules say {said}\nthe table has {row}"


@pytest.mark.parametrize("name", REQUESTS)
def test_the_rules_say_what_the_engine_does(name: str) -> None:
    assert not list(wrong(name))


def kinds(request: type[Request]) -> list[str]:
    """The names that the table has for a kind of request."""
    return [name for name in REQUESTS if name.split()[0] == request.__name__]


def test_every_kind_of_request_has_rules_and_cells() -> None:
    assert all(kinds(request) for request in rules.LAW)
    assert {name.split()[0] for name in REQUESTS} == {request.__name__ for request in rules.LAW}


def changed(rule: LawRule) -> Iterator[tuple[str, LawRule]]:
    """The rules that differ from a rule in one thing."""
    for state in sorted(rule.states):
        yield f"not for {state}", replace(rule, states=rule.states - {state})
    for fact in rule.when:
        yield f"without {fact.name}", replace(rule, when=tuple(each for each in rule.when if each is not fact))
    for fact in rule.unless:
        yield f"even if {fact.name}", replace(rule, unless=tuple(each for each in rule.unless if each is not fact))
    if rule.refusal is not None:
        yield "not refused", replace(rule, refusal=None)
    elif rule.writes is not None:
        yield "writes nothing", replace(rule, writes=None)
        for lease in LeaseChange:
            if lease is not rule.lease:
                yield f"the lease is {lease.name}", replace(rule, lease=lease)
        for guard in WriteGuard:
            if guard is not rule.guard:
                yield f"the guard is {guard.name}", replace(rule, guard=guard)
        for entry in rule.writes:
            yield (
                f"without {entry.name}",
                replace(rule, writes=tuple(each for each in rule.writes if each is not entry)),
            )


MUTATIONS = [
    pytest.param(request, number, mutated, id=f"{request.__name__}, rule {number + 1}, {what}")
    for request, law in rules.LAW.items()
    for number, rule in enumerate(law)
    for what, mutated in changed(rule)
]


@pytest.mark.parametrize(("request_type", "number", "mutated"), MUTATIONS)
def test_a_changed_rule_is_noticed(
    request_type: type[Request], number: int, mutated: LawRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = list(rules.LAW[request_type])
    law[number] = mutated
    monkeypatch.setitem(rules.LAW, request_type, tuple(law))  # type: ignore[arg-type]
    for state, then, sleeps in rules.PAGES:
        rule = rules.find_page_rule(state, then, sleeps=sleeps)
        monkeypatch.setitem(rules.PAGES, (state, then, sleeps), rule)  # type: ignore[arg-type]
    for state, then, by_lease, sleeps in rules.WORDS:
        rule = rules.find_words_rule(state, then, by_lease=by_lease, sleeps=sleeps)
        monkeypatch.setitem(rules.WORDS, (state, then, by_lease, sleeps), rule)  # type: ignore[arg-type]
    assert any(True for name in kinds(request_type) for _ in wrong(name))


def test_what_the_rules_write_may_follow() -> None:
    for name in REQUESTS:
        for _, view, request in CASES[name]:
            if name.startswith(("WritePage", "WriteWords")):  # nobody puts what may not follow: see `RunWriter.put`
                continue
            try:
                decision = rules.decide(view, request, NOW_MS)
            except (A2AError, TaskEnded):
                continue
            state = view.state
            for event in () if decision is None else decision.events:
                assert state not in TERMINAL
                if isinstance(event, StatusChanged):
                    assert event.state in FOLLOWS[state]
                    state = event.state


# -- the tables of agents' words ---------------------------------------------------------------------------------------


PLACES = {"this replica": HERE, "nobody": None, "another replica": ELSEWHERE, "a worker": WORKER, "asleep": ASLEEP}


def stands(row: dict[str, Any]) -> tuple[TaskState, str | None, int]:
    """The state, the holder and the growth of the epoch that a row ends with."""
    holder, _, epoch = row["lease"].rpartition(", epoch +")
    return STATE[row["state"]], PLACES[holder], int(epoch)


def follow(decision: Decision, state: TaskState, holder: str | None) -> tuple[TaskState, str | None, int]:
    """As `stands`, after a decision is committed."""
    for event in decision.events:
        if isinstance(event, StatusChanged):
            state = event.state
    over = decision.release or state in TERMINAL
    return state, None if over else decision.holder or holder, int(decision.holder is not None)


@pytest.mark.parametrize("table", ["local", "worker"])
def test_the_rules_lead_where_the_words_of_agents_lead(table: str) -> None:
    led = 0
    for situation, table_rows in kept(table).items():
        state, holder, _ = stands(next(row for row in table_rows if not row["events"] and stands(row)[2] == 0))
        for row in table_rows:
            events = tuple(
                StatusChanged(STATE[word], AT) if (word := said.split()[0]) in STATE else Noted({})
                for said in row["events"]
            )
            view = View(HEAD, state, EPOCH, holder, here=HERE)
            request: Request
            then = [event.state for event in events if isinstance(event, StatusChanged)]
            by_lease = WorkerLeaseChange(LEASE) if holder not in (None, ASLEEP) else None
            if table == "worker" and stands(row)[1:] == (ASLEEP, 1):
                request = WriteWords(events, state, by_lease, wakes_ms=2)
            elif table == "worker" and stands(row)[2]:  # a worker takes the task
                answered = state is TaskState.WORKING and bool(events)
                request = LeaseToWorker(WorkerLeaseChange(LEASE, granted_ms=1), answered=answered)
            elif table == "worker" and row["events"] == ["working"] and stands(row)[1] is None:  # and gives it back
                request = EndWorkerLease(WorkerLeaseChange(LEASE, over=True))
            elif table == "worker" and events:
                request = WriteWords(events, then[-1] if then else state, by_lease)
            elif table == "worker":
                continue
            elif not events and stands(row) != (state, holder, 0):
                request = GiveBack(EPOCH)
            elif events:
                request = WritePage(events, EPOCH, then[-1] if then else state, 1)
            else:
                continue
            decision = rules.decide(view, request, NOW_MS)
            assert decision is not None, (situation, row)
            assert follow(decision, state, holder) == stands(row), (situation, row)
            led += 1
    assert led > 250
