"""`make bench`: measures Dragoman beside the official SDK's server and the floor, in turn, and prints ratios.

Run by the Python of the bench environment (requirements/bench.txt). Full: about 20 minutes; `--quick`: about three.
Ends with 1 if a server broke, so that a row has no number; a missed value is said in the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

import generators
import servers
import table
from plan import Plan, Row
from rows import ROWS
from servers import Broken, Kind

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
        "--against", type=Path, metavar="TREE", help="measure Dragoman's sources there in turn with ours, and compare"
    )
    parser.add_argument("--json", type=Path, help="write every figure of every round there")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="record each server with py-spy (speedscope files)")
    parser.add_argument("--check-generators", action="store_true", help="measure only what the generators can take")
    return parser.parse_args()


def chosen(only: str, known: list[str]) -> list[str]:
    names = [name for name in only.split(",") if name] or known
    for name in names:
        if name not in known:
            sys.exit(f"{name} is not one of {', '.join(known)}")
    return names


def against(ours: Iterable[Kind], tree: Path) -> list[Kind]:
    """Dragoman's kinds with the sources of another tree. Ends the program if there are none."""
    if not (tree / "src/dragoman").is_dir():
        sys.exit(f"{tree} has no src/dragoman")
    return [kind.of_tree(tree) for kind in ours if kind.name.startswith("dragoman")]


def with_other_tree(names: Iterable[str], known: Container[str]) -> Iterator[str]:
    """Each kind of a row, followed by its like from the other tree, if there is one."""
    for name in names:
        yield name
        if name + servers.AGAINST in known:
            yield name + servers.AGAINST


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
    """A B A B: each round measures every kind once. Prints each figure as it comes; a broken kind is left out."""
    found: dict[str, dict[str, list[float]]] = {}
    broken: set[str] = set()
    for _ in range(min(rounds, row.rounds_max)):
        for kind in kinds:
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
            ),
            1,
        )
    kinds = servers.kinds(os.path.abspath(given.dragoman))
    if given.against:
        kinds |= {other.name: other for other in against(kinds.values(), given.against)}
    wanted = chosen(given.servers, list(kinds))
    rows = [row for row in ROWS if row.name in chosen(given.only, [row.name for row in ROWS])]
    if len(os.sched_getaffinity(0)) < 2:
        print("one core only: server and load share it, and the figures mean little")
    began = time.monotonic()
    results: Rounds = {}
    with generators.generators() as load:
        if load.wrk is None:
            print("wrk is missing (apt-get install wrk): unary rows use bench/load.c instead")
        if given.check_generators:
            check_generators(load)
            return 0
        for row in rows:
            print(row.title, flush=True)
            compared = [kinds[name] for name in with_other_tree(row.kinds, kinds) if name in wanted]
            if given.profile:
                compared = [profiled(kind, row, given.profile) for kind in compared]
            results[row.name] = measure(row, compared, load, plan, rounds)
    print("\n" + "\n".join(table.details(results)))
    print("\n" + table.markdown(results))
    if given.against:
        print("\n" + "\n".join(table.changes(results)))
    about = (
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, CPython {platform.python_version()}"
    )
    size = (
        f"{plan.seconds:g} s, {rounds} rounds, {plan.idle_streams:,} idle streams, {plan.listed_tasks:,} listed tasks, "
        f"{plan.dead_deliveries:,} dead deliveries, {plan.waiting_tasks:,} waiting tasks, "
        f"{plan.sleeping_tasks:,} sleeping tasks"
    )
    print(f"\n{about}; {size}; {time.monotonic() - began:.0f} s in all")
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps({"machine": about, "plan": size, "results": results}, indent=1) + "\n")
    measured = all(results[row.name].get(name) for row in rows for name in row.kinds if name in wanted)
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main())
