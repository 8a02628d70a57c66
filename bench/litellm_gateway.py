"""The row of another gateway: messages a second through Dragoman's hop, to those through LiteLLM's, in one run.

All call the same agent, bench/peer.c on the load's core, and all ask who is calling: LiteLLM has its master key, since
others need a database. It passes calls on and keeps nothing. Dragoman writes each task to the disk before it answers.
"""

from __future__ import annotations

import json
import statistics
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from gateway import BUDGET, POOL, TEAM, Place, placed
from generators import Generators, message, rpc
from plan import QUESTION, Figures, Plan
from servers import HERE, Broken, Kind, Server, running
from upstream import CONFIG as SINGLE
from upstream import PEER

PROGRAM = HERE.parent / ".venv-litellm/bin/litellm"
LITELLM_PEER = "/a2a/peer"
STARTS_S = 120
SENDS, LITELLM_SENDS = 1_500, 150
"""About a second of each. LiteLLM's first sends load more of its code, and count as little as ours."""
KEY = "sk-bench-4c1d0f6a8e2b4d5f9a7c3e1b0d8f6a24"

LITELLM = Kind(
    "litellm",
    "LiteLLM",
    (str(PROGRAM), "--config", "{dir}/litellm.yaml", "--host", "127.0.0.1", "--port", "{port}", "--telemetry", "False"),
    # Without the first it asks the network for the prices of models, without the second it logs each call.
    (("LITELLM_LOCAL_MODEL_COST_MAP", "True"), ("LITELLM_LOG", "ERROR"), ("LITELLM_MASTER_KEY", KEY)),
    card="/health/liveliness",
)


def beside_litellm(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """Rates at 32 connections, in turn, each of ours between two of LiteLLM's: through a single upstream (`hop`), and
    through a pool of two, by a key of a team with a budget and a price (`teams`).

    `…_cpu` is the same for the servers' processor time.
    """
    if not PROGRAM.exists():
        raise Broken(f"there is no {PROGRAM}: run make .venv-litellm/.ready")
    body = rpc("SendMessage", message(QUESTION))
    with load.peering() as first, load.peering() as second, ExitStack() as stack:
        plain = Place(kind, SINGLE.format(port=first))
        pool = POOL.format(first, second, strategy="round_robin", timeout_s=5)
        whole = Place(kind, pool + BUDGET.format(team=TEAM, agent="peer"), TEAM)

        def configure(directory: Path) -> None:
            card = {"name": "peer", "url": f"http://127.0.0.1:{first}/", "protocolVersion": "1.0"}
            agents = [{"agent_name": "peer", "agent_card_params": card}]
            (directory / "litellm.yaml").write_text(json.dumps({"model_list": [], "agents": agents}))  # which is YAML

        theirs = stack.enter_context(running(LITELLM, prepare=configure, timeout_s=STARTS_S))
        ours = {
            "hop": (stack.enter_context(placed(kind, plain)), plain),
            "teams": (stack.enter_context(placed(replace(kind, name=f"{kind.name}-teams"), whole)), whole),
        }

        def spent(server: Server, path: str, header: str, sends: int = SENDS) -> tuple[float, float]:
            """How many a second, and how many in a second of the server's processor time."""
            before, began = server.cpu_s(), time.monotonic()
            options = ("--requests", str(sends), "--seconds", "60", "--warmup", "0", "--header", header)
            measured = load.loop(server.port, path, body, *options)
            if measured.finished < sends:
                raise Broken(f"{server.kind.name}: {measured.finished} of {sends} sends came to their end")
            return sends / (time.monotonic() - began), sends / (server.cpu_s() - before)

        def other() -> tuple[float, float]:
            return spent(theirs, LITELLM_PEER, f"Authorization: Bearer {KEY}", LITELLM_SENDS)

        found: dict[str, list[float]] = {}
        for each in (other, *(lambda one=one: spent(one[0], PEER, one[1].header) for one in ours.values())):
            each()
        last = other()
        for _ in range(max(2, round(plan.seconds))):
            before, mine = last, {name: spent(server, PEER, place.header) for name, (server, place) in ours.items()}
            last = other()
            found.setdefault("litellm_per_s", []).append(last[0])
            for name, rates in mine.items():
                for figure, rate, old, new in zip((name, f"{name}_cpu"), rates, before, last, strict=True):
                    found.setdefault(figure, []).append(2 * rate / (old + new))
                found.setdefault(f"{name}_per_s", []).append(rates[0])
        return {figure: statistics.median(values) for figure, values in found.items()}
