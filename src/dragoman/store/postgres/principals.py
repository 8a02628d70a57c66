"""The scopes of principals that are deleted, in the database.

Invariant: the process that deletes a scope does not remember it; others are told to forget theirs.
"""

from functools import partial

from dragoman.store.postgres.statements import PostgresStatements
from dragoman.store.postgres.submission import Submission
from dragoman.store.sql.statements import repeated


class DatabaseScopes:
    """The ScopeRows protocol."""

    def __init__(self, statements: PostgresStatements, submission: Submission) -> None:
        self._statements = statements
        self._submission = submission

    async def drop_scopes(self, owner: str) -> int:
        """As the protocol says, with the counters of all replicas."""
        dropped = 0
        for name in ("forget_counts", "forget_counted_contexts", "forget_scopes"):
            dropped += await repeated(partial(self._statements.write, (name, owner)))
        self.forget_scopes()
        return dropped

    def forget_scopes(self) -> None:
        """As the protocol says."""
        self._submission.forget_scopes()
