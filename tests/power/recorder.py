"""The switches of a rewritten tree, in every process that imports the package: one is on, or all reaches are recorded.

Invariant: a reach that was recorded survives the process, however it ends. This module is copied to `src` of the
rewritten tree as `dragoman_power`, and needs only the standard library. As a plugin of pytest it says which test runs.
"""

import json
import mmap
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

try:
    import pytest
except ModuleNotFoundError:  # a server in an environment without tests
    pytest = None  # type: ignore[assignment]

HERE = Path(__file__).parent.parent / ".power"
"""The files of the measurement, in the tree that this module was copied to."""

REACHES = HERE / "reaches"
RESULTS = HERE / "results"
TESTS = HERE / "tests"
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
"""The worker of pytest that this process belongs to: the processes that tests start inherit the variable."""

SWITCHED = int(os.environ.get("POWER_SWITCH", "0"))
"""The number of the change that is made, or 0."""

RECORDS = bool(os.environ.get("POWER_RECORD"))
SERVES = [int(text) for text in os.environ.pop("POWER_SERVE", "").split()] or None
"""The descriptors for requests and answers, if this process serves the one that tries changes."""


def _shared_number() -> memoryview:
    """The number of the test that the worker runs now: one number in a file that all its processes map."""
    path = HERE / f"current-{WORKER}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(descriptor, 4)
        return memoryview(mmap.mmap(descriptor, 4)).cast("I")
    finally:
        os.close(descriptor)


_current = _shared_number() if RECORDS else memoryview(bytearray(4)).cast("I")
_seen: set[tuple[int, int]] = set()


def on(number: int) -> bool:
    """Whether the change of this number is made. While reaches are recorded, note that the running test came by."""
    if RECORDS and (reach := (number, _current[0])) not in _seen:
        try:
            # Appended in one write, and opened each time: a process that closes its descriptors hurts nobody.
            descriptor = os.open(REACHES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, b"%d %d\n" % reach)
            finally:
                os.close(descriptor)
            _seen.add(reach)
        except OSError:
            pass  # a test that has used up the descriptors: the next reach tries again
    return number == SWITCHED


def _append(path: str | Path, row: list[object]) -> None:
    """Add a line to a file, whoever else adds to it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(row).encode() + b"\n")
    finally:
        os.close(descriptor)


if pytest is not None:
    _numbers: dict[str, int] = {}
    _results: list[str | Path] = [RESULTS]
    _DIRECTORY = ""

    def pytest_collection_finish(session: Any) -> None:
        """Number the tests. All workers collect the same ones in the same order."""
        _numbers.update({item.nodeid: number for number, item in enumerate(session.items, 1)})
        if RECORDS and _numbers:
            TESTS.write_text(json.dumps(list(_numbers)), "utf-8")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(item: Any) -> Iterator[None]:
        """Say which test is running, its fixtures included, and note how long that took."""
        _current[0] = _numbers.get(item.nodeid, 0)
        started = time.perf_counter()
        failed = item.session.testsfailed
        try:
            return (yield)
        finally:
            seconds = time.perf_counter() - started
            _current[0] = 0
            _append(_results[0], [item.nodeid, round(seconds, 3), item.session.testsfailed - failed])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(session: Any) -> bool | None:
        """Serve whoever tries changes: for each request, fork a process that runs some of the tests."""
        if SERVES is None:
            return None
        items = {item.nodeid: item for item in session.items}
        requests, answers = (os.fdopen(descriptor, mode) for descriptor, mode in zip(SERVES, "rw", strict=True))
        for descriptor in SERVES:
            os.set_inheritable(descriptor, False)
        global _DIRECTORY
        _DIRECTORY = tempfile.gettempdir()
        print("ready", file=answers, flush=True)
        for line in requests:
            number, tests, results, limit_s = json.loads(line)
            child = os.fork()
            if not child:
                os.setsid()
                _results[0] = results
                _run(session, number, [items[test] for test in tests])
            print(_wait(child, limit_s), file=answers, flush=True)
        return True

    def _run(session: Any, number: int, items: list[Any]) -> NoReturn:
        """Run tests with a change until one fails."""
        global SWITCHED
        SWITCHED, os.environ["POWER_SWITCH"] = number, str(number)
        os.environ["TMPDIR"] = str(_files(os.getpid()))
        _files(os.getpid()).mkdir(mode=0o755)  # PostgreSQL runs as another user
        tempfile.tempdir = None  # it is looked up again
        status = 1
        try:
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    break
            session._setupstate.teardown_exact(None)  # noqa: SLF001 - what pytest does at the end of its own loop
            status = 0
        finally:
            os._exit(status)

    def _files(child: int) -> Path:
        """The directory of temporary files of a process that was forked: removed also if it was killed."""
        return Path(_DIRECTORY, f"fork-{child}")

    def _wait(child: int, limit_s: float) -> str:
        """Wait for a process, and kill what is left of it: `ended`, or `late`."""
        deadline = time.monotonic() + limit_s
        while not (ended := os.waitpid(child, os.WNOHANG)[0]) and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass  # its processes have ended with it
        if not ended:
            os.waitpid(child, 0)
        shutil.rmtree(_files(child), ignore_errors=True)
        return "ended" if ended else "late"
