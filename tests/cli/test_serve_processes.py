"""`dragoman serve --processes N`: several replicas on one port."""

import subprocess
import sys
from pathlib import Path


def test_several_processes_on_a_store_of_one_server_are_refused(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "dragoman", "serve", "nothing:at_all", "--processes", "2", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr == (
        "dragoman: processes = 2 runs several replicas, and the store sqlite:///data/dragoman.db has one server only: "
        "set store = 'postgresql://user@host/database', or remove processes\n"
    )
