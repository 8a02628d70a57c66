"""`make bench`: measures Dragoman beside the official SDK's server and the floor, in turn, and writes one table.

Run by the Python of the bench environment (requirements/bench.txt). Full: about 20 minutes; `--quick`: about three.
The table is `bench/results/table.md`, every figure behind it `figures.json` there. Ends with 1 if a server broke, so
that a row has no number; a missed promise is bold in the table, and named below it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import generators
import page
import servers
import table
from plan import Plan, Row
from rows import ROWS
from servers import Broken, Kind

RESULTS = servers.HERE / "results"
Rounds = dict[str, dict[str, dict[str, list[float]]]]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join(row.name for row in ROWS)
    parser.add_argument("--only", default="", help=f"rows, with commas: {names}")
    parser.add_argument("--servers", default="", help="kinds, with commas; default: all that a row compares")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of each row; each round measures every server once")
    parser.add_argument("--quick", action="store_true", help="1 s, one round, a tenth of the tasks")
    parser.add_argument("--dragoman", default=str(servers.HERE.parent / ".venv/bin/dragoman"), help="the command")
    parser.add_argument(
        "--compare",
        metavar="COMMIT",
        help="measure Dragoman's sources at that commit, or in that directory, in turn with ours, and compare",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="write table and figures there")
    parser.add_argument("--page", action="store_true", help="keep these figures, and write them into the documentation")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="record each server with py-spy (speedscope files)")
    parser.add_argument("--check-generators", action="store_true", help="measure only what the generators can take")
    return parser.parse_args()


def chosen(only: str, known: list[str]) -> list[str]:
    names = [name for name in only.split(",") if name] or known
    for name in names:
        if name not in known:
            sys.exit(f"{name} is not one of {', '.join(known)}")
    return names


@contextmanager
def tree_of(commit: str, python: str) -> Iterator[Path]:
    """The sources of a commit, compiled, in a directory that is removed at the end. A directory with sources is itself.

    Ends the program if it is neither.
    """
    if (Path(commit) / "src/dragoman").is_dir():
        yield Path(commit)
        return
    archive = subprocess.run(
        ["git", "-C", str(servers.HERE.parent), "archive", commit, "src"], stdout=subprocess.PIPE
    ).stdout
    if not archive:
        sys.exit(f"{commit} is neither a commit nor a directory with src/dragoman")
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as directory:
        subprocess.run(["tar", "-x", "-C", directory], input=archive, check=True)
        subprocess.run([python, "-m", "compileall", "-q", directory], check=True)
        yield Path(directory)


def with_tree(kinds: Iterable[Kind], tree: Path | None) -> Iterator[Kind]:
    """The kinds; each of Dragoman's is followed by its like from the other tree, if there is one."""
    for kind in kinds:
        yield kind
        if tree and kind.name.startswith("dragoman"):
            yield kind.of_tree(tree)


def profiled(kind: Kind, row: Row, directory: Path) -> Kind:
    """That server under py-spy, which samples it without stopping it. The figures are then no results."""
    directory.mkdir(parents=True, exist_ok=True)
    output = directory.absolute() / f"{row.name}-{{name}}.json"
    spy = str(Path(sys.executable).parent / "py-spy")
    return kind.under(
        (spy, "record", "--nonblocking", "--rate", "400", "--format", "speedscope", "--output", str(output))
    )


def measure(
    row: Row, kinds: list[Kind], load: generators.Generators, plan: Plan, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """A B B A: each round measures every kind once. Prints each figure as it comes; a broken kind is left out.

    Every other round goes backwards, so that a machine that becomes slower or faster does so for all alike.
    """
    found: dict[str, dict[str, list[float]]] = {}
    broken: set[str] = set()
    for number in range(min(rounds, row.rounds_max)):
        for kind in kinds if number % 2 == 0 else kinds[::-1]:
            if kind.name in broken:
                continue
            try:
                figures = row.measure(load, kind, plan)
            except (Broken, ArithmeticError, LookupError, OSError, ValueError, subprocess.SubprocessError) as error:
                broken.add(kind.name)
                found.pop(kind.name, None)
                print(f"  {row.name:8} {kind.name:16} broken: {type(error).__name__}: {error}", flush=True)
                continue
            told = ", ".join(f"{figure} {table.number(value)}" for figure, value in figures.items())
            print(f"  {row.name:8} {kind.name:16} {told}", flush=True)
            for figure, value in figures.items():
                found.setdefault(kind.name, {}).setdefault(figure, []).append(value)
    return found


def check_generators(load: generators.Generators) -> None:
    """Check that the generators, with a server that only answers, are twice as fast as any row needs."""
    task = {"id": generators.ID_SLOT, "contextId": generators.ID_SLOT, "status": {"state": "TASK_STATE_COMPLETED"}}
    answer = load.write(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"task": task}}))
    body = generators.rpc("SendMessage", generators.message({"text": "?"}))
    with load.blasting("json", str(answer)) as port:
        plain = load.loop(port, "/", body, "--seconds", "2")
        wrk = load.unary(port, "/", body, "send.lua", "deadbeef", 2)
    with load.blasting("sse", "100") as port:
        events = load.loop(port, "/", body, "--seconds", "2", "--chunks", "100")
    streams = generators.stream_rpc("SendStreamingMessage", generators.message({"text": "100 burst"}))
    with load.peering(servers.SERVER_CORE) as port:
        peer = load.loop(port, "/", body, "--seconds", "2")
        peer_events = load.loop(port, "/", streams, "--seconds", "2", "--chunks", "100")
    print(f"load.c, unary: {plain.requests_per_s:,.0f}/s, its core {plain.busy:.0%} busy")
    print(f"{'wrk' if load.wrk else 'load.c'}, unary: {wrk.requests_per_s:,.0f}/s, its core {wrk.busy:.0%} busy")
    print(f"load.c, events: {events.events_per_s:,.0f}/s, its core {events.busy:.0%} busy")
    print(f"peer.c, called by load.c: {peer.requests_per_s:,.0f} requests/s, {peer_events.events_per_s:,.0f} events/s")


def main() -> int:
    given = options()
    if given.page and given.quick:
        sys.exit("--quick measures smaller sizes than the page promises")
    # Ends as an exception, so that every server and generator is ended too.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    plan, rounds = Plan(seconds=given.seconds), given.rounds
    if given.quick:
        plan, rounds = (
            Plan(
                seconds=1,
                idle_streams=1_000,
                listed_tasks=10_000,
                dead_deliveries=10_000,
                waiting_tasks=2_000,
                sleeping_tasks=10_000,
                expired_tasks=50_000,
            ),
            1,
        )
    kinds = servers.kinds(os.path.abspath(given.dragoman))
    wanted = chosen(given.servers, list(kinds))
    rows = [row for row in ROWS if row.name in chosen(given.only, [row.name for row in ROWS])]
    if len(os.sched_getaffinity(0)) < 2:
        print("one core only: server and load share it, and the figures mean little")
    began = time.monotonic()
    results: Rounds = {}
    with ExitStack() as stack:
        load = stack.enter_context(generators.generators())
        tree = stack.enter_context(tree_of(given.compare, kinds["dragoman"].python)) if given.compare else None
        if load.wrk is None:
            print("wrk is missing (apt-get install wrk): unary rows use bench/load.c instead")
        if given.check_generators:
            check_generators(load)
            return 0
        for row in rows:
            print(row.title, flush=True)
            compared = list(with_tree((kinds[name] for name in row.kinds if name in wanted), tree))
            if given.profile:
                compared = [profiled(kind, row, given.profile) for kind in compared]
            results[row.name] = measure(row, compared, load, plan, rounds)
    written = table.markdown(rows, results)
    print("\n" + "\n".join(table.details(results)))
    print("\n" + written)
    for miss in table.missed(rows, results):
        print(f"missed: {miss}")
    if tree:
        print("\n" + table.changes(results))
    measured = measured_with(plan, rounds)
    print(f"\n{measured['machine']}; {time.monotonic() - began:.0f} s in all")
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "table.md").write_text(written + "\n")
    (given.results / "figures.json").write_text(json.dumps(measured | {"results": results}, indent=1) + "\n")
    if given.page:
        page.keep(results, measured)
    return 0 if all(results[row.name].get(name) for row in rows for name in row.kinds if name in wanted) else 1


def measured_with(plan: Plan, rounds: int) -> dict[str, Any]:
    """When, where and how: what the page says of its figures."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    machine = (
        f"{os.cpu_count()} cores of {model.partition(': ')[2] or platform.machine()}, Linux {platform.release()}, "
        f"CPython {platform.python_version()}"
    )
    return {"on": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine, "rounds": rounds, "seconds": plan.seconds}


if __name__ == "__main__":
    sys.exit(main())
