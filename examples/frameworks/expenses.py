"""A graph with a state, files and a question: docs/guides/langgraph-in-production.md leads it to production.

Each row takes a second, so that there is time to kill the server. It needs no model.
"""

import base64
import csv
import time
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from dragoman import current_sync_context


class State(MessagesState):
    total: float
    receipt: str


def add_up(state: State) -> dict[str, Any]:
    (file,) = current_sync_context().files
    total = 0.0
    for row in csv.DictReader(file.raw.decode().splitlines()):
        get_stream_writer()(f"Adding {row['what']}")
        total += float(row["amount"])
        time.sleep(1)
    return {"total": total}


def pay(state: State) -> dict[str, Any]:
    if interrupt(f"Pay {state['total']:.2f}?") != "yes":
        return {"receipt": "nothing paid"}
    return {"receipt": current_sync_context().step("pay", transfer, state["total"])}


def transfer(amount: float, *, step_key: str) -> str:
    return f"paid {amount:.2f}"  # ask your bank; the key is the same in every attempt


def report(state: State) -> dict[str, Any]:
    content = base64.b64encode(state["receipt"].encode()).decode()
    file = {"type": "file", "base64": content, "mime_type": "text/plain", "filename": "receipt.txt"}
    return {"messages": [AIMessage([{"type": "text", "text": "Here is the receipt."}, file])]}


nodes = StateGraph(State).add_node(add_up).add_node(pay).add_node(report)
edges = nodes.add_edge(START, "add_up").add_edge("add_up", "pay").add_edge("pay", "report")
graph = edges.compile(name="expenses")
