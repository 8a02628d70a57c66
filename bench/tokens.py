"""The row of models: a thousand answers at once through `openai:`, token by token, from an endpoint in C.

Endpoint and readers are one process on the load's core (bench/tokens.c): every token holds when it left.
"""

from __future__ import annotations

import json
import select
import subprocess
import time
from pathlib import Path

import servers
from generators import Generators
from plan import Figures, Plan
from servers import Broken, Kind, running

AT = "/agents/model"
STREAMS = 1_000
RATE = 50

CONFIG = """
[[agents]]
id = "model"
run = "openai:http://127.0.0.1:{port}"
model = "small"
"""


def answers(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """All answers run at once for at least the seconds of the plan; tokens are counted, and timed one by one."""
    port = servers.free_port()

    def configure(directory: Path) -> None:
        (directory / "dragoman.toml").write_text(CONFIG.format(port=port))

    # Streams are opened over four seconds: for the plan's seconds all of them are there.
    seconds = str(round(max(1.0, plan.seconds)) + 6)
    process = subprocess.Popen(
        [load.tokens, str(port), str(STREAMS), str(RATE), seconds],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        preexec_fn=lambda: servers.pin(servers.LOAD_CORE),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with running(kind, prepare=configure) as server:
            servers.await_port(port)
            before_kb = server.rss_kb()
            process.stdin.write(f"{server.port} {AT}\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], 60)[0] or process.stdout.readline() != "open\n":
                process.kill()
                raise Broken(f"not all answers began: {process.stderr.read()[:300]}")
            used_s, began = server.cpu_s(), time.monotonic()
            time.sleep(max(0.5, plan.seconds - 1))
            server_cpu = (server.cpu_s() - used_s) / (time.monotonic() - began)
            each_kb = (server.rss_kb() - before_kb) / STREAMS
            said, errors = process.communicate(timeout=120)
    finally:
        servers.end(process)
    if process.returncode or not said.strip():
        raise Broken(f"tokens: {errors[:300]}")
    seen = json.loads(said.splitlines()[-1])
    if seen["wrong"] or seen["finished"] != STREAMS:
        raise Broken(f"{seen['wrong']} tokens were wrong, {seen['finished']} of {STREAMS} answers came to their end")
    return {
        "kept": seen["got"] / seen["sent"],
        "timed": seen["timed"],
        "p50_ms": seen["p50_ms"],
        "p99_ms": seen["p99_ms"],
        "worst_ms": seen["worst_ms"],
        "tokens_per_chunk": seen["got"] / seen["chunks"],
        "each_kb": each_kb,
        "server_cpu": server_cpu,
        "busy": seen["busy"],
    }
