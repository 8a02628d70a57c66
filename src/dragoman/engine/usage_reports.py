"""Reports of tokens, as agents and those behind them make them: checked before they are counted.

Invariant: a report that is out of bounds fails no task. Its tokens are not counted, the log says so, and the usage
counts it as uncertain, so that no cost is said to be complete.
"""

import logging

from dragoman.engine.bounds import Bounds
from dragoman.engine.bounds import usage as check_usage
from dragoman.model.task import TaskHead, Usage
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.runs")


def admit_usage(used: Usage, bounds: Bounds, head: TaskHead) -> Usage:
    """The report as it is counted for a task: as it is, or as a report whose tokens nobody knows.

    Raises TypeError or ValueError if it is no report.
    """
    used = check_usage(used)
    fault = bounds.fault_in_usage(used)
    if not fault:
        return used
    log.warning(
        "agent %s: task %s: a report of tokens is not counted: %s", head.agent, head.id, fault, extra=about(head.agent)
    )
    unknown = Usage()
    for model in used.models:
        unknown += Usage.unknown(model.model, model.upstream)
    return unknown if used.models else Usage.unknown()
