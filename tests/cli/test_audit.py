"""`dragoman audit`: which entries it shows, and how."""

import json
from collections.abc import Sequence
from functools import partial

import pytest
from click.testing import Result
from msgspec.structs import replace

from dragoman.model.ids import SystemClock, timestamp
from dragoman.store.audit import AuditEntry
from tests.kit.commands import Run
from tests.kit.places import work_on

HOUR_MS = 3_600_000
NOW_MS = SystemClock().now_ms()

OLD = AuditEntry(at_ms=NOW_MS - 50 * HOUR_MS, principal="key:ann", action="SendMessage", agent="echo", task_id="t1")
REFUSED = AuditEntry(
    at_ms=NOW_MS - 2 * HOUR_MS,
    principal="anonymous",
    action="GetTask",
    task_id="t2",
    allowed=False,
    reason="Unauthorized",
    peer="10.0.0.7",
)
NEW = replace(OLD, at_ms=NOW_MS - 60_000, task_id="t3")


@pytest.fixture
def run(run: Run) -> Run:
    """Runs `dragoman audit` with these arguments, on a store with three entries."""
    write([OLD, REFUSED, NEW])
    return partial(run, "audit")


def write(entries: Sequence[AuditEntry]) -> None:
    work_on("sqlite:///data/dragoman.db", lambda store: store.audit.write(entries))


def tasks(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["task_id"] for line in result.stdout.splitlines()]


def test_entries_are_lines_oldest_first(run: Run) -> None:
    head, *rows = run().output.splitlines()
    assert head.split() == ["AT", "PRINCIPAL", "KEY", "ACTION", "AGENT", "TASK", "SUBJECT", "FROM", "OUTCOME"]
    at = [f"{timestamp(entry.at_ms)[:19]}Z" for entry in (OLD, REFUSED, NEW)]
    assert [row.split() for row in rows] == [
        [at[0], "key:ann", "-", "SendMessage", "echo", "t1", "-", "-", "allowed"],
        [at[1], "anonymous", "-", "GetTask", "-", "t2", "-", "10.0.0.7", "refused:", "Unauthorized"],
        [at[2], "key:ann", "-", "SendMessage", "echo", "t3", "-", "-", "allowed"],
    ]


def test_as_json_each_line_is_an_entry_without_what_is_empty(run: Run) -> None:
    assert run("-o", "json").stdout == run("--json").stdout
    lines = [json.loads(line) for line in run("--json").stdout.splitlines()]
    assert lines[0] == {
        "at": timestamp(OLD.at_ms),
        "principal": "key:ann",
        "action": "SendMessage",
        "agent": "echo",
        "task_id": "t1",
        "allowed": True,
    }
    assert (lines[1]["allowed"], lines[1]["reason"], lines[1]["peer"]) == (False, "Unauthorized", "10.0.0.7")


def test_only_what_is_asked_for_is_shown(run: Run) -> None:
    assert tasks(run("--json", "--principal", "key:ann")) == ["t1", "t3"]
    assert tasks(run("--json", "--refused")) == ["t2"]
    assert tasks(run("--json", "--limit", "2")) == ["t2", "t3"]
    assert tasks(run("--json", "--refused", "--principal", "key:ann")) == []


def test_since_is_an_age_or_a_time(run: Run) -> None:
    assert tasks(run("--json", "--since", "1h")) == ["t3"]
    assert tasks(run("--json", "--since", "2d")) == ["t2", "t3"]
    assert tasks(run("--json", "--since", timestamp(REFUSED.at_ms))) == ["t2", "t3"]
    assert tasks(run("--json", "--since", timestamp(NEW.at_ms)[:23])) == ["t3"], "without a zone it is UTC"
    assert tasks(run("--json", "--since", "2026-01-01")) == ["t1", "t2", "t3"]


@pytest.mark.parametrize("since", ["yesterday", "forever", "", "1 h", "2026-13-01"])
def test_a_time_that_is_none_is_refused(run: Run, since: str) -> None:
    result = run("--since", since)
    assert result.exit_code == 2
    assert f"--since {since!r}: must be an age like 90s, 1h or 7d" in " ".join(result.output.split())


def test_nothing_found_is_no_line_of_output(run: Run) -> None:
    result = run("--principal", "key:nobody")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No entries.\n")


def test_what_a_caller_wrote_cannot_move_the_cursor(run: Run) -> None:
    write([replace(NEW, principal="key:\x1b[2Jx", task_id="a\nb")])
    shown = run().output.splitlines()[-1]
    assert "key:?[2Jx" in shown
    assert "a?b" in shown


def test_a_name_without_what_was_shown_is_hinted_at(run: Run) -> None:
    assert "did you mean key:ann?" in run("--principal", "ann").stderr
    assert "did you mean key:bob?" in run("--principal", "bob").stderr
    write([replace(NEW, principal="operator:root")])
    assert "did you mean operator:root?" in run("--principal", "root").stderr
    for nobody in ("key:bob", "jwt:bob"):
        assert run("--principal", nobody).stderr == "No entries.\n"


def test_entries_are_found_by_action_agent_text_and_time(run: Run) -> None:
    assert tasks(run("--action", "GetTask", "--json")) == ["t2"]
    assert tasks(run("--agent", "echo", "--json")) == ["t1", "t3"]
    assert tasks(run("--text", "10.0.0", "--json")) == ["t2"]
    assert tasks(run("--since", "3h", "--until", "1h", "--json")) == ["t2"]
    assert tasks(run("--text", "nothing", "--json")) == []


def test_any_number_of_entries_is_shown_by_pages(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cli.audit.PAGE", 2)
    write([replace(NEW, task_id=f"t{number}") for number in range(4, 10)])
    every = [f"t{number}" for number in range(1, 10)]
    assert tasks(run("--all", "--json")) == every
    assert tasks(run("--limit", "7", "--json")) == every[2:]
    first = run("--limit", "5", "--json")
    (hint,) = first.stderr.splitlines()
    assert hint.startswith("There are more: continue with --cursor ")
    cursor = hint.split()[6].rstrip(".")
    rest = run("--limit", "5", "--cursor", cursor, "--json")
    assert tasks(rest) + tasks(first) == every
    assert rest.stderr == ""
    head, *rows = run("--all").stdout.splitlines()
    assert (head.split()[0], len(rows)) == ("AT", 9)
    wrong = run("--all", "--cursor", "3")
    assert (wrong.exit_code, "--cursor: goes without --all" in wrong.output) == (2, True)
