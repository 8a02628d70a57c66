"""`dragoman webhooks|audit` on the local store and from afar: the same commands, the same answers."""

import asyncio
import json
from pathlib import Path

import pytest

from dragoman.auth.operator_token import read_token
from dragoman.cli.store_commands import operator
from dragoman.model.ids import SystemClock, timestamp
from dragoman.model.operations import PushConfig
from dragoman.store.audit import AuditEntry
from dragoman.store.open import open_store
from dragoman.store.outbox import Lane, Registration, Settled
from tests.cli.admin.site import dragoman, site
from tests.push.rig import delivery
from tests.store.cases.bench import ending, new_task

URL = "https://hooks.example.org/in/T0/hidden/B0?key=hidden"


async def give_up(url: str, more: int = 0) -> int:
    """Leave a dead letter of an ended task in the store, and return its number. `more` are pending behind it."""
    store = open_store(url, SystemClock())
    await store.open("h0")
    now_ms = SystemClock().now_ms()
    config = PushConfig(url=URL, id="w", secret="hidden", dialect="1.0")
    registration = Registration(config=config, host="https://hooks.example.org:443")
    await store.create(new_task("t1", at=now_ms, holder="h0"))
    await store.append(ending("t1", 1, at=now_ms))
    await store.outbox.register("t1", registration, tuple(delivery(b"{}", config_id="w") for _ in range(1 + more)))
    (due,) = await store.outbox.claim(Lane.UNKNOWN, now_ms + 1000, now_ms + 60_000, 10, 10)
    await store.outbox.settle(Settled(number=due.number, outcome="dead", reason="HTTP 500"))
    await store.close()
    return due.number


async def test_webhooks_and_audit_are_the_same_from_afar(tmp_path: Path) -> None:
    number = await give_up(f"sqlite:///{tmp_path}/dragoman.db")
    async with site(tmp_path, push=False) as here:
        token = read_token(here.store, 0)
        assert token is not None

        async def both(*arguments: str) -> str:
            """The output on the local store, which is that from afar."""
            local = await here.run(*arguments)
            far = await here.run(*arguments, "--server", here.url, DRAGOMAN_API_KEY=token)
            assert (local.status, far) == (0, local)
            assert "hidden" not in far.out + far.err
            return local.out

        assert str(number) in await both("webhooks", "list", "--state", "dead")
        listed = json.loads(await both("webhooks", "list", "--json"))
        assert (listed["number"], listed["dead"], listed["url"]) == (number, True, "https://hooks.example.org/in/…")
        assert (await dragoman(tmp_path, "webhooks", "list", "--json", DRAGOMAN_STORE=here.store)).out == json.dumps(
            listed, ensure_ascii=False, separators=(",", ":")
        ) + "\n"
        audit = await both("audit", "--principal", "key:nobody", "--json")
        assert audit == ""
        away = {"DRAGOMAN_SERVER": here.url, "DRAGOMAN_API_KEY": token}
        sent = await here.run("webhooks", "redeliver", str(number), **away)
        assert sent == (0, "1 dead delivery to be sent again.\n", "")
        missing = await here.run("webhooks", "redeliver", str(number), **away)
        assert (missing.status, len(missing.err.splitlines())) == (1, 1)
        assert json.loads((await here.run("webhooks", "list", "--json", **away)).out)["dead"] is False
        none = await here.run("webhooks", "delete", "--all", "--yes", **away)
        assert none == (0, "0 dead deliveries deleted.\n", "")
        while True:  # the server writes its trail within a second
            trail = await here.run("audit", "--json", **away)
            acts = [json.loads(line) for line in trail.out.splitlines()]
            acts = [act for act in acts if act["action"] in ("webhooks.redeliver", "webhooks.delete")]
            told = [act["subject"] for act in acts]
            if len(told) == 3:
                break
            await asyncio.sleep(0)
        assert told == [str(number), str(number), "all, 0"]
        assert {act["principal"] for act in acts} == {operator()}
        refused = await here.run("audit", "--server", here.url, DRAGOMAN_API_KEY="wrong")
        assert (refused.status, len(refused.err.splitlines())) == (4, 1)


async def test_hosts_are_paused_and_deliveries_shown_the_same_from_afar(tmp_path: Path) -> None:
    number = await give_up(f"sqlite:///{tmp_path}/dragoman.db")
    async with site(tmp_path, push=False) as here:
        token = read_token(here.store, 0)
        assert token is not None
        away = {"DRAGOMAN_SERVER": here.url, "DRAGOMAN_OPERATOR_KEY": token}

        async def both(*arguments: str) -> str:
            local, far = await here.run("webhooks", *arguments), await here.run("webhooks", *arguments, **away)
            assert local == far
            assert "hidden" not in far.out + far.err
            return local.out + local.err

        assert await both("paused") == "No host is paused.\n"
        assert "status    dead: `dragoman webhooks redeliver` sends it again" in await both("show", str(number))
        assert (await here.run("webhooks", "redeliver", str(number), **away)).status == 0
        paused = await here.run("webhooks", "pause", "https://Hooks.example.org", **away)
        assert paused == (0, "https://hooks.example.org:443 is paused: 1 delivery waits for it.\n", "")
        again = await here.run("webhooks", "pause", "https://hooks.example.org")
        assert again.out == "https://hooks.example.org:443 is already paused: 1 delivery waits for it.\n"
        assert operator() in await both("paused")
        shown = json.loads(await both("show", str(number), "-o", "json"))
        assert (shown["status"], shown["host"], shown["failed"]) == ("paused", "https://hooks.example.org:443", 0)
        assert shown["pauses"][0]["by"] == operator()
        assert "status    waits for its host, which is paused" in await both("show", shown["id"])
        assert " paused" in await both("list", "--task", "t1")
        assert json.loads((await here.admin("stats", "-o", "json")).out)["webhook_calls_paused"] == 1

        other = await here.run("webhooks", "resume", "hooks.example.org")
        assert (other.status, len(other.err.splitlines())) == (1, 1)
        paused = await here.run("webhooks", "pause", "hooks.example.org")
        assert "1 delivery waits for it" in paused.out
        freed = await here.run("webhooks", "resume", "hooks.example.org")
        assert freed.out == (
            "hooks.example.org is no longer paused: 1 still waits for another pause (`dragoman webhooks paused`).\n"
        )
        resumed = await here.run("webhooks", "resume", "https://hooks.example.org", "-o", "json", **away)
        assert json.loads(resumed.out)["changed"] is True
        hidden = await here.run("webhooks", "delete", str(number), "--yes")
        assert (hidden.status, "--pending takes others too" in hidden.err) == (1, True)
        deleted = await here.run("webhooks", "delete", str(number), "--pending", "--yes", **away)
        assert deleted == (0, "1 pending delivery deleted.\n", "")
        missing = await here.run("webhooks", "show", str(number), **away)
        assert (missing.status, "those that arrived are kept for delivered_retention" in missing.err) == (2, True)
        for arguments in (("pause", "a b"), ("resume", "https://a/b"), ("delete", "--all", "--pending")):
            wrong = await here.run("webhooks", *arguments)
            assert wrong.status == 2, wrong


async def test_any_number_of_records_is_read_from_afar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("audit", "webhooks"):
        monkeypatch.setattr(f"dragoman.cli.{module}.PAGE", 2)
    await give_up(f"sqlite:///{tmp_path}/dragoman.db", 4)
    async with site(tmp_path, push=False) as here:
        token = read_token(here.store, 0)
        assert token is not None
        away = {"DRAGOMAN_SERVER": here.url, "DRAGOMAN_OPERATOR_KEY": token}
        store = open_store(here.store, SystemClock())
        await store.open(None)
        written = [AuditEntry(at_ms=place, principal="key:ann", action="SendMessage") for place in range(9)]
        await store.audit.write(written)
        await store.close()
        only = ("--principal", "key:ann", "--json")
        for arguments in (("--all", *only), ("--limit", "8", *only), ("--limit", "3", *only)):
            local, far = await here.run("audit", *arguments), await here.run("audit", *arguments, **away)
            assert local == far
        assert len((await here.run("audit", "--all", *only, **away)).out.splitlines()) == 9
        listed = await here.run("webhooks", "list", "--json", **away)
        assert (len(listed.out.splitlines()), listed) == (5, await here.run("webhooks", "list", "--json"))


async def test_a_person_has_one_name_with_and_without_a_server_and_an_act_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path}/dragoman.db"
    number = str(await give_up(store))
    monkeypatch.setenv("LOGNAME", "jürgen")
    alone = await dragoman(tmp_path, "webhooks", "redeliver", number, "--pending", DRAGOMAN_STORE=store)
    assert alone.out == "1 dead delivery to be sent again.\n"
    async with site(tmp_path, push=False) as here:
        token = read_token(here.store, 0)
        assert token is not None
        ways = ({}, {"DRAGOMAN_SERVER": here.url}, {"DRAGOMAN_SERVER": here.url, "DRAGOMAN_OPERATOR_KEY": token})
        for way in ways:
            assert (await here.run("webhooks", "redeliver", number, "--pending", **way)).status == 0
            assert (await here.run("webhooks", "pause", "example.org", **way)).status == 0
            assert (await here.run("webhooks", "resume", "example.org", **way)).status == 0
        acts: list[dict[str, str]] = []
        while len(acts) < 1 + 3 * len(ways):  # the server writes its trail within a second
            trail = await here.run("audit", "--action", "webhooks", "--json")
            acts = [json.loads(line) for line in trail.out.splitlines()]
            await asyncio.sleep(0)
    assert {act["principal"] for act in acts} == {"operator:jürgen"}
    each = ["webhooks.redeliver", "webhooks.pause", "webhooks.resume"]
    assert [act["action"] for act in acts] == [each[0], *each * len(ways)]


async def test_a_resumed_host_says_which_calls_go_out_now_and_a_failing_one_is_not_called_healthy(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/dragoman.db"
    store = open_store(url, SystemClock())
    await store.open("h0")
    now_ms = SystemClock().now_ms()
    later_ms = now_ms + 3_600_000
    config = PushConfig(url=URL, id="w", dialect="1.0")
    registration = Registration(config=config, host="https://hooks.example.org:443")
    for task, attempts in (("t1", 3), ("t2", 0)):
        await store.create(new_task(task, at=now_ms, holder="h0"))
        await store.append(ending(task, 1, at=now_ms))
        await store.outbox.register(task, registration, (delivery(b"{}", config_id="w"),))
        for attempt in range(attempts):  # the host answers each time, with an error
            lane = Lane.HEALTHY if attempt else Lane.UNKNOWN
            (due,) = await store.outbox.claim(lane, now_ms + 1000, now_ms + 60_000, 10, 10)
            due_ms = now_ms if attempt + 1 < attempts else later_ms
            await store.outbox.settle(Settled(number=due.number, outcome="retry", due_ms=due_ms, reason="HTTP 500"))
    await store.close()

    async def admin(*arguments: str) -> str:
        return (await dragoman(tmp_path, "webhooks", *arguments, DRAGOMAN_STORE=url)).out

    shown = await admin("show", "1")
    assert "failed    3 attempts" in shown
    assert "reason    HTTP 500" in shown
    assert "host      https://hooks.example.org:443, which answers\n" in shown
    assert json.loads(await admin("show", "1", "-o", "json"))["lane"] == "answers"
    assert "2 deliveries wait for it" in await admin("pause", "hooks.example.org")
    told = await admin("resume", "hooks.example.org")
    assert told == (
        "hooks.example.org is no longer paused: 1 delivery goes out now, 1 delivery goes out when due, "
        f"from {timestamp(later_ms)[:19]}Z on.\n"
    )
