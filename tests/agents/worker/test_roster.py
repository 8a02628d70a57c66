"""The roster of workers: what is known of each, and how the rosters of several replicas become one."""

from dragoman.agents.worker.roster import KNOWN_S, WORKERS_MAX, Roster, RosterEntry, merge_rosters


def test_a_worker_is_known_by_its_last_word_and_its_leases() -> None:
    roster = Roster(30.0)
    roster.note("w1", "poll", 0.0)
    roster.note("w1", "heartbeat", 5.0)
    roster.note("w2", "report", 6.0)
    entries = roster.entries({"w3"}, {"w1": [("t1", 25.0)], "w4": [("t2", 1.0)]}, 10.0)
    assert entries == (
        RosterEntry("w1", "heartbeat", 5.0, False, (("t1", 25.0),)),
        RosterEntry("w2", "report", 4.0, False),
        RosterEntry("w3", None, None, True),
        RosterEntry("w4", None, None, False, (("t2", 1.0),)),
    )
    assert roster.lately(36.5) == set()
    assert roster.lately(35.5) == {"w2"}
    assert [entry.worker for entry in roster.entries((), {}, 6.0 + KNOWN_S)] == ["w2"]


def test_too_many_names_are_not_remembered() -> None:
    roster = Roster(30.0)
    for number in range(WORKERS_MAX + 1):
        roster.note(f"w{number}", "poll", 0.0)
    assert len(roster.lately(1.0)) == WORKERS_MAX
    roster.note("late", "poll", 31.0)
    assert roster.lately(31.0) == {"late"}, "silent ones make room"


def test_the_newest_word_and_all_leases_count() -> None:
    here = [RosterEntry("w1", "report", 9.0, False, (("t1", 3.0), ("t2", 4.0))), RosterEntry("w2", None, None, True)]
    there = [RosterEntry("w1", "poll", 2.0, True, (("t1", 8.0), ("t3", 5.0))), RosterEntry("w2", "poll", 7.0, False)]
    assert merge_rosters([here, there]) == merge_rosters([there, here])
    assert merge_rosters([here, there]) == (
        RosterEntry("w1", "poll", 2.0, True, (("t1", 8.0), ("t2", 4.0), ("t3", 5.0))),
        RosterEntry("w2", "poll", 7.0, True),
    )
