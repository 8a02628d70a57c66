"""A reference table: columns, and rows in sections."""

from msgspec import Struct


class Section(Struct, frozen=True):
    """Rows below a title; a table without sections has one with an empty title.

    A section with `columns` of its own sets things side by side: each cell behind the first is prose.
    """

    title: str
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...] = ()


class TopicTable(Struct, frozen=True):
    """A table. Each row has a cell for each column; the last one is prose. Sections may have their own columns."""

    columns: tuple[str, ...]
    sections: tuple[Section, ...]
