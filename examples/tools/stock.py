#!/usr/bin/env python3
"""An MCP server over standard input and output: what a shop has in stock, and orders. It needs no package."""

import json
import sys
from collections.abc import Callable
from typing import Any

STOCK = {"lamp": 12, "chair": 3}

AMOUNT = {"type": "integer", "minimum": 1}
ITEM = {"type": "string", "enum": sorted(STOCK)}


def count(item: str) -> str:
    """Say how many of an item are in stock."""
    return f"{STOCK[item]} in stock"


def order(item: str, amount: int) -> str:
    """Order an item. Raises ValueError if there are not enough of it."""
    if amount > STOCK[item]:
        raise ValueError(f"only {STOCK[item]} in stock")
    STOCK[item] -= amount
    return f"ordered {amount} x {item}"


TOOLS: dict[str, tuple[Callable[..., str], dict[str, Any], dict[str, Any]]] = {
    "count": (count, {"item": ITEM}, {"readOnlyHint": True}),
    "order": (order, {"item": ITEM, "amount": AMOUNT}, {"destructiveHint": True}),
}


def listed() -> list[dict[str, Any]]:
    """The tools as MCP describes them."""
    return [
        {
            "name": name,
            "description": function.__doc__,
            "inputSchema": {"type": "object", "properties": properties, "required": [*properties]},
            "annotations": hints,
        }
        for name, (function, properties, hints) in TOOLS.items()
    ]


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a call of a tool. A tool that fails says why, so that the model can correct itself."""
    try:
        text, failed = TOOLS[name][0](**arguments), False
    except (KeyError, TypeError, ValueError) as error:
        text, failed = str(error), True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request, None for a method that is not known."""
    match method:
        case "initialize":
            about = {"name": "stock", "version": "1.0.0"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
        case "ping":
            return {}
        case "tools/list":
            return {"tools": listed()}
        case "tools/call":
            return called(params["name"], params.get("arguments", {}))
    return None


def main() -> None:
    """Answer the requests on standard input, one on each line, until it ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue  # a notification
        result = answer(request["method"], request.get("params", {}))
        end = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **end}), flush=True)


if __name__ == "__main__":
    main()
