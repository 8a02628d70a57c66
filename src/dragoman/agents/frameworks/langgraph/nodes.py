"""NodeBranches: what a node of a graph tells of a run has a place that belongs to the node's execution.

Invariant: an execution of a node has the same name in every run of its task, whether or not other nodes are run again.
The name is made of the step of the graph, the node and its turn among those of that step, and of the execution of the
node around it, if it is in a subgraph. LangGraph's own id of a task is a function of these as well, but also of the id
of a checkpoint, which differs where a graph keeps no checkpoints, or was stopped before one of a subgraph was stored.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from dragoman.engine.runs.places import Branch, enter_named_branch, return_to_branch

NAMESPACE = "langgraph_checkpoint_ns"
"""The key of LangChain's metadata that has the executions around some code, each by node and id, the innermost last."""


class NodeBranches(BaseCallbackHandler):  # type: ignore[misc]  # LangChain is not installed where types are checked
    """Lets each execution of a node be a branch of the run, also in threads.

    It is called in the asyncio task, or the thread, in which the node is executed. `first_step` is the number of the
    graph's first step of this task in its thread, if that is not the same in every run.
    """

    run_inline = True
    raise_error = True
    ignore_llm = ignore_chat_model = ignore_retriever = ignore_agent = ignore_retry = ignore_custom_event = True

    def __init__(self, first_step: int = 0) -> None:
        self._first_step = first_step
        self._names: dict[str, str] = {}
        """The names of the executions that have begun, by namespace."""
        self._entered: dict[UUID, tuple[str, Branch | None]] = {}
        """The namespace of each execution that goes on, and the branch in which it was begun."""

    def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        metadata: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Something begins: a node, or something within one."""
        namespace = str((metadata or {}).get(NAMESPACE) or "")
        if metadata is None or not namespace or namespace in self._names:
            return
        self._names[namespace] = name = self._name_of(namespace, metadata)
        self._entered[run_id] = namespace, enter_named_branch(name)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **more: Any) -> None:
        """It has ended."""
        self._leave(run_id)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        """It has failed, or was interrupted."""
        self._leave(run_id)

    def _leave(self, run_id: UUID) -> None:
        if (entered := self._entered.pop(run_id, None)) is not None:
            namespace, before = entered
            del self._names[namespace]
            return_to_branch(before)

    def _name_of(self, namespace: str, metadata: Mapping[str, Any]) -> str:
        around, _, inner = namespace.rpartition("|")
        between: list[str] = []
        """Segments without an id of their own, such as the turns of the subgraphs that one node calls."""
        while around and around not in self._names:
            around, _, segment = around.rpartition("|")
            between.append(segment.partition(":")[0])
        step = int(metadata.get("langgraph_step") or 0) - (0 if around else self._first_step)
        own = (self._names.get(around, ""), between, inner.partition(":")[0], step, metadata.get("langgraph_path"))
        return blake2b(repr(own).encode(), digest_size=12).hexdigest()
