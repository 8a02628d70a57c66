"""The checker finds each kind of fault, and finds none where there is none."""

from collections.abc import Callable

import pytest

from tests.drills.checker import TRIP, Kept, Recorded, Slept, faults, lateness_s, tale
from tests.drills.record import Asked, Called, Executed, Record, Seen

DONE, WAITS, WORKS = "TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING"
FAILED = "TASK_STATE_FAILED"

LOG = (
    Seen(1, "task", "TASK_STATE_SUBMITTED"),
    Seen(2, "state", WORKS),
    Seen(3, "text", "a/0 "),
    Seen(4, "text", "b/0 b/1 "),
    Seen(5, "state", DONE),
)
TOLD = [Called(f"w{seq}", "t1", seq, "", b"", float(number), number + 0.5) for number, seq in enumerate((1, 2, 5, 5))]
TOLD[3] = TOLD[3]._replace(webhook_id="w5.last")

Store = dict[str, Kept]


def sound() -> tuple[Record, Store]:
    """A drill in which all went well: run a died, run b took over; a follower came back once."""
    record = Record(asked={"m1": Asked("m1", "again", "2 every 0")})
    record.acknowledged["m1"].add("t1")
    record.acknowledged["m2"].add("t2")
    record.answered["t2"].append("m3")
    record.ended["t1"].add(DONE)
    record.followed += [
        ("t1", list(LOG)),
        ("t1", list(LOG[2:4])),
        ("t1", []),
        ("t1", [Seen(3, "task", WORKS), *LOG[3:]]),
    ]
    record.pushed.add("t1")
    record.called += [*TOLD, TOLD[1]._replace(began_s=1.2)]
    store = {
        "t1": Kept("t1", "again", "m1", "2 every 0", DONE, None, LOG, ("m1",), (1, 2, 5, 5)),
        "t2": Kept("t2", "ask", "m2", "hello", WAITS, None, LOG[:2], ("m2", "m3")),
        "t4": Kept(
            "t4",
            "trip",
            "m4",
            "far",
            DONE,
            None,
            (*LOG[:2], LOG[-1]),
            steps=tuple(Recorded(f"step {number}", str(number), 1000 * number) for number in range(1, 11)),
            sleeps=(Slept("a", 3900), Slept("b", 8900)),
            artifacts=tale(TRIP, "far"),
        ),
        "t5": Kept("t5", "trip-once", "m5", "far", FAILED, None, (*LOG[:2], Seen(3, "state", FAILED))),
        "t6": Kept(
            "t6",
            "careful-clerk",
            "m6",
            "far",
            FAILED,
            None,
            (*LOG[:2], Seen(3, "state", FAILED)),
            steps=(Recorded("step-1", "2", 1000),),
            uncertain=True,
        ),
    }
    record.executed += [Executed("t4", number, "lot", f"t4/{number}", 1000 * number - 9) for number in range(1, 11)]
    record.executed.append(Executed("t4", 6, "lot", "t4/6", 5950))
    record.executed.append(Executed("t5", 1, "lot", "t5/1", 5950))
    record.executed += [Executed("t6", number, "lot", f"t6/{number}", 1000 * number - 9) for number in (1, 2)]
    record.disturbed.append((5900, 5980))
    return record, store


def change(task_id: str, **changes: object) -> Callable[[Record, Store], None]:
    """A change of what the store holds."""

    def apply(record: Record, store: Store) -> None:
        store[task_id] = store[task_id]._replace(**changes)

    return apply


def follow(*seen: Seen) -> Callable[[Record, Store], None]:
    """One more follower of the first task."""
    return lambda record, store: record.followed.append(("t1", list(seen)))


def call(at: int, **changes: object) -> Callable[[Record, Store], None]:
    """A change of a webhook call."""

    def apply(record: Record, store: Store) -> None:
        record.called[at] = record.called[at]._replace(**changes)

    return apply


def double(record: Record, store: Store) -> None:
    store["t3"] = store["t1"]._replace(task_id="t3")


def executed(number: int, at_ms: float, key: str = "", lot: str = "lot", task_id: str = "t4") -> Callable[..., None]:
    """One more execution of a step of the trip."""
    return lambda record, store: record.executed.append(Executed(task_id, number, lot, key or f"t4/{number}", at_ms))


def done(number: int, **changes: object) -> Callable[[Record, Store], None]:
    """A change of an execution of the trip."""

    def apply(record: Record, store: Store) -> None:
        record.executed[number - 1] = record.executed[number - 1]._replace(**changes)

    return apply


def recorded(*at: int, **changes: object) -> Callable[[Record, Store], None]:
    """The trip's log with these of its steps, and others in place of the first."""

    def apply(record: Record, store: Store) -> None:
        steps = [store["t4"].steps[each] for each in at]
        steps[0] = steps[0]._replace(**changes)
        store["t4"] = store["t4"]._replace(steps=tuple(steps))

    return apply


def mixed(*texts: str) -> Callable[[Record, Store], None]:
    """A log with these chunks, which nobody followed."""

    def apply(record: Record, store: Store) -> None:
        record.followed.clear()
        chunks = [Seen(3 + number, "text", text) for number, text in enumerate(texts)]
        log = (*LOG[:2], *chunks, Seen(3 + len(texts), "state", DONE))
        store["t1"] = store["t1"]._replace(events=log)

    return apply


BREACHES: dict[str, tuple[Callable[[Record, Store], object], str]] = {
    "a task is gone": (lambda record, store: store.pop("t1"), "was acknowledged and is gone"),
    "two tasks for a message": (lambda record, store: record.acknowledged["m1"].add("t2"), "several tasks"),
    "a message made two tasks": (double, "message m1 made 2 tasks"),
    "an answer is lost": (change("t2", messages=("m2",)), "answer m3 is 0 times"),
    "an answer counts twice": (change("t2", messages=("m2", "m3", "m3")), "answer m3 is 2 times"),
    "an end is taken back": (change("t1", state="TASK_STATE_FAILED"), "was told to be"),
    "an event comes twice": (follow(LOG[2], LOG[2], LOG[3]), "a follower saw"),
    "an event is left out": (follow(LOG[2], LOG[4]), "a follower saw"),
    "events change places": (follow(LOG[3], LOG[2]), "a follower saw"),
    "an event that nobody wrote": (follow(Seen(3, "text", "x/0 ")), "a follower saw"),
    "a gap after a snapshot": (follow(Seen(2, "task", WORKS), LOG[3]), "a follower saw"),
    "two runs write": (mixed("a/0 ", "b/0 ", "a/1 ", "b/1 "), "two runs wrote at the same time"),
    "a run skips": (mixed("b/0 ", "b/2 "), "run b wrote [0, 2]"),
    "a run ends early": (mixed("a/0 ", "a/1 ", "b/0 "), "completed after 1 of 2 chunks"),
    "a task is stuck": (change("t2", state=WORKS, holder="r1"), "held by r1"),
    "an ended task is held": (change("t1", holder="r1"), "is held by r1"),
    "something follows the end": (change("t1", events=(*LOG, Seen(6, "text", "b/2 "))), "something follows its end"),
    "a call is not made": (lambda record, store: record.called.pop(2), "had to be told"),
    "calls change places": (call(2, began_s=0.6, ended_s=0.9), "had to be told"),
    "a repeat has another body": (call(4, body=b"x"), "two bodies"),
    "a step is recorded twice": (recorded(*range(10), 9), "has recorded"),
    "a step is not recorded": (recorded(*range(9)), "completed with 9 steps"),
    "a step has another's place": (recorded(*range(10), place="2"), "have one place"),
    "a step was not executed": (lambda record, store: record.executed.pop(1), "step 2 is recorded and was not"),
    "a step has two keys": (executed(2, 1980, "other"), "executed as different ones"),
    "a step has other arguments": (executed(2, 1980, lot="other"), "executed as different ones"),
    "two steps have one key": (done(2, key="t4/3"), "under one key"),
    "a step is executed again": (executed(2, 2400), "was executed after"),
    "a step is executed after the next one": (done(3, at_ms=1988), "was executed after Executed"),
    "a step is executed twice that must not be": (executed(2, 1995, "t6/2", task_id="t6"), "was executed 2 times"),
    "a clerk fails between two steps": (change("t6", uncertain=False), "is TASK_STATE_FAILED after 1 steps"),
    "a trip has another end": (change("t4", artifacts=tale(TRIP, "near")), "an undisturbed run has"),
    "a trip tells something twice": (change("t4", artifacts=(*tale(TRIP, "far"), "")), "an undisturbed run has"),
    "a sleep is not recorded": (change("t4", sleeps=(Slept("a", 3900),)), "10 steps and 1 sleeps"),
    "a sleep ends early": (done(4, at_ms=3890), "ended 10 ms early"),
    "a sleep ends late": (done(9, at_ms=8900 + 2001), "ended 2.00 s late"),
    "a trip fails": (change("t4", state=FAILED), "is TASK_STATE_FAILED after 10 steps"),
    "a trip fails after its first record": (
        change("t5", steps=(Recorded("step 1", "1", 6000),)),
        "of trip-once is TASK_STATE_FAILED after 1 steps",
    ),
    "calls overlap": (call(1, ended_s=2.3), "was called while w2 was under way"),
}


def test_where_all_went_well_there_is_no_fault() -> None:
    assert faults(*sound()) == []


@pytest.mark.parametrize("name", BREACHES)
def test_a_breach_is_found(name: str) -> None:
    record, store = sound()
    spoil, told = BREACHES[name]
    spoil(record, store)
    assert any(told in fault for fault in faults(record, store)), faults(record, store)


def test_a_sleep_may_end_once_the_server_is_back() -> None:
    record = Record(disturbed=[(1000, 4000), (20_000, 21_000)])
    assert lateness_s(record, 900, 6000, 0) == 2
    assert lateness_s(record, 3000, 6000, 0) == 2
    assert lateness_s(record, 3000, 6000, 1.5) == 0.5
    assert lateness_s(record, 4500, 6000, 0) == 1.5
    assert lateness_s(record, 17_900, 23_000, 0) == 5.1
    assert lateness_s(record, 18_100, 23_000, 0) == 2


def test_a_step_may_be_executed_again_where_a_process_was_stopped() -> None:
    record, store = sound()
    executed(2, 2400)(record, store)
    assert faults(record, store, stopped=True) == []
    executed(2, 2400, "other")(record, store)
    assert faults(record, store, stopped=True) != []


def test_calls_may_overlap_while_a_process_is_stopped() -> None:
    record, store = sound()
    call(1, ended_s=2.3)(record, store)
    assert faults(record, store, stopped=True) == []
