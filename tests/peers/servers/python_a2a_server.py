"""Server of python-a2a 0.5.10: `python python_a2a_server.py` prints its URL. Its agent gives the text back.

The process ends when its standard input does, so that none is left behind by a test run that was killed.
"""

import logging
import os
import socket
import threading
from typing import Any

from python_a2a import A2AServer, AgentCard, AgentSkill, TaskState, TaskStatus
from python_a2a.server.http import create_flask_app
from werkzeug.serving import make_server


class Agent(A2AServer):  # type: ignore[misc]  # it ships no types
    """Gives the text of a task back."""

    def handle_task(self, task: Any) -> Any:
        content = (task.message or {}).get("content") or {}
        task.artifacts = [{"parts": [{"type": "text", "text": content.get("text", "")}]}]
        task.status = TaskStatus(state=TaskState.COMPLETED)
        return task


def main() -> None:
    """Serve until the end of standard input."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(128)
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        skill = AgentSkill(name="echo", description="Gives back", tags=["test"])
        card = AgentCard(name="python-a2a", description="Gives back", url=url, version="1.0.0", skills=[skill])
        application = create_flask_app(Agent(agent_card=card))
        server = make_server(*bound.getsockname(), application, threaded=True, fd=bound.fileno())
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(url, flush=True)
        while os.read(0, 1024):
            pass


if __name__ == "__main__":
    main()
