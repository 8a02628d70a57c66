"""The store in PostgreSQL, which any number of replicas share: a pool of connections, and rows that decide."""

from dragoman.store.postgres.replicas import DatabaseClock
from dragoman.store.postgres.store import PostgresStore

__all__ = ["DatabaseClock", "PostgresStore"]
