"""Every list: its forms, its fields, its pages, and how it is watched."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.a2a.command import Shell
from tests.cli.a2a.terminal import at_terminal
from tests.kit.commands import Run

LISTS = (("keys", "list"), ("audit",), ("webhooks", "list"), ("webhooks", "paused"), ("admin", "tasks", "list"))
"""Lists of a store."""

OF_A_SERVER = tuple(("admin", name) for name in ("agents", "replicas", "upstreams", "usage", "workers"))


@pytest.fixture
def run(run: Run) -> Run:
    """Runs a command in a folder with a store of three keys, whose names a spreadsheet would not take for text."""
    for name in ("ann", "bob", "cid"):
        assert run("keys", "create", name, "--agent", "a", "--agent", "b").exit_code == 0
    return run


@pytest.mark.parametrize("words", [*LISTS, *OF_A_SERVER, ("agents", "list")], ids=" ".join)
def test_every_list_has_the_same_options(run: Run, words: tuple[str, ...]) -> None:
    told = run(*words, "--help").output
    for option in (
        "-o, --output FORMAT",
        "text, json, jsonl, csv, name",
        "--fields",
        "--limit",
        "--cursor",
        "--watch",
        "--interval",
    ):
        assert option in told


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("webhooks", "list"), "host"),
        (("admin", "tasks", "list"), "created_at"),
        (("keys", "list", "--cursor", "7"), "limits"),
        (("audit", "--principal", "nobody"), "reason"),
        (("admin", "usage"), "model"),
        (("agents", "list"), "ok"),
    ],
)
def test_a_list_without_rows_knows_its_fields(run: Run, words: tuple[str, ...], field: str) -> None:
    chosen = run(*words, "--fields", field, "-o", "csv")
    assert (chosen.exit_code, chosen.stdout) == (0, f"{field}\n")


@pytest.mark.parametrize("words", [("webhooks", "list"), ("admin", "tasks", "list")], ids=" ".join)
def test_a_sheet_without_rows_has_the_head_of_one_with_rows(run: Run, words: tuple[str, ...]) -> None:
    names = run(*words, "-o", "csv").stdout.strip().split(",")
    wrong = run(*words, "--fields", "nothing")
    assert names[0] in ("id", "number")
    assert {"agent", "key" if "tasks" in words else "http_status"} <= set(names)
    assert (wrong.exit_code, f"there are {', '.join(names)}. Hint" in wrong.stderr) == (2, True)


def test_a_page_behind_the_last_one_says_so(run: Run) -> None:
    assert run("keys", "list", "--cursor", "3").stderr == "There are no more.\n"


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "name", "text"])
def test_every_list_is_printed_in_every_form(run: Run, words: tuple[str, ...], form: str) -> None:
    ran = run(*words, "-o", form)
    assert (ran.exit_code, ran.exception) == (0, None)


def test_a_field_has_one_name_in_every_form(run: Run) -> None:
    rows = json.loads(run("keys", "list", "-o", "json").stdout)
    lines = [json.loads(line) for line in run("keys", "list", "-o", "jsonl").stdout.splitlines()]
    sheet = list(csv.DictReader(io.StringIO(run("keys", "list", "-o", "csv").stdout)))
    assert lines == rows
    assert [row["name"] for row in rows] == [row["name"] for row in sheet] == ["ann", "bob", "cid"]
    assert [row["agents"] for row in sheet] == ["a,b"] * 3
    assert run("keys", "list", "-o", "name").stdout.splitlines() == [row["id"] for row in rows]
    assert set(sheet[0]) == set(rows[0])


def test_fields_are_chosen_and_put_in_order(run: Run) -> None:
    chosen = ("--fields", "state,name")
    assert run("keys", "list", *chosen).stdout.splitlines()[:2] == ["STATE   NAME", "active  ann"]
    assert json.loads(run("keys", "list", "-o", "json", *chosen).stdout)[0] == {"state": "active", "name": "ann"}
    assert run("keys", "list", "-o", "csv", *chosen).stdout.splitlines()[:2] == ["state,name", "active,ann"]
    wrong = run("keys", "list", "--fields", "secret")
    assert (wrong.exit_code, "--fields 'secret': there are id, name, team, role" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("words", [("keys", "list"), ("audit",)], ids=" ".join)
def test_a_list_goes_on_where_it_stopped(run: Run, words: tuple[str, ...]) -> None:
    whole = run(*words, "-o", "jsonl").stdout.splitlines()
    seen: list[list[str]] = []
    more: tuple[str, ...] = ()
    while True:
        ran = run(*words, "-o", "jsonl", "--limit", "1", *more)
        seen.append(ran.stdout.splitlines())
        if not ran.stderr:
            break
        more = ("--cursor", ran.stderr.split()[-1].rstrip("."))
    newest_first = words == ("audit",)
    assert [line for lines in seen for line in lines] == (whole[::-1] if newest_first else whole)
    assert len(seen) == 3
    wrong = run(*words, "--cursor", "nowhere")
    assert (wrong.exit_code, "--cursor 'nowhere'" in wrong.stderr) == (2, True)


def test_a_document_says_itself_how_it_goes_on(run: Run) -> None:
    ran = run("admin", "tasks", "list", "-o", "json")
    assert (json.loads(ran.stdout), ran.stderr) == ({"tasks": [], "more": False, "next_cursor": ""}, "")
    for host in ("a.example", "b.example"):
        assert run("webhooks", "pause", host).exit_code == 0
    first = run("webhooks", "paused", "-o", "json", "--limit", "1")
    assert [each["host"] for each in json.loads(first.stdout)["hosts"]] == ["a.example"]
    assert first.stderr == "There are more: continue with --cursor 1.\n"
    rest = run("webhooks", "paused", "-o", "name", "--cursor", "1")
    assert (rest.stdout, rest.stderr) == ("b.example\n", "")


def test_what_a_caller_wrote_is_no_formula_and_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    import click

    from dragoman.cli.listing import Column, Listing, lists

    @click.command()
    @lists(limit=None, cut=True)
    def listed() -> Listing:
        return Listing(rows=[{"id": "=1+1", "n": -1}, {"id": "a\x1b[2Jb", "n": 2}], columns=[Column("ID", "id")])

    for form, shown in (
        ("csv", "id,n\n'=1+1,-1\na [2Jb,2\n"),
        ("name", "=1+1\na [2Jb\n"),
        ("text", "ID\n=1+1\na?[2Jb\n"),
    ):
        listed.main(["-o", form], standalone_mode=False)
        assert capsys.readouterr().out == shown


def test_a_list_is_watched_in_a_pipe_and_on_a_terminal(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell.run("keys", "create", "ann").status == 0
    with at_terminal(shell, "keys", "list", "--watch", "--interval", "0.2") as terminal:
        terminal.until("active")
        assert shell.run("keys", "create", "bob").status == 0
        terminal.until("bob")
        terminal.type("\x03")
        assert terminal.end() == 0
    refused = shell.run("keys", "list", "--interval", "3")
    assert (refused.status, "--interval: goes with --watch" in refused.err) == (2, True)


def test_a_watched_list_is_printed_again_and_again_in_a_pipe(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", pause)
    ran = run("keys", "list", "-o", "name", "--watch", "--interval", "5")
    names = ran.stdout.splitlines()
    assert (ran.exit_code, len(names), names[:3]) == (0, 9, names[3:6])
    assert all(4 < seconds <= 5 for seconds in pauses)
