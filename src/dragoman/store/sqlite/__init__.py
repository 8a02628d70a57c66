"""The store in one SQLite file: one writer thread with group commit, readers beside it."""

from dragoman.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
