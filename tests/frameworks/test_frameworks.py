"""Every framework's tests pass in that framework's environment.

`make test-frameworks` makes the environments; FRAMEWORKS names those that have to be there.
"""

import os
import subprocess
from pathlib import Path

import pytest

from dragoman.agents.adapters import FRAMEWORKS
from tests.frameworks.conftest import KITS
from tests.postgres import binaries

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

LIMIT_S = 1200.0

NAMED = os.environ.get("FRAMEWORKS", "").split()

EARLIER = {"a2a-sdk03": "a2a-sdk"}
"""The environments of earlier releases, with the name of the framework whose tests they pass, too."""

NAMES = sorted([*(framework.module.replace("_", "-") for framework in FRAMEWORKS.values()), *EARLIER])


@pytest.mark.peer
@pytest.mark.parametrize("name", NAMES)
def test_the_adapter_works_with_the_real_package(name: str) -> None:
    if NAMED and name not in NAMED:
        pytest.skip("not among FRAMEWORKS")
    module = EARLIER.get(name, name).replace("-", "_")
    tests = sorted(HERE.glob(f"test_{module}*.py"))
    if module in KITS:
        tests.append(HERE / "test_every_framework.py")
    environment = ROOT / f".venv-fw-{name}"
    if not NAMED and not (environment / ".ready").exists():
        pytest.skip(f"no environment .venv-fw-{name}: make test-frameworks FRAMEWORKS={name}")
    assert (environment / ".ready").exists(), f"{environment.name} could not be installed: see above what make says"
    command = [
        str(environment / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *WARNINGS,
        *map(str, tests),
    ]
    environ = {**os.environ, "TEST_POSTGRES": str(binaries())}  # which the environments do not have
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-4000:]


WARNINGS = ("-W", "default", "-W", "error:coroutine:RuntimeWarning")
"""Warnings of frameworks are theirs; a coroutine that nobody awaits is ours."""
