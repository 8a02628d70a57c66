"""`dragoman admin status`: what is wrong, its cause, and the command to run."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.admin.budgets import BudgetLine
from dragoman.admin.overview import AgentLine, Stats, UpstreamLine, WorkerLine
from dragoman.admin.switches import Switch
from dragoman.admin.webhooks import DeliveryLine, PausedHostLine
from dragoman.cli.admin.status import ServerState, ServerTrouble, TroubleReport, find_troubles, report_text
from tests.cli.admin.site import dragoman, site

NOTHING: dict[str, Any] = {
    "tasks": {},
    **dict.fromkeys(("queued", "running", "waiting", "webhook_calls_pending", "webhook_calls_dead"), 0),
    **dict.fromkeys(("replicas", "writes", "failed_writes"), 0),
    "outage": None,
}


def stats(**more: Any) -> Stats:
    return Stats(**{**NOTHING, **more})


def agent(name: str, **more: Any) -> AgentLine:
    numbers = dict.fromkeys(("queued", "running", "waiting", "total"), 0)
    return AgentLine(
        **{"id": name, "name": name, "version": "1", "kind": "python", "degraded": None, **numbers, **more}
    )


def workers(name: str, *, connected: bool, queued: int = 0) -> WorkerLine:
    return WorkerLine(agent=name, connected=connected, workers=0, idle=0, running=0, queued=queued)


def upstream(name: str, breaker: str, fault: str | None = None) -> UpstreamLine:
    return UpstreamLine(agent=name, breaker=breaker, succeeded=0, refused=0, failed=3, url="https://far", fault=fault)


def dead(number: int, reason: str) -> DeliveryLine:
    words: Any = dict.fromkeys(("id", "task", "agent", "config", "url", "made"), "x")
    return DeliveryLine(
        **words, number=number, seq=1, failed=8, dead=True, next=None, reason=reason, host="https://hooks:443"
    )


BUDGET: Any = {"budget": "day", "unit": "tasks", "used": "5", "reserved": "0", "limit": "5", "percent": 100}

CASES: list[tuple[dict[str, Any], tuple[str, str, str]]] = [
    (
        {"stats": stats(outage="no space left")},
        ("fault", "The store cannot be written: no space left", "dragoman store check"),
    ),
    (
        {"stats": stats(replicas=3, silent_replicas=1)},
        (
            "fault",
            "1 replica of 3 gave no sign of life lately: tasks there stand still until the lease is over, then others "
            "continue them",
            "dragoman admin replicas",
        ),
    ),
    (
        {"stats": stats(jobs={"retention": "failed twice"})},
        ("fault", "The job retention fails: failed twice", "dragoman admin stats --watch"),
    ),
    (
        {"agents": (agent("a", degraded="no model"),)},
        ("fault", "Agent a cannot do all of its work: no model", "dragoman agents check a"),
    ),
    (
        {"agents": (agent("a", queued=2, running=4, oldest_queued_s=300.0),)},
        (
            "fault",
            "2 tasks wait for agent a, the oldest for 5m: 4 run: its workers, or the threads of the server, may all be "
            "busy",
            "dragoman admin tasks list --agent a",
        ),
    ),
    (
        {"agents": (agent("a", switch=Switch(state="disabled", by="operator:root", reason="adds wrong")),)},
        ("notice", "Agent a is disabled: by operator:root: adds wrong", "dragoman admin agents enable a"),
    ),
    (
        {"agents": (agent("w", degraded="offline"),), "workers": (workers("w", connected=False, queued=1),)},
        (
            "fault",
            "Agent w has no worker, and 1 task waits: no worker of it has called lately",
            "dragoman worker w=MODULE:AGENT --server http://here",
        ),
    ),
    (
        {"agents": (agent("w", degraded="offline"),), "workers": (workers("w", connected=False),)},
        (
            "notice",
            "Agent w has no worker: no worker of it has called lately",
            "dragoman worker w=MODULE:AGENT --server http://here",
        ),
    ),
    (
        {"agents": (agent("u", degraded="offline"),), "upstreams": (upstream("u", "open"),)},
        (
            "fault",
            "The server of agent u is not called: 3 calls to https://far have failed since the start",
            "dragoman agents check u",
        ),
    ),
    (
        {"upstreams": (upstream("u", "closed", "its card cannot be read"),)},
        ("fault", "Agent u fails: its card cannot be read", "dragoman agents check u"),
    ),
    (
        {"stats": stats(webhook_calls_dead=3), "dead": (dead(1, "HTTP 500"), dead(2, "HTTP 410"), dead(3, "HTTP 410"))},
        (
            "fault",
            "3 webhook deliveries died: mostly https://hooks:443: HTTP 410",
            "dragoman webhooks list --state dead",
        ),
    ),
    (
        {"paused": (PausedHostLine(host="hooks;x", since="", by="operator:root", waiting=1),)},
        (
            "notice",
            "Webhooks to hooks;x are paused, and 1 delivery waits: by operator:root",
            "dragoman webhooks resume 'hooks;x'",
        ),
    ),
    (
        {"budgets": (BudgetLine(**BUDGET, resets_at="2026-12-01T00:00:00Z"),)},
        (
            "fault",
            "The budget day is used up: 5 of 5 tasks; it resets at 2026-12-01T00:00:00Z",
            "dragoman admin budgets",
        ),
    ),
    (
        {"budgets": (BudgetLine(**BUDGET, mode="soft", member="ann"),)},
        ("notice", "The budget day of ann is used up: 5 of 5 tasks", "dragoman admin budgets"),
    ),
    (
        {"waiting": 2, "longest_waiting_s": 7200.0},
        ("notice", "2 tasks wait for a person, the longest for 2h", "dragoman admin inbox"),
    ),
    (
        {
            "agents": (agent("a", queued=1, oldest_queued_s=2.0), agent("w")),
            "workers": (workers("w", connected=True, queued=1),),
            "upstreams": (upstream("u", "closed"),),
            "budgets": (BudgetLine(**{**BUDGET, "percent": 99}),),
        },
        ("", "", ""),
    ),
]


@pytest.mark.parametrize(("told", "expected"), CASES, ids=[expected[1] or "nothing" for _, expected in CASES])
def test_each_trouble_has_its_cause_and_its_command(told: dict[str, Any], expected: tuple[str, str, str]) -> None:
    found = list(find_troubles(ServerState(**{"stats": stats(), **told}), "http://here", named=False))
    said = [(each.level, each.what + (f": {each.cause}" if each.cause else ""), each.command) for each in found]
    assert said == ([expected] if expected[0] else [])


def test_a_cause_that_is_a_sentence_has_one_full_stop() -> None:
    trouble = ServerTrouble(level="fault", what="It fails", cause="No space.", command="df")
    assert report_text(TroubleReport(ok=False, troubles=(trouble,), replicas=1)) == "FAULT: It fails: No space.\n  df"


def test_several_replicas_are_counted() -> None:
    well = TroubleReport(ok=True, troubles=(), replicas=2)
    assert report_text(well) == "Nothing is wrong. 2 replicas are alive."
    assert report_text(replace(well, replicas=1)) == "Nothing is wrong."
    trouble = ServerTrouble(level="notice", what="It waits", command="df")
    assert report_text(replace(well, troubles=(trouble,))).endswith("\n2 replicas are alive.")


async def test_it_asks_the_server_and_ends_with_1_if_there_is_a_fault(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        well = await here.admin("status")
        assert (well.status, well.err) == (0, "")
        assert well.out.splitlines()[0].startswith("NOTICE: 2 tasks wait for a person, the longest for ")
        assert well.out.splitlines()[1:] == ["  dragoman admin inbox"]
        await here.admin("agents", "drain", "echo")
        told = json.loads((await here.admin("status", "-o", "json", "--server", here.url)).out)
        assert told["ok"] is True
        assert told["troubles"][0]["command"] == f"dragoman admin agents enable echo --server {here.url}"
    nobody = await dragoman(tmp_path, "admin", "status", DRAGOMAN_STORE=here.store)
    assert (nobody.status, nobody.out) == (3, "")
    assert nobody.err.startswith("dragoman: no server runs on the store sqlite:///")
