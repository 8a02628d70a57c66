"""The directory of temporary files while the tests run: in memory, where the machine has enough of it.

Invariant: a run leaves nothing behind in memory unless a test failed, and the next run removes what an earlier one
left. A `TMPDIR` of the caller's own is respected.

Tests make and delete many thousand small files, and each PostgreSQL begins with a thousand: on a disk that takes ten
times the processor time. No test loses the power of its machine, so none needs a disk.
"""

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")

PREFIX = "dragoman-tests-"

ENOUGH_BYTES = 2 * 1024**3
"""All tests together write half a gigabyte, and each of three PostgreSQL servers a hundred megabytes."""


def use_memory() -> Path | None:
    """Let this process and those it starts put temporary files in memory. Returns the directory, which is the caller's
    to remove, or None if they stay where they were."""
    if "TMPDIR" in os.environ or not _fit():
        return None
    for left in MEMORY.glob(f"{PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(PREFIX)).exists():
            shutil.rmtree(left, ignore_errors=True)
    directory = MEMORY / f"{PREFIX}{os.getpid()}"
    directory.mkdir(mode=0o755)  # PostgreSQL runs as another user
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None  # it is looked up again
    return directory


def _fit() -> bool:
    """Whether files in memory can be made, can be run, and have room."""
    if not (os.access(MEMORY, os.W_OK) and Path("/proc/self").exists()):
        return False
    about = os.statvfs(MEMORY)
    return not about.f_flag & os.ST_NOEXEC and about.f_bavail * about.f_frsize >= ENOUGH_BYTES
