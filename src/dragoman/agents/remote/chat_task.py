"""One task over chat completions, as KAOS does when a card offers no A2A, or there is no card.

Invariant: the whole conversation goes with each message, since the other side keeps none.
"""

import logging
import time

from dragoman.agents.remote import failures
from dragoman.agents.remote.route import UpstreamWay
from dragoman.client.errors import PeerError
from dragoman.engine.api import Run
from dragoman.model.errors import A2AError
from dragoman.model.message import Role
from dragoman.model.task import TaskState
from dragoman.net.errors import EgressError

log = logging.getLogger("dragoman.upstreams")

HISTORY_MAX = 50
"""The most earlier messages of the conversation that go with one over chat completions."""


async def chatted(run: Run, way: UpstreamWay) -> str:
    """Send the message of the task over chat completions, and return the agent's answer. Raises Ended."""
    if not run.message.text:
        raise failures.ended(TaskState.REJECTED, f"{way.name} takes text only.")
    messages = [
        {"role": "user" if message.role is Role.USER else "assistant", "content": message.text}
        for message in (*await run.history(HISTORY_MAX), run.message)
        if message.text
    ]
    asked_s = time.monotonic()
    try:
        text = await way.chat(messages, run.traceparent)
    except (A2AError, PeerError, EgressError) as error:
        if isinstance(error, EgressError):
            way.failed()
            way.count("failed")
        else:
            way.answered()
            way.count("refused")
            if failures.shuts_out(error):
                way.shut_out()
        log.warning("upstream %s: task %s: %s", way.name, run.head.id, way.words(error))
        if failures.not_there(error):
            log.warning("upstream %s: there is no agent at %s: check `run`", way.name, way.place)
        raise failures.ending(way.name, error, way.again_s) from error
    way.answered()
    way.count("succeeded", time.monotonic() - asked_s)
    return text
