"""Search: one question over tasks, conversations, agents and keys.

Invariant: it only reads. It looks at a bounded number of the newest tasks; older ones are found where an index knows
the words, as a task's id or as a context.
"""

from dragoman.admin.search import FoundAgent, FoundConversation, FoundKey, SearchQuery, SearchResults
from dragoman.admin.tasks import TaskLine
from dragoman.engine.admin.inspection import Inspector
from dragoman.engine.admin.overview import ServerFacts
from dragoman.model.errors import InvalidParams, TaskNotFound
from dragoman.store.api import ListQuery, Owners, Store, TaskSearch
from dragoman.store.keyring import key_state


async def search_all(store: Store, inspector: Inspector, facts: ServerFacts, query: SearchQuery) -> SearchResults:
    """What fits the words of a query. Raises InvalidParams if it has none, or StoreError."""
    words, now_ms = query.q.strip(), store.clock.now_ms()
    if not words:
        raise InvalidParams("q", "must have a character that is not a space")
    folded = words.casefold()
    tasks: dict[str, TaskLine] = {}
    try:
        tasks[words] = (await inspector.show(words)).task
    except TaskNotFound:
        pass
    of_context = await store.list_rows(ListQuery(owner=Owners.ALL, agent=None, context_id=words, limit=query.limit))
    page = await store.search(TaskSearch(owner=Owners.ALL, agent=None, anywhere=words, limit=query.limit))
    for row in (*page.rows, *of_context.rows):
        tasks.setdefault(row.head.id, inspector.line(row, now_ms))
    found = tuple(tasks.values())[: query.limit]
    conversations = {(task.context, task.agent, task.principal): None for task in found if words in task.context}
    keys = [key for key in await store.keys.all() if folded in key.name.casefold() or key.id == words]
    agents = [agent for agent in facts.agents() if folded in agent.id.casefold() or folded in agent.name.casefold()]
    return SearchResults(
        tasks=found,
        conversations=tuple(
            FoundConversation(context=context, agent=agent, principal=principal)
            for context, agent, principal in tuple(conversations)[: query.limit]
        ),
        agents=tuple(FoundAgent(id=agent.id, name=agent.name) for agent in agents[: query.limit]),
        keys=tuple(
            FoundKey(id=key.id, name=key.name, state=key_state(key, now_ms)) for key in reversed(keys[-query.limit :])
        ),
        more=page.after is not None or len(tasks) > len(found),
    )
