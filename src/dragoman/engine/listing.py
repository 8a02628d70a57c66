"""Listing: the pages of ListTasks (A2A 1.0 §3.1.4).

Invariant: a page holds only tasks of its caller with the agent that was asked.
"""

from dragoman.engine import policy
from dragoman.model.errors import InvalidParams
from dragoman.model.lifecycle import fold
from dragoman.model.operations import Call, ListTasks, TaskPage
from dragoman.store.api import ListQuery, Store


async def page(store: Store, call: Call, listing: ListTasks, max_bytes: int) -> TaskPage:
    """Return the page that `listing` asks for, shorter if its tasks are large. Raises InvalidParams or StoreError."""
    if listing.offset > policy.LIST_OFFSET_MAX:
        raise InvalidParams("offset", f"at most {policy.LIST_OFFSET_MAX}: page by token, or narrow the filters")
    query = ListQuery(
        owner=call.principal.id,
        agent=call.agent,
        context_id=listing.context_id,
        state=listing.state,
        status_after_ms=listing.status_after_ms,
        limit=listing.page_size,
        before=policy.read_page_token(listing.page_token) if listing.page_token else None,
        offset=listing.offset,
        artifacts=listing.include_artifacts,
        history=listing.history_length,
        max_bytes=max_bytes,
    )
    listed = await store.list(query)
    last = listed.tasks[-1] if listed.more and listed.tasks else None
    return TaskPage(
        records=tuple(fold(stored.head, stored.snapshot, stored.events) for stored in listed.tasks),
        next_page_token=policy.page_token(last.status_ms, last.head.id) if last is not None else "",
        page_size=listing.page_size,
        total_size=listed.total,
        cut=listed.more and len(listed.tasks) < listing.page_size,
    )
