"""A LangGraph graph behind a card: `dragoman serve examples/frameworks/langgraph_agent.py:graph`.

It needs no model: its nodes are plain functions. An interrupt asks the caller, and the answer resumes the graph.
"""

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


def book(state: MessagesState) -> dict[str, Any]:
    """Asks for the day, and books."""
    day = interrupt("For which day?")
    return {"messages": [AIMessage(f"Booked for {day}: {state['messages'][-1].text}")]}


builder = StateGraph(MessagesState)
builder.add_node("book", book)
builder.add_edge(START, "book")
builder.add_edge("book", END)

# Without a checkpointer it gets the server's: a task that waits for its day outlives the server.
graph = builder.compile(name="Booking")
