"""`dragoman demo kill` beside the official SDK's server and client."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dragoman.cli.demo.counted import Counted
from dragoman.cli.demo.sdk_column import is_installed
from dragoman.cli.demo.steps import STEPS


@pytest.mark.skipif(not is_installed(), reason="the SDK's extras are not installed, or it is an earlier release")
def test_both_columns_do_the_same_work_and_are_counted(tmp_path: Path) -> None:
    command = [Path(sys.executable).parent / "dragoman", "demo", "kill", "--step", "0.3", "-o", "json"]
    ran = subprocess.run(command, cwd=tmp_path, env={**os.environ}, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    ours, theirs = msgspec.json.decode(ran.stdout, type=list[Counted])
    assert ours.whole
    assert theirs.name == "sdk"
    assert theirs.events_lost is not None
    assert theirs.events_lost < STEPS, "its caller has none of the steps that were done before the kill"
    assert theirs.state
