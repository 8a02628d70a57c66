"""Makes a store as a version of Dragoman leaves it, and notes what that version answers about it.

`python -m tests.store.releases.make COMMIT` checks the commit out into a temporary folder, installs what it locks,
serves `agents.py`, has callers of all its dialects make tasks of every kind, and writes two files beside this one. They
are named after the version of the tables: `v07.db.gz`, the store, and `v07.json`, requests with their answers.

The stores that are here are of the last commit before each change of the tables, and of 0.1.0 (version 7). Versions 2
and 3 are missing: they existed for an hour, with tables that 4 changed without a step. `unfinished.py` makes stores of
servers that were killed at work.
"""

import base64
import gzip
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
UV = ROOT / ".venv" / "bin" / "uv"
START_S = STATE_S = 60.0

HOOK = "http://127.0.0.1:9/hook"
"""Nobody listens at the discard port, so that the calls stay pending."""

FILE = bytes(range(256)) * 8

Json = dict[str, Any]

PASCAL = ("SendMessage", "GetTask")
SLASH = ("message/send", "tasks/get")
DIALECTS: dict[str, tuple[str, tuple[str, str], str, str | None]] = {
    "beeos": ("/desk", PASCAL, "id", "kind"),
    "kaos": ("/", PASCAL, "id", "type"),
    "evoai": ("/api/v1/a2a/desk", SLASH, "taskId", "type"),
    "protoagent": ("/a2a", SLASH, "id", None),
    "0.3": ("/agents/desk", SLASH, "id", "kind"),
    "1.0": ("/agents/desk", PASCAL, "id", None),
}
"""For each dialect the path, the methods that send and read, the name of a task's id, and how parts are tagged."""

V1 = {"A2A-Version": "1.0"}


class Caller:
    """Calls a server, and notes reads."""

    def __init__(self, url: str, key: str | None) -> None:
        self._url = url
        self._key = key
        self.reads: list[Json] = []

    def call(self, path: str, method: str, params: Json, **headers: str) -> Json:
        """The answer to a JSON-RPC call."""
        return self.post(path, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, **headers)

    def post(self, path: str, body: Json, **headers: str) -> Json:
        """The answer to a request that must succeed; empty if there is none."""
        if self._key is not None:
            headers["X-API-Key"] = self._key
        headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                told: Json = json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path} {body}: {error.code} {error.read().decode()}") from error
        return told

    def result(self, path: str, method: str, params: Json, **headers: str) -> Json:
        """The result of a call that must succeed."""
        told = self.call(path, method, params, **headers)
        if "result" not in told:
            raise SystemExit(f"{path} {method} {params}: {told}")
        result: Json = told["result"]
        return result

    def read(self, path: str, method: str, params: Json, **headers: str) -> None:
        """Note a call and its answer."""
        answer = self.call(path, method, params, **headers)
        self.reads.append({"path": path, "method": method, "params": params, "headers": headers, "answer": answer})


def main() -> None:
    """Make the store of the commit that the command names."""
    (named,) = sys.argv[1:]
    with checked_out(named, ("core",)) as (folder, dragoman, commit):
        make(folder, dragoman, commit)


@contextmanager
def checked_out(named: str, locks: Sequence[str]) -> Iterator[tuple[Path, list[str], str]]:
    """A folder with the code of a commit below `code`, the command that runs it with what it locks, and its hash."""
    command = ["git", "-C", str(ROOT), "rev-parse", named]
    commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True).stdout
        (folder / "code").mkdir()
        subprocess.run(["tar", "-x", "-C", str(folder / "code")], input=archive, check=True)
        environment = folder / "environment"
        subprocess.run([UV, "venv", "--quiet", "-p", sys.executable, environment], check=True)
        files = [word for lock in locks for word in ("-r", str(folder / "code" / "requirements" / f"{lock}.txt"))]
        subprocess.run([UV, "pip", "install", "--quiet", "-p", environment, "--require-hashes", *files], check=True)
        yield folder, [str(environment / "bin" / "python"), "-c", "from dragoman.cli import main; main()"], commit


def environment_of(folder: Path) -> dict[str, str]:
    """The variables for the code below `folder`."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    return found | {"PYTHONPATH": str(folder / "code" / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def make(folder: Path, dragoman: list[str], commit: str) -> None:
    """Make the store with the command `dragoman` of the code below `folder`."""
    source = folder / "code" / "src"
    version = max(int(step.name[:4]) for step in source.glob("dragoman/store/sqlite/migrations/*.sql"))
    webhooks, delegates = version >= 3, version >= 4
    environment = environment_of(folder)
    text = (HERE / "agents.py").read_text(encoding="utf-8")
    (folder / "agents.py").write_text(text if delegates else text.partition("\n\nlead = ")[0], encoding="utf-8")
    store = ["--store", f"sqlite:///{folder}/store.db"]
    key = None
    if webhooks:
        command = [*dragoman, "keys", "create", "ann", *store]
        shown = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
        (key,) = set(re.findall(r"dgm_[A-Za-z0-9_-]+", shown.stdout))
    allowed = ["--push-allowed-hosts", "127.0.0.1"] if webhooks else []
    serve = [*dragoman, "serve", "agents.py", "--port", "0", *store, *allowed]
    log = folder / "log"
    with log.open("w") as output:
        server = subprocess.Popen(serve, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        caller = Caller(url_of(server, log), key)
        waiting = have_tasks(caller, webhooks=webhooks, delegates=delegates)
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    finally:
        server.kill()
    file = sqlite3.connect(folder / "store.db")
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (found,) = file.execute("PRAGMA user_version").fetchone()
    pending = file.execute("SELECT count(*) FROM deliveries").fetchone()[0] if webhooks else 0
    file.close()
    assert found == version
    noted: Json = {"commit": commit[:8], "key": key, "pending": pending, "waiting": waiting, "reads": caller.reads}
    packed = gzip.compress((folder / "store.db").read_bytes(), 9, mtime=0)
    (HERE / f"v{version:02}.db.gz").write_bytes(packed)
    reads = ",\n".join(json.dumps(read, ensure_ascii=False) for read in noted.pop("reads"))
    text = json.dumps(noted)[:-1] + f', "reads": [\n{reads}\n]}}\n'
    (HERE / f"v{version:02}.json").write_text(text, encoding="utf-8")
    print(f"v{version:02}: {len(caller.reads)} reads, {pending} pending calls, {len(packed)} bytes")


def url_of(server: subprocess.Popen[bytes], log: Path) -> str:
    """The URL that the server prints."""
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s and server.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        time.sleep(0.05)
    raise SystemExit(f"the server does not start:\n{log.read_text()}")


def have_tasks(caller: Caller, *, webhooks: bool, delegates: bool) -> str:
    """Have tasks made, note what is answered about them, and return the id of the one that waits for its caller."""
    for name, (path, (send, get), identifier, tag) in DIALECTS.items():
        message = {"role": "ROLE_USER" if name == "1.0" else "user", "parts": [part(tag, f"say hello in {name}")]}
        if name in ("0.3", "1.0"):
            message["messageId"] = f"m-{name}"
        if name == "0.3":
            message["kind"] = "message"
        headers = V1 if name in ("1.0", "beeos") else {}
        sent = caller.result(path, send, {"message": message}, **headers)
        task_id = sent.get("task", sent)["id"]
        wait_until(caller, "desk", task_id, "COMPLETED")
        caller.read(path, get, {identifier: task_id}, **headers)
        caller.read("/agents/desk", "GetTask", {"id": task_id}, **V1)
    tasks = {"asks": begin(caller, "desk", "ask me"), "waits": begin(caller, "desk", "wait")}
    tasks["fails"] = begin(caller, "desk", "fail")
    tasks["rejects"] = begin(caller, "desk", "reject")
    tasks["answered"] = begin(caller, "desk", "ask me, too")
    for name, state in (("asks", "INPUT_REQUIRED"), ("waits", "WORKING"), ("fails", "FAILED"), ("rejects", "REJECTED")):
        wait_until(caller, "desk", tasks[name], state)
    wait_until(caller, "desk", tasks["answered"], "INPUT_REQUIRED")
    caller.result("/agents/desk", "CancelTask", {"id": tasks["waits"]}, **V1)
    wait_until(caller, "desk", tasks["waits"], "CANCELED")
    begin(caller, "desk", "Lyon", taskId=tasks["answered"])
    wait_until(caller, "desk", tasks["answered"], "COMPLETED")
    tasks["steps"] = begin(caller, "steps", "go")
    wait_until(caller, "steps", tasks["steps"], "COMPLETED")
    raw = {"raw": base64.b64encode(FILE).decode(), "filename": "bytes.bin", "mediaType": "application/octet-stream"}
    tasks["papers"] = begin(caller, "papers", parts=[raw, {"data": {"n": [1, None, 2.5]}}])
    wait_until(caller, "papers", tasks["papers"], "COMPLETED")
    if delegates:
        tasks["lead"] = begin(caller, "lead", "say it")
        wait_until(caller, "lead", tasks["lead"], "COMPLETED")
    if webhooks:
        hook = {"url": HOOK, "token": "t0ken", "authentication": {"scheme": "Bearer", "credentials": "cr3d"}}
        tasks["told"] = begin(caller, "desk", "ask and tell", configuration={"taskPushNotificationConfig": hook})
        wait_until(caller, "desk", tasks["told"], "INPUT_REQUIRED")
        caller.read("/agents/desk", "ListTaskPushNotificationConfigs", {"taskId": tasks["told"]}, **V1)
    for name, task_id in tasks.items():
        agent = name if name in ("steps", "papers", "lead") else "desk"
        caller.read(f"/agents/{agent}", "GetTask", {"id": task_id}, **V1)
        if name in ("asks", "fails", "papers"):
            caller.read(f"/agents/{agent}", "tasks/get", {"id": task_id})
    caller.read("/agents/desk", "ListTasks", {"historyLength": 0}, **V1)
    caller.read("/agents/steps", "ListTasks", {"includeArtifacts": True}, **V1)
    caller.read("/agents/desk", "ListTasks", {"status": "TASK_STATE_CANCELED"}, **V1)
    return tasks["asks"]


def part(tag: str | None, text: str) -> Json:
    """A text part as a dialect writes it."""
    return {"text": text} if tag is None else {tag: "text", "text": text}


def begin(caller: Caller, agent: str, text: str = "", *, parts: list[Json] | None = None, **more: Any) -> str:
    """Send a message in 1.0 without waiting; the id of its task."""
    task_id, configuration = more.get("taskId"), more.get("configuration", {})
    message: Json = {
        "role": "ROLE_USER",
        "parts": parts or [{"text": text}],
        "messageId": f"m-{agent}-{text or 'papers'}",
    }
    if task_id is not None:
        message["taskId"] = task_id
    params = {"message": message, "configuration": {"returnImmediately": True, **configuration}}
    sent = caller.result(f"/agents/{agent}", "SendMessage", params, **V1)
    return str(sent["task"]["id"])


def task_of(caller: Caller, agent: str, task_id: str) -> Json:
    """The task as it stands, in 1.0."""
    return caller.result(f"/agents/{agent}", "GetTask", {"id": task_id}, **V1)


def wait_until(caller: Caller, agent: str, task_id: str, state: str) -> None:
    """Wait until the task is in a state."""
    deadline_s = time.monotonic() + STATE_S
    while (task := task_of(caller, agent, task_id))["status"]["state"] != f"TASK_STATE_{state}":
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{task_id} does not become {state}: {task}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
