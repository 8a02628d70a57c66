"""Asks agents of other servers how their tasks stand, for an operator.

Invariant: a question changes nothing, neither there nor in the log of our task.
"""

from dragoman.admin.tasks import UpstreamAnswer, state_word
from dragoman.engine.admin.delegation_tree import states_differ
from dragoman.engine.admin.folded_places import FoldedPlaces
from dragoman.engine.admin.overview import ServerFacts
from dragoman.engine.admin.playback import find_head, find_snapshot
from dragoman.engine.upstream_notes import read_upstream_notes
from dragoman.model.errors import InvalidParams
from dragoman.model.ids import timestamp
from dragoman.model.parts import beginning


async def ask_upstream(places: FoldedPlaces, facts: ServerFacts, task_id: str) -> UpstreamAnswer:
    """Ask the upstream of a task. Raises TaskNotFound, InvalidParams if it has none here, or StoreError."""
    agent = (await find_head(places.store, task_id))[0].agent
    if all(line.agent != agent for line in facts.upstreams()):
        raise InvalidParams("id", f"agent {agent!r} is no agent of another server that is served here")
    stored = await find_snapshot(places.store, task_id)
    notes = read_upstream_notes((await places.stand(stored)).note or {})
    there = notes.task
    if not there:
        raise InvalidParams("id", "the other server has not named a task for it")
    asked_at = timestamp(places.store.clock.now_ms())
    answer = await facts.ask_upstream(agent, notes)
    if isinstance(answer, str):
        return UpstreamAnswer(id=there, agent=agent, asked_at=asked_at, failure=answer)
    return UpstreamAnswer(
        id=there,
        agent=agent,
        asked_at=asked_at,
        state=state_word(answer.state),
        status_at=answer.timestamp or None,
        text="" if answer.message is None else beginning(answer.message.parts),
        differs=states_differ(stored.state, answer.state),
    )
