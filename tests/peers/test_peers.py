"""Official clients, each in its own environment and process, against a real server over HTTP and gRPC.

`make peers` makes the environments. To look at one scenario: run a peer's script by hand with the server's URL and
words of its name. `DRAGOMAN_PEERS_URL` names a server that runs already; else one is started here and must, in the
end, stop cleanly.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.ports import kept_port
from tests.processes import ENDS_WITH_US

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
PEER_TIMEOUT_S = 300.0

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@dataclass(frozen=True)
class Peer:
    """An official client: how its script is run, and the lanes (binding and version) that it must have tried.

    `required` are the scenarios of each lane; None: those of every A2A client.
    """

    script: Path
    runtime: Path
    needs: Path
    lanes: tuple[str, ...]
    required: frozenset[str] | None = None


AT_A2A = " at /a2a"
BOTH_VERSIONS = (
    "JSONRPC 1.0", "HTTP+JSON 1.0", "GRPC 1.0", "JSONRPC 0.3", "HTTP+JSON 0.3", "GRPC 0.3",
    f"JSONRPC 1.0{AT_A2A}", f"JSONRPC 0.3{AT_A2A}",
)  # fmt: skip
ONLY_0_3 = ("JSONRPC", "HTTP+JSON", "GRPC", f"JSONRPC{AT_A2A}")
MODULES = HERE / "js" / "node_modules"


def _python(variable: str, environment: str) -> Path:
    return Path(os.environ.get(variable, ROOT / environment / "bin" / "python"))


SDK1, SDK03 = _python("DRAGOMAN_PEER_SDK1", ".venv-sdk1"), _python("DRAGOMAN_PEER_SDK03", ".venv-sdk03")
OPENAI = _python("DRAGOMAN_PEER_OPENAI", ".venv-openai")
FASTA2A = _python("DRAGOMAN_PEER_FASTA2A", ".venv-fasta2a")
PYTHON_A2A = _python("DRAGOMAN_PEER_PYTHON_A2A", ".venv-python-a2a")
MCP = _python("DRAGOMAN_PEER_MCP", ".venv-mcp")
MCP2 = _python("DRAGOMAN_PEER_MCP2", ".venv-mcp2")
IDPYOIDC = _python("DRAGOMAN_PEER_IDPYOIDC", ".venv-idpyoidc")
CHAT = frozenset(
    {"models", "completion", "stream", "question", "unknown_model", "failed", "failed_stream", "rejected", "history"}
)
RESPONSES = frozenset(
    {"create", "stream", "background", "question", "cancel", "delete", "items", "conversation", "files", "refusals"}
    | {"fields"}
)
OVER_OPENAI = frozenset({"completion", "stream", "question"})
TOOLS = frozenset(
    {"tools", "call", "progress", "logs", "cancel", "leave", "question", "elicitation", "declined", "files", "failed"}
    | {"schemas", "unknown_tool", "message_or_task"}
)
WITHOUT_SESSION = frozenset(
    {"tools", "call", "progress", "question", "elicitation", "declined", "files", "failed", "unknown_tool"}
)
OF_FASTA2A = frozenset(
    {"send_and_get", "blocking", "answered_at_once", "context", "stream", "question", "question_ends_stream"}
    | {"files_and_data", "failure", "unknown_task", "invalid_params", "message_or_task"}
)
OF_PYTHON_A2A = frozenset(
    {"card", "ask", "send_message", "other_format", "function_call", "task_send_and_get", "session", "question"}
    | {"question_as_message", "cancel", "failure", "unknown_task", "stream_response", "streaming_client"}
    | {"stream_question", "stream_failure", "stream_task", "send_subscribe_question", "resubscribe", "bare_message"}
    | {"conversation", "message_or_task", "data"}
)
MOUNTS = ("agents", "root")
NODE = Path(shutil.which("node") or "node")

PEERS = {
    "python-1": Peer(HERE / "sdk1.py", SDK1, SDK1, BOTH_VERSIONS),
    "python-0.3": Peer(HERE / "sdk03.py", SDK03, SDK03, ONLY_0_3),
    "openai": Peer(HERE / "openai_client.py", OPENAI, OPENAI, ("chat",), CHAT),
    "responses": Peer(HERE / "responses_client.py", OPENAI, OPENAI, ("responses",), RESPONSES),
    "openai-agents": Peer(HERE / "openai_agents_client.py", OPENAI, OPENAI, ("chat", "responses"), OVER_OPENAI),
    "langchain": Peer(HERE / "langchain_client.py", OPENAI, OPENAI, ("chat", "responses"), OVER_OPENAI),
    "fasta2a": Peer(HERE / "fasta2a_client.py", FASTA2A, FASTA2A, MOUNTS, OF_FASTA2A),
    "python-a2a": Peer(HERE / "python_a2a_client.py", PYTHON_A2A, PYTHON_A2A, MOUNTS, OF_PYTHON_A2A),
    "mcp": Peer(HERE / "mcp_client.py", MCP, MCP, ("mcp",), TOOLS),
    "mcp-2": Peer(HERE / "mcp2_client.py", MCP2, MCP2, ("mcp",), WITHOUT_SESSION),
    "js-openai": Peer(HERE / "js" / "openai.mjs", NODE, MODULES / "openai", ("chat", "responses"), OVER_OPENAI),
    "js-1": Peer(HERE / "js" / "sdk1.mjs", NODE, MODULES / "a2a-js-1", BOTH_VERSIONS),
    "js-0.3": Peer(HERE / "js" / "sdk03.mjs", NODE, MODULES / "a2a-js-0.3", ONLY_0_3),
}

# The scenarios of every A2A peer in every lane; a script that lost one of them must not pass.
REQUIRED = {
    "sendblocking", "sendnotblocking", "stream", "gethistory", "cancel", "resubscribe", "inputrequired",
    "fileroundtrip", "unknowntask", "terminaltask", "webhooks",
}  # fmt: skip
# The same at /a2a, where only the default agent is.
REQUIRED_AT_A2A = {
    "mountcard", "sendblocking", "sendkeepscontext", "gethistory", "endedtask", "unknowntask", "webhooks",
}  # fmt: skip


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _await_health(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    for _ in range(int(START_TIMEOUT_S / 0.1)):
        if _healthy(url):
            return
        try:
            code = server.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"the server ended with {code} before it was healthy:\n{log.read_text()}")
    pytest.fail(f"the server was not healthy after {START_TIMEOUT_S:.0f} s:\n{log.read_text()}")


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The root of a server with the example agents, and `guide.py`."""
    if "DRAGOMAN_PEERS_URL" in os.environ:
        yield os.environ["DRAGOMAN_PEERS_URL"]
        return
    port, grpc_port = kept_port(), kept_port()
    url, log = f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("server") / "log"
    dragoman = Path(sys.executable).with_name("dragoman")
    command = [
        *ENDS_WITH_US,
        dragoman,
        "serve",
        "examples/agents.py",
        "tests/peers/guide.py",
        "--port",
        str(port),
        "--store",
        "memory:",
    ]
    command += ["--push-allowed-hosts", "127.0.0.1", "--grpc-port", str(grpc_port)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        _await_health(server, url, log)
        yield url
        server.send_signal(signal.SIGTERM)
        assert server.wait(STOP_TIMEOUT_S) == 0, f"the server did not end cleanly:\n{log.read_text()}"
        assert "Exception in ASGI application" not in log.read_text(), log.read_text()
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


@dataclass(frozen=True)
class Run:
    """A peer's process, its lines and its complaints."""

    process: subprocess.Popen[bytes]
    lines: Path
    errors: Path


@pytest.fixture(scope="module")
def runs(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Every peer whose environment is there, all started at once."""
    folder = tmp_path_factory.mktemp("peers")
    started: dict[str, Run] = {}
    try:
        for name, peer in PEERS.items():
            if not peer.needs.exists():
                continue
            lines, errors = folder / f"{name}.jsonl", folder / f"{name}.err"
            with lines.open("wb") as stdout, errors.open("wb") as stderr:
                process = subprocess.Popen(
                    [*ENDS_WITH_US, peer.runtime, peer.script, server_url], stdout=stdout, stderr=stderr
                )
            started[name] = Run(process, lines, errors)
        yield started
    finally:
        for run in started.values():
            if run.process.poll() is None:
                run.process.kill()
            run.process.wait()


@pytest.mark.parametrize("name", PEERS)
def test_official_client_gets_what_the_specification_promises(
    name: str, runs: dict[str, Run], subtests: pytest.Subtests
) -> None:
    peer = PEERS[name]
    assert name in runs, f"{peer.needs} is missing: run `make peers`"
    run = runs[name]
    code = run.process.wait(PEER_TIMEOUT_S)
    outcomes: list[dict[str, Any]] = [json.loads(line) for line in run.lines.read_text().splitlines()]
    for outcome in outcomes:
        with subtests.test(outcome["scenario"]):
            assert outcome["ok"], outcome["detail"]
    assert outcomes, f"{peer.script.name} reported nothing:\n{run.errors.read_text()}"
    done = {outcome["scenario"].replace("_", "").lower() for outcome in outcomes}
    required = {name.replace("_", "") for name in peer.required} if peer.required is not None else REQUIRED
    wanted = {lane: REQUIRED_AT_A2A if lane.endswith(AT_A2A) else required for lane in peer.lanes}
    missing = {f"{lane}/{scenario}".lower() for lane, names in wanted.items() for scenario in names} - done
    assert not missing, f"{peer.script.name} left out {sorted(missing)}:\n{run.errors.read_text()}"
    assert (code == 0) == all(outcome["ok"] for outcome in outcomes), f"exit code {code}:\n{run.errors.read_text()}"
