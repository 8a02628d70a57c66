"""The settings of the server, from their declarations."""

from dragoman.cli.topics.table import Section, TopicTable
from dragoman.config import Setting, settings


def make_table() -> TopicTable:
    """All settings in the order of their declaration."""
    columns = ("Setting", "Variable", "Flag", "Default", "Meaning")
    return TopicTable(columns, (Section("", tuple(map(_row, settings()))),))


def _row(setting: Setting) -> tuple[str, ...]:
    default = f"`{setting.default}`" if setting.default else "not set"
    allowed = setting.kind.allowed[0].upper() + setting.kind.allowed[1:]
    return f"`{setting.name}`", f"`{setting.env}`", f"`{setting.flag}`", default, f"{setting.help} {allowed}."
