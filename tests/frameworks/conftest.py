"""The tests of a framework run where that framework is installed, in an environment of its own; elsewhere they are not
collected."""

from importlib.util import find_spec

from dragoman.agents.frameworks import FRAMEWORKS


def installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


collect_ignore = [f"test_{framework.module}.py" for package, framework in FRAMEWORKS.items() if not installed(package)]
if len(collect_ignore) == len(FRAMEWORKS):
    collect_ignore.append("test_every_framework.py")
