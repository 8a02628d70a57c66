"""deploy/monitoring: every metric, label and value of the dashboard and the alerts is one that the server exposes."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dragoman.bindings.traffic import BINDINGS, Outcome
from dragoman.cli.topics import load_table
from dragoman.engine.handlers.admission import KINDS
from dragoman.telemetry.counts import AgentRuns, Counts, RequestCounts, UpstreamCalls
from dragoman.telemetry.figures import BusStatus, ClusterFigures, Gauges, OpenTaskFigures
from dragoman.telemetry.histogram import COMMIT_BOUNDS_S, Histogram
from dragoman.telemetry.prometheus import MetricsPage

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
ALERTS = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]

SCRAPED = {"instance", "job", "exported_job"}
"""The labels that Prometheus adds to everything, and the name that it gives to a label `job` of ours."""

METRIC = re.compile(r"\b((?:dragoman|process)_\w+|up)\b(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
GROUPED = re.compile(r"\b(?:by|without|on) \(([^)]*)\)")


class Pool:
    """The workers of an agent."""

    connected, queued, oldest_s, held, lost = 1, 1, 1.0, 1, 1


def page() -> str:
    """A page on which everything is that the server can show."""
    counts = Counts()
    for action in {kind.action for kind in KINDS.values()}:
        for binding in {*BINDINGS.values(), "http"}:
            requests = counts.requests[action, binding] = RequestCounts()
            requests.first_events.add(0.1)
            for outcome in Outcome:
                requests.answered(0.1, outcome.value)
    for reason in ("Unauthorized", "Forbidden", "TooManyRequests"):
        counts.refused(reason)
    counts.budget_warned("research", 80)
    for state in ("completed", "failed", "canceled", "rejected"):
        counts.ended("echo", state, 5)
    counts.submitted("echo")
    counts.lease_lost("echo")
    counts.used("echo", 1, 1)
    runs = counts.runs["echo"] = AgentRuns()
    runs.executed(1, None)
    runs.executed(1, "ValueError")
    runs.step_replayed()
    for outcome in ("delivered", "retry", "dead", "gone"):
        counts.pushed(outcome)
    counts.upstreams["echo"] = UpstreamCalls()
    counts.workers["echo"] = Pool()
    bus = BusStatus(name="nats", healthy=True, others=1, lag_s=0.1, published=1, received=1, refused=1, dropped=1)
    gauges = Gauges(
        streams=1,
        readers_cut=1,
        writes=(1, 1),
        commits=Histogram(COMMIT_BOUNDS_S),
        store_bytes=1,
        open_tasks=tuple(
            OpenTaskFigures("echo", state, 1, 1.0) for state in ("queued", "running", "sleeping", "waiting")
        ),
        job_failures={"sweep": 1},
        connections_refused={"busy": 1},
        sweep_behind_s={"tasks": 1.0},
        breakers={"echo": "open"},
        switches={"echo": "draining"},
        cluster=ClusterFigures(id="a", heartbeat_age_s=1.0, taken_over=1, bus=bus, replicas=()),
    )
    return MetricsPage(counts, "dragoman", "1").text("", gauges)[1].decode()


@pytest.fixture(scope="module")
def exposed() -> dict[str, dict[str, set[str]]]:
    """The values of each label of each metric."""
    found: dict[str, dict[str, set[str]]] = {"up": {}}
    for family in text_string_to_metric_families(page()):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression, with the title of its alert or panel."""
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("title", "expr"), list(expressions()))
def test_an_expression_has_metrics_labels_and_values_that_are_exposed(
    title: str, expr: str, exposed: dict[str, dict[str, set[str]]]
) -> None:
    used = METRIC.findall(expr)
    assert used, title
    labels: set[str] = set(SCRAPED)
    for metric, matchers in used:
        assert metric in exposed, f"{title}: no metric {metric}"
        labels |= exposed[metric].keys()
        for name, operator, value in MATCHER.findall(matchers):
            assert name in exposed[metric] or name in SCRAPED, f"{title}: {metric} has no label {name}"
            if name in SCRAPED:
                continue
            for each in value.split("|") if "~" in operator else [value]:
                assert each in exposed[metric][name], f"{title}: {name} of {metric} is never {each}"
    for grouped in GROUPED.findall(expr):
        assert {name.strip() for name in grouped.split(",")} <= labels, title


def test_the_metrics_of_the_table_are_those_that_are_exposed(exposed: dict[str, dict[str, set[str]]]) -> None:
    rows = [row for section in load_table("metrics").sections for row in section.rows]
    cells = [row[0] for row in rows if row[0].startswith("`dragoman")]
    named = {name: set(labels.split(", ")) - {""} for cell in cells for name, labels in NAMED.findall(cell)}
    ours = {name: labels for name, labels in exposed.items() if name.startswith("dragoman")}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in ours if not name.endswith("_created")}
    assert set(named) == families
    for name, labels in named.items():
        shown = {label for each, values in ours.items() for label in values if re.sub(SUFFIX, "", each) == name}
        assert labels == shown - {"le"}, name


SUFFIX = r"_(bucket|count|sum)$"
NAMED = re.compile(r"`(dragoman_\w+)(?:\{([^}]*)\})?`")


def test_every_alert_leads_to_an_entry_of_the_runbook() -> None:
    runbook = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", runbook, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for rule in RULES:
        place, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert place == "docs/operations.md", rule["alert"]
        assert anchor in anchors, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["labels"]["severity"] in {"warning", "critical"}, rule["alert"]
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_the_dashboard_has_its_rows_and_no_panel_over_another() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == ["Traffic", "Latency", "Tasks", "Agents and workers", "Webhooks", "Store", "Replicas"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    covered: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & covered, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        covered |= cells
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"]), panel["title"]
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "instance"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Prometheus, which few machines have")
@pytest.mark.parametrize("command", [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]])
def test_promtool_accepts_the_rules(command: list[str]) -> None:
    ran = subprocess.run(["promtool", *command], cwd=MONITORING, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
