"""The worker compiles, and does what its page says."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.reader import reader
from tests.docs.test_readme import ROOT

HERE = Path(__file__).parent


@pytest.mark.slow
def test_the_worker_in_typescript_shouts(tmp_path: Path) -> None:
    """Types are checked with the compiler of the console; they are taken off, as Node 22 does, for older Nodes."""
    modules = ROOT / "console" / "node_modules"
    assert modules.exists(), f"{modules} is missing: run `make console`"
    for name in ("worker.mts", "dragoman.toml"):
        shutil.copy(HERE / name, tmp_path)
    (tmp_path / "node.d.ts").write_text(
        "declare const process: { argv: string[]; env: Record<string, string | undefined> };"
    )
    tsc = [
        str(modules / ".bin" / "tsc"),
        "--strict",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--lib",
        "es2023,dom",
    ]
    subprocess.run([*tsc, "worker.mts", "node.d.ts"], cwd=tmp_path, timeout=120, check=True)
    assert shutil.which("node") is not None, "node was not found: install Node 20 or newer"
    page = tmp_path / "page.md"
    page.write_text((HERE / "README.md").read_text(encoding="utf-8").replace("worker.mts http", "worker.mjs http"))
    with reader(tmp_path, at=tmp_path) as reading:
        reading.follow(page)
