"""The environment variables of other systems that a server reads under their profile, from the profiles."""

from dragoman.cli.topics.table import Section, TopicTable
from dragoman.dialects.registry import PROFILES, load_profile
from dragoman.dialects.system import Variable


def make_table() -> TopicTable:
    """Each variable with its profile and its setting."""
    rows = [
        (f"`{name}`", f"`{variable}`", _meaning(means))
        for name in PROFILES
        for variable, means in load_profile(name).variables.items()
    ]
    return TopicTable(("Profile", "Variable", "Setting"), (Section("", tuple(rows)),))


def _meaning(means: Variable) -> str:
    values = ", ".join(f"`{value}` is {ours}" for value, ours in (means.values or {}).items())
    return f"`{means.setting}`{values and f': {values}'}"
