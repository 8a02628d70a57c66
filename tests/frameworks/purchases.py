"""A graph whose nodes buy things in steps, for a server that is killed. Each purchase is a line of the ledger."""

import asyncio
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from dragoman import current_context, current_sync_context
from tests.frameworks.errands import write

PAUSE_S = 0.03
"""How long a purchase takes."""


async def buy(task: str, what: str) -> str:
    """Buy something: it is bought from here on, and known once the step is recorded."""
    write(f"{task} buys {what}")
    await asyncio.sleep(PAUSE_S)
    return what


async def buy_in_step(state: MessagesState, what: str) -> dict[str, Any]:
    """Buy something in a step."""
    task = str(state["messages"][0].content)
    bought = await current_context().step("buy", buy, task, what)
    write(f"{task} has {what}")
    await asyncio.sleep(PAUSE_S)
    return {"messages": [AIMessage(bought)]}


async def buy_tea(state: MessagesState) -> dict[str, Any]:
    """The first node."""
    return await buy_in_step(state, "tea")


async def buy_milk(state: MessagesState) -> dict[str, Any]:
    """A node beside another one."""
    return await buy_in_step(state, "milk")


def buy_rum(state: MessagesState) -> dict[str, Any]:
    """The other one, a plain function."""
    task = str(state["messages"][0].content)
    current_sync_context().step("buy", buy, task, "rum")
    write(f"{task} has rum")
    return {}


async def ask(state: MessagesState) -> dict[str, Any]:
    """A node that buys, asks and buys."""
    await buy_in_step(state, "cake")
    interrupt("Go on?")
    return await buy_in_step(state, "thanks")


builder = StateGraph(MessagesState).add_node("tea", buy_tea).add_node("milk", buy_milk).add_node("rum", buy_rum)
builder.add_node("ask", ask).add_edge(START, "tea").add_edge("tea", "milk").add_edge("tea", "rum")
builder.add_edge(["milk", "rum"], "ask")
graph = builder.compile()
