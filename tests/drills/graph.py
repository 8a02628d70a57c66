"""A graph of LangGraph that takes the steps of a walk, two in each node. It is served as `graph.py:graph`.

Invariant: as in `tests.drills.agents`, each execution of a step has a line in the ledger.
"""

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from dragoman import current_context
from tests.drills.agents import WALK, carry_out


class Walk(MessagesState):
    """The lot is drawn by the first node, and kept in the graph's checkpoints."""

    lot: str


def visiting(number: int) -> Any:
    """The node that takes the step `number` and the next one."""

    async def visit(state: Walk) -> dict[str, Any]:
        ctx = current_context()
        lot = state.get("lot") or str(await ctx.uuid())
        said = ""
        for each in (number, number + 1):
            done = await ctx.step(f"step {each}", carry_out, ctx.task_id, each, lot)
            said += f"{done.replace(lot, ctx.text)} "
        return {"lot": lot, "messages": [AIMessage(said)]}

    return visit


builder = StateGraph(Walk)
last = START
for first in range(1, WALK[0] + 1, 2):
    builder.add_node(f"from {first}", visiting(first))
    builder.add_edge(last, f"from {first}")
    last = f"from {first}"
graph = builder.compile()
