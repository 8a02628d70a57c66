"""The row of gRPC: the server's processor time for calls and events, beside the official SDK's gRPC server."""

from __future__ import annotations

import json
import subprocess
import sys

import servers
from generators import Generators
from plan import Figures, Plan
from servers import HERE, LOAD_CORE, Broken, Kind, running


def over_grpc(load: Generators, kind: Kind, plan: Plan) -> Figures:
    """SendMessage, GetTask and streamed events over gRPC, at 32 callers: each in a second of the server's own time.

    The generator is the limit: gRPC costs it as much as the server.
    """
    port = servers.free_port()
    figures: Figures = {}
    with running(kind, ("--grpc-port", str(port))) as server:
        for mode, figure in (("get", "get"), ("send", "send"), ("burst", "events"), ("turns", "events_in_turns")):
            command = [sys.executable, str(HERE / "grpc_load.py"), mode, str(port), "--seconds", str(plan.seconds)]
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=lambda: servers.pin(LOAD_CORE)
            )
            assert process.stdout is not None
            process.stdout.readline()  # it has warmed up
            before = server.cpu_s()
            out, err = process.communicate(timeout=60 + plan.seconds)
            used = server.cpu_s() - before
            if process.returncode:
                raise Broken(f"grpc_load {mode}: {err[-300:].decode()}")
            said = json.loads(out.splitlines()[-1])
            figures |= {figure: said["count"] / used, f"{figure}_busy": said["busy"]}
            figures[f"{figure}_rate"] = said["count"] / said["seconds"]
    return figures
