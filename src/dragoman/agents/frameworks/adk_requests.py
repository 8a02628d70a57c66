"""Requests of a run of Google's ADK to the user, made as calls of functions with fixed names: turns each into a
question for the caller, and the answer into the function's response.

Invariant: pure. A call is `{"name", "args"}`, plus `response` if its tool has already answered with a provisional
value.
"""

import json
from typing import Any

from dragoman.agents.frameworks.approvals import approval_of, approved
from dragoman.agents.frameworks.pauses import Question
from dragoman.agents.python.context import Answer

SPECIAL = frozenset({"adk_request_confirmation", "adk_request_credential", "adk_request_input"})
"""Function names of requests (google.adk.utils._function_call_names); other calls that wait belong to tools."""


def subject_of(call: Any) -> str | None:
    """The id of the tool call that is the reason for the request; None if there is none."""
    args = call["args"]
    match call["name"]:
        case "adk_request_confirmation":
            return str(args["originalFunctionCall"].get("id"))
        case "adk_request_credential":
            return str(args["functionCallId"])
        case _:
            return None


def question_of(call: Any) -> Question:
    """The question for the caller."""
    args = call["args"]
    match call["name"]:
        case "adk_request_confirmation":
            original, wanted = args["originalFunctionCall"], args.get("toolConfirmation", {})
            asked = approval_of(original["name"], original.get("args", {}), hint=_hint(wanted.get("hint", "")))
            payload = wanted.get("payload")
            return asked if payload is None else Question(asked.text, asked.data | {"payload": payload})
        case "adk_request_credential":
            return _sign_in(args["authConfig"])
        case "adk_request_input":
            wanted = {"payload": args.get("payload"), "schema": args.get("response_schema")}
            return Question(args.get("message") or "What should it be?", {"input": wanted})
        case name:
            shown = json.dumps(args, ensure_ascii=False)
            data = {"call": {"tool": name, "arguments": args}}
            if call.get("response") is not None:
                data["call"]["pending"] = call["response"]
            return Question(f"What does {name} give for {shown}?", data)


def answered(call: Any, answer: Answer) -> dict[str, Any]:
    """The answer as the function's response."""
    data = answer.data
    match call["name"]:
        case "adk_request_confirmation":
            confirmed = data.get("confirmed") is True if _has(data, "confirmed") else approved(answer)
            return {"confirmed": confirmed} | ({"payload": data["payload"]} if _has(data, "payload") else {})
        case "adk_request_credential":
            return _credential(call["args"]["authConfig"], answer)
        case _:
            return data if isinstance(data, dict) else {"result": str(answer) if data is None else data}


def _hint(hint: str) -> str:
    """The hint of a tool. ADK's default hint tells a program what to send; the approval's own text says it better."""
    return "" if hint.startswith("Please approve or reject the tool call") else hint


def _sign_in(config: Any) -> Question:
    scheme = config["authScheme"]
    given = (config.get("exchangedAuthCredential") or {}).get("oauth2") or {}
    if url := given.get("authUri"):
        text = f"Sign in at {url} and answer with the address that you are led to after it."
        return Question(text, {"signIn": {"url": url, "scheme": scheme}}, auth=True)
    named = scheme.get("name") or scheme.get("scheme") or scheme.get("type")
    return Question(f"Give the credential for {named}.", {"credential": {"scheme": scheme}}, auth=True)


def _credential(config: Any, answer: Answer) -> dict[str, Any]:
    """The configuration with the caller's input: a whole credential, fields of its OAuth 2 part, or just a text.

    The caller sets nothing else in it: the tool alone decides where the client's secret goes.
    """
    data = answer.data
    if _has(data, "exchangedAuthCredential"):
        return {**config, "exchangedAuthCredential": data["exchangedAuthCredential"]}
    exchanged = config.get("exchangedAuthCredential") or {}
    text = str(answer).strip()
    match config["authScheme"].get("type"):
        case "apiKey":
            given: dict[str, Any] = {"authType": "apiKey", "apiKey": text}
        case "http":
            scheme = config["authScheme"].get("scheme", "bearer")
            given = {"authType": "http", "http": {"scheme": scheme, "credentials": {"token": text}}}
        case _:
            said = data if isinstance(data, dict) else {"authResponseUri": text}
            given = exchanged | {"oauth2": (exchanged.get("oauth2") or {}) | said}
    return {**config, "exchangedAuthCredential": given}


def _has(data: Any, key: str) -> bool:
    return isinstance(data, dict) and key in data
