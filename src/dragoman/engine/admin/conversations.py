"""Conversations: the contexts of everybody, as an operator lists them.

Invariant: it only reads, and a page costs no more for more tasks in the store. The tasks of one conversation are those
of a list with its context, its principal and its agent.
"""

from dragoman.admin.tasks import ConversationLine, ConversationLines, ConversationQuery, state_word
from dragoman.engine.admin.inspection import whose_of
from dragoman.engine.policy import page_token, read_page_token
from dragoman.model.ids import timestamp
from dragoman.store.api import ContextQuery, ContextRow, Store

SEARCHES = 5
"""How often one page asks the store for more contexts. Its cursor goes on where that stopped."""


async def list_conversations(store: Store, query: ConversationQuery) -> ConversationLines:
    """A page of conversations. Raises InvalidParams for a foreign cursor, or StoreError."""
    before = read_page_token(query.cursor) if query.cursor else None
    found: list[ContextRow] = []
    for _ in range(SEARCHES):
        page = await store.contexts(
            ContextQuery(
                owner=whose_of(query.principal, query.team),
                agent=query.agent,
                limit=query.limit - len(found),
                before=before,
            )
        )
        found += page.rows
        before = page.before
        if before is None or len(found) == query.limit:
            break
    return ConversationLines(
        conversations=tuple(map(_line, found)), next_cursor="" if before is None else page_token(*before)
    )


def _line(row: ContextRow) -> ConversationLine:
    return ConversationLine(
        context=row.id,
        agent=row.agent,
        principal=row.owner,
        state=state_word(row.state),
        status_at=timestamp(row.status_ms),
        tasks=row.tasks,
        text=row.text,
    )
