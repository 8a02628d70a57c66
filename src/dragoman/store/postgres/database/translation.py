"""Translates the errors of asyncpg into those of the store: the only door for them.

Invariant: an error of a write becomes a StoreError only if PostgreSQL has said that nothing was written. Otherwise it
is OutcomeUnknown.
"""

import asyncpg
from asyncpg.exceptions import (
    AdminShutdownError,
    CannotConnectNowError,
    CrashShutdownError,
    DiskFullError,
    InsufficientPrivilegeError,
    OutOfMemoryError,
    PostgresConnectionError,
    QueryCanceledError,
    ReadOnlySQLTransactionError,
    TargetServerAttributeNotMatched,
    TooManyConnectionsError,
)

from dragoman.store.api import OutcomeUnknown, StoreError, StoreFull, StoreReadOnly, StoreStandby, StoreUnreachable

ENDINGS = (AdminShutdownError, CrashShutdownError, CannotConnectNowError, PostgresConnectionError)
"""The server says that it ends the connection. It may have committed before."""

LOST = (*ENDINGS, asyncpg.InterfaceError, ConnectionError)
"""The connection is gone. Another one may work."""

FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""The errors of asyncpg for a fault of the server or of the network. asyncpg 0.32 raises `InternalClientError` (cannot
switch to state) if the server ends the session between two requests."""


def translate(error: Exception, shown: str) -> StoreError:
    """The store's error for one of FAILURES, where nothing was written. `shown` is the address for its message."""
    match error:
        case TargetServerAttributeNotMatched():
            return StoreStandby(f"no server of {shown} is a primary now: promote one, or name it in the url")
        case DiskFullError():
            return StoreFull(f"the disk of PostgreSQL at {shown} is full: free some space")
        case ReadOnlySQLTransactionError():
            return StoreStandby(f"PostgreSQL at {shown} takes no writes now: name its primary in the url")
        case InsufficientPrivilegeError():
            return StoreReadOnly(f"PostgreSQL at {shown}: {error}: grant it to the user of the url")
        case TooManyConnectionsError():
            return StoreUnreachable(
                f"PostgreSQL at {shown} has no connection left: raise max_connections, or lower pool_size in the url"
            )
        case asyncpg.PostgresError() if "statement pooling" in str(error):  # PgBouncer's words
            return StoreError(f"the proxy at {shown} pools statements: set its pool_mode to transaction or session")
        case OutOfMemoryError() | QueryCanceledError():
            return StoreError(f"PostgreSQL at {shown}: {error}")
        case asyncpg.PostgresError() if not isinstance(error, ENDINGS):
            return StoreError(f"PostgreSQL at {shown}: {error.sqlstate}: {error}")
    return StoreUnreachable(f"PostgreSQL at {shown} does not answer: {_said(error)}")


def translate_write(error: Exception, shown: str) -> StoreError | OutcomeUnknown:
    """As `translate`, for an error of a statement that commits."""
    if isinstance(error, asyncpg.PostgresError) and not isinstance(error, ENDINGS):
        return translate(error, shown)
    return OutcomeUnknown(f"PostgreSQL at {shown} did not say whether it has committed: {_said(error)}")


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
