"""Which tests notice a change: the tests that reach it are run with it, until one fails.

Invariant: a change counts as found only by a test that passes without it.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, TypeAlias

from tests.power.places import Place

Outcome: TypeAlias = Literal["found", "hangs", "survives", "unfinished", "unreached"]
"""`hangs`: found by a test that did not end. `unfinished`: not found within the bound, and some tests were not run."""

FULL_RUN = (
    *("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not peer and not drill and not proxy"),
    *("--ignore=tests/console", "--ignore=tests/peers", "--ignore=tests/proxies", "--ignore=tests/drills"),
    *("--ignore=tests/deploy", "--ignore=tests/scripts", "--ignore=tests/frameworks/test_frameworks.py"),
    # The rewritten text and one more imported module are what these would find.
    *("--ignore=tests/test_packaging.py", "--ignore=tests/server/test_objects.py"),
)
"""The suite without environments of its own, and without tests that look at the text of the code."""

PLANTED = "tests/simulation/test_mutations.py::test_a_bug_that_was_put_in_is_found["
"""Tests that pass if a planted bug is found. They find no other change in a sensible time."""

SLOW_S = (5.0, 1.0, 1.0)
"""Tests that take longer come after all others: those of the module itself, of its package, and others."""

COLLECTION = "collection"
"""Stands for a test where a module cannot be imported with a change."""

BATCHES = ((25, 5.0), (150, 20.0))
"""Tests and seconds of the first runs for a change: most changes are found by the nearest tests."""

GRACE_S = 30.0
"""Seconds that a run may take beyond four times what its tests took in the full run: the machine may be busy."""


class Recorded(NamedTuple):
    """The record of the full run, with no change."""

    seconds: Mapping[str, float]
    """By test, those that passed."""
    reaching: Mapping[int, frozenset[str]]
    """The tests that reach the place of a number."""


class Trial(NamedTuple):
    """The outcome of a change."""

    outcome: Outcome
    by: str
    """The test that found it, or nothing."""
    seconds: float
    """Seconds that the tests ran until then, without the start of pytest."""
    reaching: int
    """How many tests reach the place."""
    tried: int
    """How many of them were run."""


def record(tree: Path, arguments: Sequence[str] = FULL_RUN) -> int:
    """Run the suite with every switch off, and record which test reaches which place. Returns the status of pytest."""
    for name in ("reaches", "results", "tests"):
        (tree / ".power" / name).unlink(missing_ok=True)
    with (tree / ".power" / "full.log").open("w") as log:
        return subprocess.call(_pytest(tree, arguments), cwd=tree, env=_environment(POWER_RECORD="1"), stdout=log)


def read_record(tree: Path) -> Recorded:
    """Read the record that the full run left in the files of the tree, as far as it came."""
    files = tree / ".power"
    seconds: dict[str, float] = {}
    failed: set[str] = set()
    for line in (files / "results").read_text("utf-8").splitlines():
        test, took_s, failures = json.loads(line)
        seconds[test] = took_s
        if failures:
            failed.add(test)
    tests = json.loads((files / "tests").read_text("utf-8"))
    reaching: dict[int, set[str]] = defaultdict(set)
    for line in (files / "reaches").read_text("utf-8").splitlines():
        number, test_number = map(int, line.split())
        if test_number and (test := tests[test_number - 1]) in seconds and test not in failed:
            reaching[number].add(test)
    return Recorded(
        {test: took_s for test, took_s in seconds.items() if test not in failed},
        {number: frozenset(tests) for number, tests in reaching.items()},
    )


def in_order(module: str, tests: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    """The tests in the order in which they are tried: quick before slow, near before far, one of each file in turn."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: seconds[test]):
        if not test.startswith(PLANTED):
            files[test.partition("::")[0]].append(test)
    return sorted(
        (test for names in files.values() for test in names),
        key=lambda test: (
            seconds[test] > SLOW_S[distance := _distance(module, file := test.partition("::")[0])],
            distance,
            files[file].index(test) // 5,
            seconds[test],
        ),
    )


def mirrors(module: str, tests: Iterable[str]) -> list[str]:
    """The tests beside a module: for what happens when it is imported, where no test is running."""
    return [test for test in tests if _distance(module, test.partition("::")[0]) < 2]


def _distance(module: str, file: str) -> int:
    """0 for the tests of a module, 1 for those of its package, 2 for others."""
    code, test = PurePosixPath(module), PurePosixPath(file)
    if len(test.parts) < 3 or len(code.parts) < 3 or code.parts[1] != test.parts[1]:
        return 2
    return 0 if test.stem.removeprefix("test_") in (code.stem, code.parent.name) else 1


class Suite:
    """A process of pytest that has collected test files, and forks for each run of some of their tests.

    A change that acts when a module is imported needs a process that was started with it.
    """

    def __init__(self, tree: Path, tests: Iterable[str], number: int = 0) -> None:
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        environment = _environment(POWER_SWITCH=str(number), POWER_SERVE=f"{requests} {answers}")
        with (tree / ".power" / "try.log").open("a") as log:
            self._process = subprocess.Popen(
                _pytest(tree, tuple(files)),
                cwd=tree,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(requests, answers),
            )
        os.close(requests)
        os.close(answers)
        self._number = number
        self._reader = os.fdopen(self._answers)
        self.ready = self._reader.readline() == "ready\n"

    def run(self, number: int, tests: Sequence[str], seconds: Mapping[str, float]) -> "Ran":
        """Run tests with a change until one fails."""
        if not self.ready and self._number:
            return Ran(True, {}, COLLECTION)
        if not self.ready:
            raise RuntimeError("the tests cannot be collected without a change: see .power/try.log")
        with tempfile.TemporaryDirectory() as directory:
            results = Path(directory, "results")
            limit_s = GRACE_S + 4 * sum(seconds[test] for test in tests)
            os.write(self._requests, json.dumps([number, tests, str(results), limit_s]).encode() + b"\n")
            answer = self._reader.readline().strip()
            rows = [json.loads(line) for line in results.read_text("utf-8").splitlines()] if results.exists() else []
        if not answer:
            raise RuntimeError("pytest ended: see .power/try.log")
        failing = next((test for test, _, failures in rows if failures), "")
        return Ran(answer == "ended", {test: took_s for test, took_s, _ in rows}, failing)

    def close(self) -> None:
        """End the process."""
        os.close(self._requests)
        self._reader.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Ran(NamedTuple):
    """Tests that were run with a change."""

    ended: bool
    """Whether they ended in time."""
    seconds: Mapping[str, float]
    """By test, those that came to an end."""
    failing: str
    """The test that failed, or nothing."""


def try_change(tree: Path, suite: Suite, number: int, place: Place, recorded: Recorded, bound_s: float) -> Trial:
    """Run the tests that reach a place with its change, up to `bound_s` seconds of tests, until one fails."""
    reaching: Iterable[str] = recorded.reaching.get(number, ())
    if not reaching and not place.qualname:
        reaching = mirrors(place.module, recorded.seconds)
    left = in_order(place.module, reaching, recorded.seconds)
    count, tried, seconds = len(left), 0, 0.0
    for most, most_s in (*BATCHES, (count, bound_s)):
        batch = _take(left, most, min(most_s, bound_s - seconds), recorded.seconds)
        while batch:
            with _suite(tree, suite, number, place, batch) as switched:
                ran = switched.run(number, batch, recorded.seconds)
            tried, seconds = tried + len(ran.seconds), seconds + sum(ran.seconds.values())
            by = ran.failing or next((test for test in batch if test not in ran.seconds), "")
            if not by:
                break
            if by == COLLECTION or _passes(suite, by, recorded.seconds):
                return Trial("found" if ran.ended else "hangs", by, round(seconds, 2), count, tried)
            batch = batch[batch.index(by) + 1 :]
    if not count:
        return Trial("unreached", "", 0.0, 0, 0)
    return Trial("unfinished" if left else "survives", "", round(seconds, 2), count, tried)


def _passes(suite: Suite, test: str, seconds: Mapping[str, float]) -> bool:
    """Whether a test passes without any change, here and now."""
    ran = suite.run(0, [test], seconds)
    return test in ran.seconds and not ran.failing


@contextlib.contextmanager
def _suite(tree: Path, suite: Suite, number: int, place: Place, tests: Sequence[str]) -> Iterator[Suite]:
    """The suite that a change is tried in: its own, if it acts when the module is imported."""
    if not place.imported:
        yield suite
        return
    own = Suite(tree, tests, number)
    try:
        yield own
    finally:
        own.close()


def _take(left: list[str], most: int, most_s: float, seconds: Mapping[str, float]) -> list[str]:
    """Move the first tests that fit in the seconds, at most `most`, out of those that are left; file by file."""
    batch: list[str] = []
    for test in left[:most]:
        if (most_s := most_s - seconds[test]) < 0:
            break
        batch.append(test)
    del left[: len(batch)]
    files = list(dict.fromkeys(test.partition("::")[0] for test in batch))
    return sorted(batch, key=lambda test: files.index(test.partition("::")[0]))


def _pytest(tree: Path, arguments: Sequence[str]) -> list[str]:
    python = str(tree / ".venv" / "bin" / "python")
    return ["nice", python, "-m", "pytest", "-q", "-p", "dragoman_power", "-p", "no:cacheprovider", *arguments]


def _environment(**more: str) -> dict[str, str]:
    """The environment of the tests. Bytecode is written, or each process would compile some 450 modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | more


def planted(tree: Path) -> list[tuple[str, bool, float]]:
    """The bugs that the simulation plants: name, whether it finds them, and in how many seconds."""
    rows = map(json.loads, (tree / ".power" / "results").read_text("utf-8").splitlines())
    return [
        (test.removeprefix(PLANTED).removesuffix("]"), not failures, took_s)
        for test, took_s, failures in rows
        if test.startswith(PLANTED)
    ]
