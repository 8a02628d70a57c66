"""What a running server reports about agents.

Invariant: only two of the server's public pages are read; nothing is changed.
"""

from collections.abc import Iterable
from typing import Any

from dragoman.agents.lifecycle import Finding
from dragoman.cli.checked import SETTINGS, Subject
from dragoman.client.errors import PeerError
from dragoman.client.http import get_object
from dragoman.model.errors import A2AError
from dragoman.net.egress import Egress
from dragoman.net.errors import EgressError

ANSWER_S = 5.0


async def ask(server: str, subjects: list[Subject]) -> None:
    """Add what the server at that URL reports about the subjects to their findings."""
    base, egress = server.rstrip("/"), Egress()
    try:
        ready = await get_object(egress, f"{base}/ready", timeout_s=ANSWER_S, headers={})
        served = await get_object(egress, f"{base}/agents?limit=1000", timeout_s=ANSWER_S, headers={})
    except (EgressError, PeerError, A2AError) as error:
        fix = "give the URL on which it listens; GET /ready says why a server is not ready"
        subjects.append(Subject(SETTINGS, server, [Finding(False, f"the server cannot be asked: {error}", fix)]))
        return
    finally:
        await egress.close()
    degraded, ids = ready.get("degraded"), set(_ids(served.get("agents")))
    for subject in subjects:
        if subject.id in ids:
            why = degraded.get(subject.id) if isinstance(degraded, dict) else None
            if why:
                fix = "start one: dragoman worker" if subject.run == "worker" else "see its own log"
                subject.findings.append(Finding(False, f"{base} reports: {why}", fix))
            else:
                subject.findings.append(Finding(True, f"{base} serves it"))
        elif subject.id != SETTINGS:
            fix = "reload it (SIGHUP), or start it with this configuration"
            subject.findings.append(Finding(False, f"{base} does not serve it", fix))


def _ids(agents: Any) -> Iterable[str]:
    for agent in agents if isinstance(agents, list) else ():
        if isinstance(agent, dict) and isinstance(agent.get("id"), str):
            yield agent["id"]
