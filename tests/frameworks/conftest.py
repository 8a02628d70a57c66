"""The tests of a framework run where that framework is installed, in an environment of its own; elsewhere they are not
collected."""

from importlib.util import find_spec

from dragoman.agents.frameworks import FRAMEWORKS


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


collect_ignore = [f"test_{framework.module}.py" for package, framework in FRAMEWORKS.items() if not _installed(package)]
