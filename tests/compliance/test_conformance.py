"""`conformance` against live agents."""

import pytest

from tests.compliance.agents import Caller


@pytest.mark.requirement("CONFORM_001")
def test_a_live_agent_is_checked_against_the_rules_with_must(caller: Caller) -> None:
    ran = caller.shell.run("conformance", "-o", "json", "--text", caller.live.text("echo"), *caller.to("echo"))
    assert (ran.status, ran.json["conformant"]) == (0, True), ran.out
    results = {rule["id"]: rule["result"] for rule in ran.json["rules"]}
    assert results["message-answered"] == results["unknown-task"] == results["cancel-ended"] == "pass"
