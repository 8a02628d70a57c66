"""The tests of a framework run where that framework is installed, in an environment of its own; elsewhere they are not
collected."""

from importlib.util import find_spec
from pathlib import Path

from dragoman.agents.adapters import FRAMEWORKS


def installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


KITS = frozenset(file.stem for file in (Path(__file__).parent / "kits").glob("*.py"))

MODELLED = [
    framework.module for package, framework in FRAMEWORKS.items() if installed(package) and framework.module in KITS
]
"""The installed frameworks of agents that have a model, which is what the suite for every framework scripts."""

collect_ignore = [f"test_{framework.module}.py" for package, framework in FRAMEWORKS.items() if not installed(package)]
if not MODELLED:
    collect_ignore.append("test_every_framework.py")
