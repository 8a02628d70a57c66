"""`dragoman webhooks`: what is owed and what was given up, shown, sent again and deleted, with a server or without."""

import json
from functools import partial

import pytest

from dragoman.engine.admin.deliveries import shown_url
from dragoman.model.ids import SystemClock
from dragoman.model.operations import PushConfig
from dragoman.store.api import Store
from dragoman.store.audit import AuditEntry
from dragoman.store.outbox import Lane, Owed, Registration, Settled
from tests.kit.commands import Run
from tests.kit.places import work_on
from tests.push.rig import delivery
from tests.store.cases.bench import new_task

STORE = "sqlite:///data/dragoman.db"
URL = "https://hooks.example.org/in/T0/hidden/B0?key=hidden"


@pytest.fixture
def run(run: Run) -> Run:
    """Runs `dragoman webhooks` with these arguments."""
    return partial(run, "webhooks")


def owed() -> tuple[Owed, ...]:
    return work_on(STORE, lambda store: store.outbox.owed())


def entries() -> list[AuditEntry]:
    return list(work_on(STORE, lambda store: store.audit.read()))


async def _fill(store: Store) -> None:
    """Tasks t0 to t3 of one call each, all but the last given up; numbers count from 1."""
    for number in range(4):
        config = PushConfig(id="c", task_id=f"t{number}", url=URL, secret="s" * 20, token="t0ken", dialect="1.0")
        await store.create(new_task(f"t{number}"))
        registration = Registration(config=config, host="https://hooks.example.org:443")
        await store.outbox.register(f"t{number}", registration, (delivery(b"the body", 3),))
    now_ms = SystemClock().now_ms()
    for due in await store.outbox.claim(Lane.UNKNOWN, now_ms, now_ms + 60_000, 10, 10):
        if due.task_id != "t3":
            await store.outbox.settle(Settled(number=due.number, outcome="dead", reason="HTTP 500"))


@pytest.fixture
def filled(run: Run) -> Run:
    work_on(STORE, _fill, "server")
    return run


def test_nothing_owed_is_said(run: Run) -> None:
    work_on(STORE, lambda store: store.audit.read(), "server")
    result = run("list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No deliveries.\n")


def test_what_is_owed_is_shown_without_bodies_and_secrets(filled: Run) -> None:
    result = filled("list")
    assert result.exit_code == 0
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["NUMBER", "MADE", "AGENT", "TASK", "SEQ", "URL", "FAILED", "NEXT", "REASON"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "4"]
    assert all("https://hooks.example.org/in/… " in row for row in rows)
    assert [("dead" in row, "HTTP 500" in row) for row in rows] == [(True, True)] * 3 + [(False, False)]
    for hidden in ("hidden", "the body", "t0ken", "sss"):
        assert hidden not in result.stdout + filled("list", "--json").stdout


@pytest.mark.parametrize(
    ("flags", "tasks"), [([], "0123"), (["--state", "dead"], "012"), (["--state", "pending"], "3")]
)
def test_dead_ones_and_waiting_ones_are_told_apart(filled: Run, flags: list[str], tasks: str) -> None:
    shown = [json.loads(line) for line in filled("list", "--json", *flags).stdout.splitlines()]
    assert [one["task"] for one in shown] == [f"t{number}" for number in tasks]
    assert [one["dead"] for one in shown] == [one["task"] != "t3" for one in shown]


def test_a_long_list_goes_on_where_it_stopped(filled: Run) -> None:
    result = filled("list", "--limit", "2")
    assert len(result.stdout.splitlines()) == 1 + 2
    assert "--cursor 2" in result.stderr
    assert [line.split()[0] for line in filled("list", "--cursor", "2").stdout.splitlines()[1:]] == ["3", "4"]


def test_json_has_everything_that_may_be_seen(filled: Run) -> None:
    first = json.loads(filled("list", "--json").stdout.splitlines()[0])
    assert filled("list", "-o", "json").stdout == filled("list", "--json").stdout
    assert first.pop("id").startswith("msg_")
    assert first.pop("made").endswith("Z")
    assert first == {
        "number": 1,
        "task": "t0",
        "agent": "echo",
        "config": "c",
        "url": "https://hooks.example.org/in/…",
        "seq": 3,
        "failed": 1,
        "dead": True,
        "next": None,
        "reason": "HTTP 500",
        "host": "https://hooks.example.org:443",
        "paused": False,
        "state": "dead",
        "arrived": None,
        "http_status": None,
        "took_ms": None,
    }


def test_dead_letters_are_sent_again_by_number(filled: Run) -> None:
    result = filled("redeliver", "1", "3", "1")
    assert (result.exit_code, result.stdout) == (0, "2 dead deliveries to be sent again.\n")
    assert [one.dead for one in owed()] == [False, True, False, False]
    (entry,) = entries()
    assert (entry.action, entry.subject, entry.allowed) == ("webhooks.redeliver", "1,3", True)
    assert entry.principal.startswith("operator:")


def test_all_dead_letters_are_sent_again(filled: Run) -> None:
    assert filled("redeliver", "--all").stdout == "3 dead deliveries to be sent again.\n"
    assert not [one for one in owed() if one.dead]
    assert entries()[0].subject == "all, 3"


def test_what_is_no_dead_letter_is_said(filled: Run) -> None:
    result = filled("redeliver", "2", "4", "99")
    assert result.exit_code == 1
    assert "1 dead delivery to be sent again." in result.stdout
    assert result.stderr == (
        "dragoman: there is no delivery 99; 1 of these numbers has no dead delivery: see `dragoman webhooks list "
        "--state dead`; --pending and --delivered take others too\n"
    )
    many = filled("redeliver", *map(str, range(1, 202)))
    assert (many.exit_code, "of these numbers have no dead delivery" in many.stderr) == (1, True)


@pytest.mark.parametrize(("command", "count"), [("redeliver", 1), ("delete", 1)])
def test_changes_are_printed_as_json_too(filled: Run, command: str, count: int) -> None:
    result = filled(command, "1", "99", "-o", "json", *(("--yes",) if command == "delete" else ()))
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"count": count, "pending": 0, "again": 0, "refused": [], "missing": [99]}
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["message"]) == (
        "DRAGOMAN_ERR_FAILED",
        "there is no delivery 99; see `dragoman webhooks list`",
    )


def test_dead_letters_are_forgotten_once_that_is_confirmed(filled: Run) -> None:
    assert filled("delete", "1", answer="n\n").exit_code == 1
    assert len(owed()) == 4
    assert filled("delete", "1", answer="y\n").exit_code == 0
    assert filled("delete", "--all", "--yes").stdout == "2 dead deliveries deleted.\n"
    assert [one.task_id for one in owed()] == ["t3"]
    assert [(entry.action, entry.subject) for entry in entries()] == [
        ("webhooks.delete", "1"),
        ("webhooks.delete", "all, 2"),
    ]


def test_nothing_is_asked_about_dead_letters_that_are_not_there(filled: Run) -> None:
    gone = filled("delete", "99")
    assert (gone.exit_code, "Forget" in gone.output) == (1, False)
    assert "there is no delivery 99" in gone.stderr
    assert "Delete 1 dead delivery for good?" in filled("delete", "1", "99", answer="n\n").output
    assert "Delete all 3 dead deliveries for good?" in filled("delete", "--all", answer="y\n").output
    none = filled("delete", "--all")
    assert (none.exit_code, none.stdout) == (0, "0 dead deliveries deleted.\n")


@pytest.mark.parametrize("command", ["redeliver", "delete"])
@pytest.mark.parametrize("arguments", [[], ["1", "--all"]])
def test_which_must_be_said(filled: Run, command: str, arguments: list[str]) -> None:
    result = filled(command, *arguments)
    assert result.exit_code == 2
    assert "--all" in result.stderr
    assert len(owed()) == 4


def test_where_there_is_no_store_the_command_says_so(run: Run) -> None:
    result = run("list")
    assert result.exit_code == 2
    assert "no store file" in result.stderr


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h.example", "https://h.example"),
        ("https://h.example/", "https://h.example/"),
        ("https://h.example:8443/one", "https://h.example:8443/one"),
        ("https://h.example/one/", "https://h.example/one/"),
        ("https://h.example/one/two?three=four", "https://h.example/one/…"),
        ("https://h.example/services/T0/B0/secret#five", "https://h.example/services/…"),
        ("https://h.example?secret", "https://h.example"),
        ("https://h.example/bot123456:AAsecretsecret/sendMessage", "https://h.example/…"),
        ("https://h.example/0b6f3c1e-8d5a-4c0e-9a7e-1f2d3c4b5a69", "https://h.example/…"),
    ],
)
def test_of_a_url_the_host_and_the_first_word_are_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown
