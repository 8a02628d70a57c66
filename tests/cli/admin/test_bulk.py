"""`dragoman admin bulk`: the real command on a real server."""

import json
from pathlib import Path

from tests.cli.admin.site import site


async def test_a_bulk_act_is_followed_to_its_end_and_listed(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        refused = await here.admin("bulk", "cancel")
        assert (refused.status, "--agent" in refused.err) == (2, True)
        counted = await here.admin("bulk", "cancel", "--agent", "echo", "--dry-run")
        assert (counted.status, counted.out) == (0, "1 would be canceled.\n"), counted.err
        done = await here.admin("bulk", "cancel", "--agent", "echo", "--reason", "too dear")
        assert (done.status, done.out) == (0, "1 of 1 canceled, 0 left out, 0 failed.\n"), done.err
        asked = await here.admin("bulk", "delete", "--agent", "echo")
        assert (asked.status, "--yes" in asked.err) == (2, True)
        gone = await here.admin("bulk", "delete", "--agent", "echo", "--yes", "-o", "json")
        assert (gone.status, json.loads(gone.out)["done"]) == (0, 1), gone.err
        listed = await here.admin("bulk", "list", "-o", "json")
        jobs = json.loads(listed.out)["jobs"]
        assert [(job["action"], job["dry_run"]) for job in jobs] == [
            ("delete", False),
            ("cancel", False),
            ("cancel", True),
        ]
        stopped = await here.admin("bulk", "stop", jobs[0]["id"])
        assert (stopped.status, stopped.out) == (0, "1 of 1 deleted, 0 left out, 0 failed.\n")
        assert (await here.admin("bulk", "stop", "none")).status == 1
