"""`dragoman webhooks` and `tasks show` about deliveries that arrived, on the local store and from afar."""

import json
import re
from pathlib import Path

from dragoman.auth.operator_token import read_token
from tests.bindings.admin.test_receipts import told_task, until_arrived
from tests.bindings.admin.test_webhooks import servers
from tests.cli.admin.site import Ran, dragoman
from tests.kit.places import bearer, sqlite_url
from tests.push.receiver import receiving


def ageless(text: str) -> str:
    """The text without how long a task has been completed, which grows between two commands."""
    return re.sub(r"(?<=completed for )\S+", "…", text)


async def test_deliveries_that_arrived_are_listed_shown_and_sent_again(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with receiving() as receiver, servers(store, 1) as (http,):
        task_id, deliveries = await told_task(http, receiver, bearer(store))
        numbers = [str(each["number"]) for each in deliveries]
        token = read_token(store, 0)
        assert token is not None
        async with http.get("/health") as answer:
            away = {"DRAGOMAN_SERVER": str(answer.url.origin()), "DRAGOMAN_API_KEY": token}

        async def both(*arguments: str, status: int = 0) -> str:
            """The output on the local store, which is that from afar, but for the age of a task."""
            local = await dragoman(tmp_path, *arguments, DRAGOMAN_STORE=store)
            far = await dragoman(tmp_path, *arguments, **away)
            assert local.status == far.status == status
            assert ageless(far.out + far.err) == ageless(local.out + local.err)
            return local.out or local.err

        listed = await both("webhooks", "list", "--state", "delivered")
        rows = [line.split() for line in listed.splitlines()]
        assert rows[0] == ["NUMBER", "ARRIVED", "AGENT", "TASK", "SEQ", "URL", "ATTEMPTS", "ANSWER", "TOOK"]
        assert [row[0] for row in rows[1:]] == numbers[::-1]
        assert rows[1][3:9] == [task_id, str(deliveries[-1]["seq"]), f"{receiver.url}/in/…", "1", "HTTP", "204"]
        page = await both(
            "webhooks", "list", "--state", "delivered", "--limit", "1", "--cursor", numbers[-1], "-o", "jsonl"
        )
        assert json.loads(page.splitlines()[0]) == deliveries[-2]
        assert await both("webhooks", "list", "--state", "delivered", "--task", "nobody") == "None.\n"
        assert await both("webhooks", "list", "--state", "dead") == "None.\n"
        shown = await both("webhooks", "show", numbers[0])
        assert f"again     `dragoman webhooks redeliver {numbers[0]} --delivered`" in shown
        assert "answer    HTTP 204 after " in shown
        task = await both("admin", "tasks", "show", task_id)
        assert [line.split()[:2] for line in task.splitlines()[-len(numbers) :]] == [[n, "delivered"] for n in numbers]
        assert "secret" not in listed + page + shown + task

        redeliver = "webhooks", "redeliver", numbers[0]
        sends: list[Ran] = []
        for where in ({"DRAGOMAN_STORE": store}, away):
            sends.append(await dragoman(tmp_path, *redeliver, "--delivered", **where))
            assert sends[-1] == (0, "1 delivered delivery to be sent again.\n", "")
            await until_arrived(http, bearer(store), task_id, len(deliveries) + len(sends))
            assert receiver.asked[-1].headers["webhook-id"] == deliveries[0]["id"]
            assert receiver.asked[-1].body == receiver.asked[0].body
        without = await both("webhooks", "redeliver", numbers[0], status=1)
        assert "0 dead deliveries to be sent again" in without


async def test_filters_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    for arguments, field in (
        (("--state", "delivered", "--cursor", "first"), "--cursor"),
        (("--interval", "3"), "--interval"),
        (("--state", "late"), "--state"),
    ):
        refused = await dragoman(tmp_path, "webhooks", "list", *arguments, DRAGOMAN_STORE=sqlite_url(tmp_path))
        assert (refused.status, field in refused.err.splitlines()[-1]) == (2, True), refused
    both = await dragoman(tmp_path, "webhooks", "redeliver", "--all", "--delivered")
    assert (both.status, "--delivered: goes with NUMBERs" in both.err) == (2, True)
