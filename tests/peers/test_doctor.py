"""Compares the doctor's findings about the servers of others with lists that were made by hand.

A line here is a fact about that server: it was asked by hand, and its answer compared with the specification.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.a2a.command import Shell
from tests.peers.test_servers import SERVERS, started

pytestmark = [pytest.mark.peer, pytest.mark.slow]

UNMEASURED = ["authentication-declared", "cancel", "card-signature", "message-repeated", "stream-resumed"]
UNMEASURED += ["task-foreign", "tls"]
"""They ask nobody who calls, sign nothing, and are served without TLS on this machine. A message that is sent again is
a new one, updates have no ids, and a greeting is answered too soon to be canceled."""

ONLY_LOOKED_AT = ["authentication-declared", "card-signature", "tls"]
"""A server that does not speak A2A is sent no message."""

FINDINGS: dict[str, tuple[str, dict[str, list[str]]]] = {
    # Its helper for the card sends an ETag alone. It accepts webhooks at any address. Like the next three, it has an
    # extended card here, and asks nobody who calls.
    "python-1": (
        "the official Python SDK, 1.x",
        {"red": [], "yellow": ["card-caching", "extended-card", "webhook-address"]},
    ),
    "python-0.3": ("the official Python SDK, 0.3", {"red": [], "yellow": ["extended-card", "webhook-address"]}),
    "js-1": ("the official JavaScript SDK, 1.x", {"red": [], "yellow": ["extended-card", "webhook-address"]}),
    "js-0.3": ("the official JavaScript SDK, 0.3", {"red": [], "yellow": ["extended-card", "webhook-address"]}),
    # A method that it does not know, params without an id, and a body that is no JSON end in HTTP 500. It does not read
    # A2A-Version, answers before the work is done, makes a task for an id that it does not know, takes part in ended
    # tasks. Its times have no zone (A2A 1.0 §5.6.1). It takes a historyLength of 0 for none.
    "fasta2a": (
        "FastA2A",
        {
            "red": [
                "answer-values",
                "broken-json",
                "cancel-ended",
                "message-blocks",
                "message-to-unknown",
                "missing-params",
                "subscribe-ended",
                "unknown-method",
                "unknown-version",
            ],
            "yellow": ["card-caching", "card-skills", "history-length", "list"],
        },
    ),
    # Its card says A2A 0.3 over JSON-RPC, but its endpoint takes only messages of its own format, and answers whatever
    # else with HTTP 500 and "Unknown content type". It lets any web page call.
    "python-a2a": (
        "python-a2a",
        {
            "red": ["endpoint-answers"],
            "yellow": ["web-pages"],
        },
    ),
}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with started(FINDINGS, tmp_path_factory.mktemp("servers")) as urls:
        yield urls


@pytest.mark.parametrize("name", FINDINGS)
def test_nothing_wrong_is_said_about_the_servers_of_others(name: str, urls: dict[str, str], tmp_path: Path) -> None:
    assert name in urls, f"{SERVERS[name].needs} is missing: run `make peers`"
    server, expected = FINDINGS[name]
    words = ("--active", "--probe-webhooks", "-o", "json", "--fail-on", "never")
    report = Shell(tmp_path).run("doctor", urls[name], *words).json
    assert report["server"]["name"] == server
    assert {color: _checks(report, color) for color in expected} == expected
    answers = "endpoint-answers" not in expected["red"]
    assert _checks(report, "grey") == (UNMEASURED if answers else ONLY_LOOKED_AT)


@pytest.mark.parametrize("name", FINDINGS)
def test_an_official_server_is_conformant(name: str, urls: dict[str, str], tmp_path: Path) -> None:
    ran = Shell(tmp_path).run("conformance", "-a", urls[name], "-o", "json")
    broken = sorted(rule["id"] for rule in ran.json["rules"] if rule["result"] == "fail")
    assert broken == FINDINGS[name][1]["red"]
    assert ran.status == (1 if broken else 0)


def _checks(report: Any, color: str) -> list[str]:
    return sorted({each["check"] for each in report["findings"] if each["color"] == color})
