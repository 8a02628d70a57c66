"""A reference table: columns, and rows in sections."""

from msgspec import Struct


class Section(Struct, frozen=True):
    """Rows below a title; a table without sections has one with an empty title."""

    title: str
    rows: tuple[tuple[str, ...], ...]


class TopicTable(Struct, frozen=True):
    """A table. Each row has a cell for each column; the last one is prose."""

    columns: tuple[str, ...]
    sections: tuple[Section, ...]
