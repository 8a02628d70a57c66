"""The catalogue of planted faults: each with the one check that must name it, and words that its finding must have."""

# ruff: noqa: E501  one fault is one line

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from tests.doctor.agent import (
    NO_METHOD,
    NO_VERSION,
    NOT_FOUND,
    NOW,
    UNSUPPORTED,
    URL,
    Agent,
    Plant,
    Refusal,
    Reply,
    envelope,
    rest_error,
    stream,
)

OF_03 = ("0.3", "JSONRPC")
REST = ("1.0", "HTTP+JSON")


@dataclass(frozen=True)
class Planted:
    """A fault: how it is planted, and what must be found. `of` is the version and the binding of the agent.

    `also` are yellow findings that follow from the agent being another one, and not from the fault.
    """

    name: str
    plant: Plant
    check: str
    words: str
    fix: str = ""
    yellow: bool = False
    of: tuple[str, str] = ("1.0", "JSONRPC")
    key: str = ""
    webhooks: bool = False
    also: tuple[str, ...] = ()


# -- how faults are planted --------------------------------------------------------------------------------------------


def in_card(**changes: Any) -> Plant:
    """Change fields of the card; None takes one away."""

    def plant(agent: Agent) -> None:
        for name, value in changes.items():
            agent.card.pop(name, None)
            if value is not None:
                agent.card[name] = value

    return plant


def in_interface(**changes: Any) -> Plant:
    def plant(agent: Agent) -> None:
        given = {**agent.card["supportedInterfaces"][0], **changes}
        agent.card["supportedInterfaces"] = [{name: value for name, value in given.items() if value is not None}]

    return plant


def in_capabilities(**changes: Any) -> Plant:
    return lambda agent: agent.card["capabilities"].update(changes)


def reply(name: str, change: Callable[[Reply], Reply]) -> Plant:
    """Change whole answers: those named so, or all but the card."""

    def changed(asked: str, given: Reply) -> Reply:
        return change(given) if asked == name or (name == "*" and asked not in ("card", "preflight")) else given

    return lambda agent: agent.replies.append(changed)


def served(raw: bytes, status: int = 200, **headers: str) -> Callable[[Reply], Reply]:
    """Serve these bytes."""
    named = {name.replace("_", "-"): value for name, value in {"content_type": "application/json", **headers}.items()}
    return lambda given: Reply(raw=raw, status=status, headers=named)


def document(change: Callable[[dict[str, Any]], Any]) -> Callable[[Reply], Reply]:
    """Change the document of an answer, and each one of a stream."""

    def changed(given: Reply) -> Reply:
        if given.events is not None:
            given.events = [change(each) for each in given.events]
        elif isinstance(given.document, dict):
            given.document = change(given.document)
        return given

    return changed


def late(seconds: float) -> Callable[[Reply], Reply]:
    def changed(given: Reply) -> Reply:
        given.after_s = seconds
        return given

    return changed


def everywhere(change: Callable[[dict[str, Any]], None]) -> Plant:
    """Change each object of every result, from the inside out."""

    def changed(name: str, result: Any) -> Any:
        for each in objects(result):
            change(each)
        return result

    return lambda agent: agent.results.append(changed)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for each in value:
            yield from objects(each)
    elif isinstance(value, dict):
        for each in list(value.values()):
            yield from objects(each)
        yield value


def result(name: str, change: Callable[[Any], Any]) -> Plant:
    """Change the results of one operation; None drops an event of a stream."""
    return lambda agent: agent.results.append(lambda asked, given: change(given) if asked == name else given)


def events(change: Callable[[list[Any]], list[Any]]) -> Plant:
    """Change the events of streams."""

    def changed(given: Reply) -> Reply:
        if given.events is not None:
            given.events = change(given.events)
        return given

    return reply("SendStreamingMessage", changed)


def without(field: str, having: str) -> Plant:
    """Take a field from every object that also has another one."""
    return everywhere(lambda each: each.pop(field, None) if having in each else None)


def put(field: str, value: Any, having: str = "") -> Plant:
    """Put a field into every object that has it, or another one. A dict says what each value becomes."""

    def change(each: dict[str, Any]) -> None:
        if (having or field) in each:
            each[field] = value[each[field]] if isinstance(value, dict) else value

    return everywhere(change)


OLD_STATES = {f"TASK_STATE_{each.upper()}": each for each in ("working", "completed", "canceled")}
NEW_STATES = {old: new for new, old in OLD_STATES.items()}


def rename(was: str, now: str) -> Plant:
    return everywhere(lambda each: each.update({now: each.pop(was)}) if was in each else None)


def method(name: str, does: Callable[[Agent, dict[str, Any]], Any]) -> Plant:
    def plant(agent: Agent) -> None:
        agent.methods[name] = lambda given: does(agent, given)

    return plant


def refuses(name: str, code: int) -> Plant:
    def refuse(agent: Agent, given: dict[str, Any]) -> Any:
        raise Refusal(code)

    return method(name, refuse)


def errors(name: str, code: int) -> Plant:
    """Answer with another code where an error is answered."""

    def changed(given: Reply) -> Reply:
        if isinstance(given.document, dict) and "error" in given.document:
            given.document["error"]["code"] = code
        return given

    return reply(name, changed)


def both(*plants: Plant) -> Plant:
    def plant(agent: Agent) -> None:
        for each in plants:
            each(agent)

    return plant


def set_(**fields: Any) -> Plant:
    return lambda agent: [setattr(agent, name, value) for name, value in fields.items()] and None


def one_id(field: str, value: str) -> Plant:
    """All tasks have one id."""

    def plant(agent: Agent) -> None:
        begin = agent.begin

        def begun(given: dict[str, Any], state: str) -> dict[str, Any]:
            task = begin(given, state)
            agent.tasks.pop(task["id"])
            task[field] = value
            agent.tasks[task["id"]] = task
            return task

        agent.begin = begun  # type: ignore[method-assign]

    return plant


# -- faults of behaviour -----------------------------------------------------------------------------------------------


def _reads_another(agent: Agent, given: dict[str, Any]) -> Any:
    agent._get(given)  # noqa: SLF001
    return {**agent.tasks[given["id"]], "id": "another"}


def _says_canceled(agent: Agent, given: dict[str, Any]) -> Any:
    if (task := agent.tasks.get(given["id"])) is None:
        raise Refusal(NOT_FOUND)
    if task["status"]["state"] != "TASK_STATE_WORKING":
        raise Refusal(-32002)
    return {**task, "status": {"state": "TASK_STATE_CANCELED", "timestamp": NOW}}


def _ignores_cancel(agent: Agent, given: dict[str, Any]) -> Any:
    if (task := agent.tasks.get(given["id"])) is None:
        raise Refusal(NOT_FOUND)
    if task["status"]["state"] != "TASK_STATE_WORKING":
        raise Refusal(-32002)
    return task


def _takes_any_task(agent: Agent, given: dict[str, Any]) -> Any:
    given["message"].pop("taskId", None)
    return {"task": agent.begin(given, "TASK_STATE_COMPLETED")}


def _answers_at_once(agent: Agent, given: dict[str, Any]) -> Any:
    if given["message"].get("taskId"):
        raise Refusal(NOT_FOUND)
    task = agent.begin(given, "TASK_STATE_WORKING")
    before = json.loads(json.dumps(task))
    task["status"] = {"state": "TASK_STATE_COMPLETED", "timestamp": NOW}
    return {"task": before}


def _lists_all(agent: Agent, given: dict[str, Any]) -> Any:
    bare = [{name: value for name, value in each.items() if name != "artifacts"} for each in agent.tasks.values()]
    return agent.page(given, bare)


def _lists_artifacts(agent: Agent, given: dict[str, Any]) -> Any:
    of = given.get("contextId")
    return agent.page(given, [each for each in agent.tasks.values() if of in (None, each["contextId"])])


def _starts_late(agent: Agent, given: dict[str, Any]) -> Any:
    task = agent.tasks[given["id"]]
    if task["status"]["state"] != "TASK_STATE_WORKING":
        raise Refusal(UNSUPPORTED)
    return [{"statusUpdate": {"taskId": task["id"], "contextId": task["contextId"], "status": task["status"]}}]


def _cancels_anything(agent: Agent, given: dict[str, Any]) -> Any:
    canceled = {"state": "TASK_STATE_CANCELED", "timestamp": NOW}
    if given["id"] not in agent.tasks:
        return {"id": given["id"], "contextId": "c", "status": canceled}
    return agent._cancel(given)  # noqa: SLF001


def _cancels_again(agent: Agent, given: dict[str, Any]) -> Any:
    if (task := agent.tasks.get(given["id"])) is None:
        raise Refusal(NOT_FOUND)
    task["status"] = {"state": "TASK_STATE_CANCELED", "timestamp": NOW}
    return task


def _breaks(agent: Agent, given: dict[str, Any]) -> Any:
    raise Refusal(-32603 if given["id"] in agent.tasks else NOT_FOUND)


def _replays(agent: Agent, given: dict[str, Any]) -> Any:
    return [{"task": agent.tasks[given["id"]]}]


def _serves_one_page(agent: Agent, given: dict[str, Any]) -> Any:
    return agent._list({name: value for name, value in given.items() if name != "pageToken"})  # noqa: SLF001


def _has_no_pages(agent: Agent, given: dict[str, Any]) -> Any:
    return agent._list({name: value for name, value in given.items() if name != "pageSize"})  # noqa: SLF001


def _continues(agent: Agent, given: dict[str, Any]) -> Any:
    if (said := given["message"].pop("taskId", None)) not in (None, *agent.tasks):
        raise Refusal(NOT_FOUND)
    state = "TASK_STATE_WORKING" if given.get("configuration", {}).get("returnImmediately") else "TASK_STATE_COMPLETED"
    return {"task": agent.tasks[said] if said else agent.begin(given, state)}


def _in_a_new_context(agent: Agent, given: dict[str, Any]) -> Any:
    given["message"].pop("contextId", None)
    return agent._send(given)  # noqa: SLF001


def _reads_with_history(agent: Agent, given: dict[str, Any]) -> Any:
    agent._get(given)  # noqa: SLF001
    return agent.tasks[given["id"]]


def two_replicas(agent: Agent) -> None:
    """Every other call of a task comes to a replica that has it not."""
    calls = count()

    def read(given: dict[str, Any]) -> Any:
        if given.get("id") in agent.tasks and next(calls) % 2:
            raise Refusal(NOT_FOUND)
        return agent._get(given)  # noqa: SLF001

    agent.methods["GetTask"] = read


def _held_back(given: list[Any]) -> list[Any]:
    given[0]["result"]["task"]["status"]["timestamp"] = "2026-01-31T11:59:57Z"
    return given


def _over_lines(given: Reply) -> Reply:
    raw = b"".join(b"data: " + json.dumps(each, indent=1).encode() + b"\n\n" for each in given.events or ())
    return Reply(raw=raw, headers={"content-type": "text/event-stream"}) if given.events else given


def _takes_one_version(given: Reply) -> Reply:
    return Reply(envelope(given.document["id"], Refusal(NO_VERSION)))


def _wants_streams(given: Reply) -> Reply:
    return Reply({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Not Acceptable"}}, status=406)


def _lists_oldest_first(agent: Agent, given: dict[str, Any]) -> Any:
    page = agent._list(given)  # noqa: SLF001
    page["tasks"] = [
        {**each, "status": {**each["status"], "timestamp": f"2026-01-31T12:00:{number:02}Z"}}
        for number, each in enumerate(page["tasks"])
    ]
    return page


def _says(text: str, state: str = "TASK_STATE_COMPLETED", role: str = "ROLE_AGENT") -> Plant:
    """The first task of a message ends in this state, with these words."""

    def changed(given: Any) -> Any:
        if given["task"]["status"]["state"] == "TASK_STATE_COMPLETED":
            said = {"messageId": "m", "role": role, "parts": [{"text": text}]}
            given["task"]["status"] |= {"state": state, "message": said}
        return given

    return result("SendMessage", changed)


def _waits_for_the_end(agent: Agent) -> None:
    """It waits for the end of every task, which takes a while."""

    def send(given: dict[str, Any]) -> Any:
        given.pop("configuration", None)
        return agent._send(given)  # noqa: SLF001

    agent.methods["SendMessage"] = send
    reply("SendMessage", late(2.0))(agent)


def _breaks_without_id(agent: Agent, given: dict[str, Any]) -> Any:
    if "id" not in given:
        raise Refusal(-32603)
    return agent._get(given)  # noqa: SLF001


def _opens(given: Reply) -> Reply:
    given.open = True
    return given


def _as_json(given: Reply) -> Reply:
    return Reply(given.events[-1]) if given.events else given


def _framed_badly(given: Reply) -> Reply:
    raw = b"".join(json.dumps(each).encode() + b"\n" for each in given.events or ())
    return Reply(raw=raw, headers={"content-type": "text/event-stream"}) if given.events else given


def _not_json(given: Reply) -> Reply:
    raw = given.body.replace(b'"', b"'") if given.events else given.raw
    return Reply(raw=raw, headers={"content-type": "text/event-stream"}) if given.events else given


def _other_task(events: list[Any]) -> list[Any]:
    last = events[-1]["result"]["statusUpdate"]
    last["taskId"] = "another"
    return events


def _bare(given: Any) -> Any:
    return given.get("task", given)


def _in_03(given: Any) -> Any:
    task = json.loads(json.dumps(given["task"]))
    task["status"]["state"] = "completed" if task["status"]["state"].endswith("COMPLETED") else "working"
    return {**task, "kind": "task", "history": [], "artifacts": []}


def _old_card(agent: Agent) -> None:
    agent.card.pop("supportedInterfaces")
    agent.card |= {"url": f"{URL}/a2a", "protocolVersion": "1.0", "preferredTransport": "JSONRPC"}


def _busy(agent: Agent) -> None:
    agent.replies.append(
        lambda asked, given: (
            given
            if asked == "card"
            else Reply(
                {"error": "slow down"}, status=429, headers={"content-type": "application/json", "retry-after": "1"}
            )
        )
    )


def _traceback(given: Reply) -> Reply:
    if isinstance(given.document, dict) and "error" in given.document:
        given.document["error"]["message"] = "Traceback (most recent call last):\n  File x"
    return given


def _pages(given: Reply) -> Reply:
    allow = {"access-control-allow-origin": "https://doctor.invalid", "access-control-allow-credentials": "true"}
    return Reply(raw=b"", status=200, headers=allow)


def _anonymous(given: Reply) -> Reply:
    return Reply(raw=b"", status=401, headers={"content-type": "text/plain", "www-authenticate": "Bearer"})


KEYED = {"securitySchemes": {"k": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}}}}
KEYED_CARD = {**KEYED, "securityRequirements": [{"schemes": {"k": {"list": []}}}]}

BOM, HTML = b"\xef\xbb\xbf{}", b"<!doctype html><title>Welcome</title>"

FAULTS = [
    # -- the card --
    Planted("no card", reply("card", served(b"Not Found", 404)), "card-found", "no card was found", "well-known"),
    Planted("the card breaks the server", reply("card", served(b"boom", 500)), "card-found", "HTTP 500", "in its log"),
    Planted("a redirect of the card", reply("card", served(b"", 301, location="/card.json")), "card-redirect", "HTTP 301, a redirect to /card.json", "itself"),
    Planted("a card for friends", reply("card", served(b"", 401)), "card-public", "HTTP 401", "anybody read the card"),
    Planted("a card that is compressed", reply("card", served(b"\x1f\x8b", content_encoding="gzip")), "card-readable", "compressed although", "only what clients ask for"),
    Planted("a card with a BOM", reply("card", served(b"\xef\xbb\xbf{}")), "card-readable", "byte order mark", "without a BOM"),
    Planted("a card in UTF-16", reply("card", served("\ufeff{}".encode("utf-16-le"))), "card-readable", "UTF-16", "UTF-8"),
    Planted("a card in Latin-1", reply("card", served(b'{"name": "caf\xe9"}')), "card-readable", "byte 13 is no UTF-8", "UTF-8"),
    Planted("a page in the place of the card", reply("card", served(HTML, content_type="text/html")), "card-readable", "page for people: <!doctype", "before the rule"),
    Planted("a card with a comma too many", reply("card", served(b'{"name": "a",}')), "card-readable", "no JSON: .*line 1 column", "correct the JSON"),
    Planted("a list of cards", reply("card", served(b"[{}]")), "card-readable", "a list, not an object", "one JSON object"),
    Planted("an empty card", reply("card", served(b"")), "card-readable", "empty", "JSON object"),
    Planted("another document", reply("card", served(b'{"openapi": "3.1"}')), "card-readable", "no agent card, it has openapi", "AgentCard"),
    Planted("a card of text/html", reply("card", lambda given: Reply(given.document, headers={**given.headers, "content-type": "text/html"})), "card-type", "text/html", yellow=True),
    Planted("a slow card", reply("card", late(4.0)), "card-speed", "4000 ms", "memory", yellow=True),
    Planted("a card without description", in_card(description=None), "card-fields", "description: is missing"),
    Planted("a card without version", in_card(version=""), "card-fields", "version: is empty"),
    Planted("a misspelt field of the card", both(in_card(defaultInputModes=None), in_card(default_input_modes=["text/plain"])), "card-fields", "defaultInputModes: is missing.*default_input_modes"),
    Planted("a skill without tags", in_card(skills=[{"id": "a", "name": "a", "description": "a"}]), "card-fields", r"skills\[0\].tags: is missing"),
    Planted("skills as an object", in_card(skills={}), "card-fields", "skills: is dict, not a list"),
    Planted("capabilities as texts", in_capabilities(streaming="true"), "card-fields", "capabilities.streaming: is str"),
    Planted("modes that are no media types", in_card(defaultInputModes=["text"]), "card-fields", "defaultInputModes: has 'text', which is no media type"),
    Planted("no skills", in_card(skills=[]), "card-skills", "0 skills", "at least one", yellow=True),
    Planted("two skills of one id", in_card(skills=[{"id": "a", "name": "a", "description": "a", "tags": []}] * 2), "card-skills", "several skills have the id 'a'", "of its own", yellow=True),
    Planted("a version of three parts", in_interface(protocolVersion="1.0.0"), "card-version", "1.0.0", "Major.Minor", yellow=True),
    Planted("a 1.0 card in the shape of 0.3", _old_card, "card-version", "shape of 0.3", "supportedInterfaces"),
    Planted("a misspelt binding", in_interface(protocolBinding="JSON-RPC"), "card-binding", "'JSON-RPC'.*'JSONRPC'", "write JSONRPC"),
    Planted("a binding called REST", in_interface(protocolBinding="REST"), "card-binding", "'REST'", "write HTTP\\+JSON", of=REST),
    Planted("the binding under its old name", in_interface(protocolBinding=None, transport="JSONRPC"), "card-fields", r"protocolBinding: is missing.*transport"),
    Planted("a relative URL", in_interface(url="/a2a"), "card-fields", "url: is no absolute"),
    Planted("no endpoint", in_card(supportedInterfaces=[]), "card-fields", "is empty"),
    Planted("the address of the listener", in_interface(url="http://0.0.0.0:9/a2a"), "card-endpoints", "http://0.0.0.0:9/a2a, an address to listen at", "public URL"),
    Planted("the address of the listener in 0.3", in_card(url="http://[::]:9/a2a"), "card-endpoints", "an address to listen at", of=OF_03),
    Planted("a card that is cut off", reply("card", served(b'{"name": "Wetterb\xc3\xbcro", "descr')), "card-readable", "cut off: it ends in the middle, after 30 bytes", "count its bytes"),
    Planted("a card that is cut off in a character", reply("card", served(b'{"name": "Wetterb\xc3')), "card-readable", "cut off", "count its bytes"),
    Planted("a login before the card", reply("card", served(b"", 302, location="/login?next=card")), "card-redirect", "a redirect to /login", "from the login"),
    Planted("an endpoint of another version", in_interface(protocolVersion="2.0"), "card-endpoints", "no endpoint.*JSONRPC 2.0"),
    Planted("a scheme that is not there", in_card(securityRequirements=[{"schemes": {"x": {"list": []}}}]), "card-fields", "x: is not in securitySchemes", key="k"),
    Planted("a scheme of 0.3", in_card(securitySchemes={"k": {"type": "apiKey", "in": "header", "name": "x"}}), "card-fields", "securitySchemes.k"),
    Planted("a card without caching", reply("card", lambda given: Reply(given.document)), "card-caching", "no Cache-Control", yellow=True),
    Planted("a card of 0.3 without a URL", in_card(url=None, additionalInterfaces=[{"url": f"{URL}/a2a", "transport": "JSONRPC"}]), "card-fields", "url: is missing", of=OF_03),
    # -- the endpoint --
    Planted("a wrong path", in_interface(url=f"{URL}/elsewhere"), "endpoint-answers", "HTTP 404", "nothing is served at this path"),
    Planted("a wrong path over HTTP", in_interface(url=f"{URL}/a2a/elsewhere"), "endpoint-answers", "HTTP 404", "nothing is served", of=REST),
    Planted("a login before the endpoint", reply("*", served(b"", 302, location="https://sso.example/authorize")), "endpoint-answers", "HTTP 302", "a login for people"),
    Planted("no version but 1.0.0", reply("*", _takes_one_version), "endpoint-answers", "A2A-Version: 1.0 is refused", "Major.Minor alone"),
    Planted("no version but 1.0.0 over HTTP", reply("*", lambda given: rest_error(400, "No", "VERSION_NOT_SUPPORTED")), "endpoint-answers", "A2A-Version: 1.0 is refused", of=REST),
    Planted("streams for everybody", reply("*", _wants_streams), "endpoint-answers", "takes application/json.* with HTTP 406", "only calls that stream"),
    Planted("paths of 0.3 over HTTP", reply("*", served(b'{"detail":"Not Found"}', 404)), "endpoint-answers", "HTTP 404", "without the /v1", of=REST),
    Planted("params that are not validated", method("GetTask", _breaks_without_id), "missing-params", "without its id is answered with HTTP 200 with the error -32603", "-32602"),
    Planted("a redirect", reply("*", served(b"", 307, location=f"{URL}/b")), "endpoint-answers", "HTTP 307", f"name {URL}/b in the card"),
    Planted("a page at the endpoint", reply("*", served(HTML, content_type="text/html")), "endpoint-answers", "text/html", "page for people"),
    Planted("an endpoint for GET", reply("*", served(b"", 405)), "endpoint-answers", "HTTP 405", "takes no POST"),
    Planted("a proxy without a server", reply("*", served(b"Bad Gateway", 502, content_type="text/html")), "endpoint-answers", "HTTP 502", "proxy"),
    Planted("compressed answers", reply("*", served(b"\x1f\x8b", content_encoding="gzip")), "endpoint-answers", "compressed although", "only what clients ask for"),
    Planted("an endpoint that does not answer", reply("*", late(60.0)), "endpoint-answers", "no answer within 5 s", "within seconds"),
    Planted("too many requests", _busy, "endpoint-busy", "HTTP 429 with Retry-After: 1", "Retry-After", yellow=True),
    Planted("a slow endpoint", reply("GetTask", late(3.0)), "speed", "3000 ms", yellow=True),
    Planted("another error for an unknown task", errors("GetTask", -32603), "unknown-task", "-32603", "-32001"),
    Planted("an unknown task that is null", reply("GetTask", document(lambda each: each if "result" in each else {"jsonrpc": "2.0", "id": each["id"], "result": None})), "unknown-task", '"result": null', "-32001"),
    Planted("an unknown task over HTTP", reply("GetTask", lambda given: given if given.status == 200 else rest_error(400, "No", "INVALID_ARGUMENT")), "unknown-task", "HTTP 400", "404", of=REST),
    Planted("a cancelation of nothing", method("CancelTask", _cancels_anything), "unknown-cancel", "HTTP 200", "TaskNotFoundError"),
    Planted("another error for an unknown method", reply("DragomanDoctorAsks", document(lambda each: envelope(each["id"], Refusal(-32600)))), "unknown-method", "-32600", "-32601"),
    Planted("another error for broken JSON", reply("broken", served(b"Bad Request", 400, content_type="text/plain")), "broken-json", "HTTP 400", "-32700"),
    Planted("any version is taken", errors("version", NOT_FOUND), "unknown-version", "-32001", "-32009"),
    Planted("answers of text/plain", reply("*", lambda given: Reply(given.document, headers={"content-type": "text/plain"}) if given.events is None else given), "answer-type", "text/plain"),
    Planted("a stack trace", reply("GetTask", _traceback), "error-internals", "stack trace", yellow=True),
    Planted("webhooks that are refused", refuses("GetTaskPushNotificationConfig", -32003), "push-served", "pushNotifications.*-32003", "take pushNotifications out"),
    Planted("webhooks that are not there", refuses("GetTaskPushNotificationConfig", NO_METHOD), "push-served", "-32601", of=OF_03),
    Planted("webhooks that are refused over HTTP", refuses("GetTaskPushNotificationConfig", -32003), "push-served", "HTTP 400", of=REST),
    Planted("an extended card that is refused", both(in_capabilities(extendedAgentCard=True), in_card(**KEYED), refuses("GetExtendedAgentCard", -32007)), "extended-card-served", "-32007", "take it out", key="k"),
    Planted("an extended card for strangers", both(in_capabilities(extendedAgentCard=True), in_card(**KEYED)), "extended-card", "anybody may read", key="k"),
    Planted("nobody is asked for a key", in_card(**KEYED_CARD), "authentication-enforced", "answered like any other", key="k"),
    Planted("a key that the card keeps secret", reply("*", _anonymous), "authentication-enforced", "declares no scheme"),
    Planted("pages with cookies", reply("preflight", _pages), "web-pages", "any origin", "Allow-Origin"),
    # -- the bytes of answers --
    Planted("another id", reply("*", document(lambda each: {**each, "id": 1 if each.get("id") else None})), "answer-id", "id is 1, and that of the request is", "same type"),
    Planted("an id of another type", reply("*", document(lambda each: {**each, "id": str(each["id"])} if each.get("id") else each)), "answer-id", "id is '", "same type"),
    Planted("no id", reply("SendMessage", document(lambda each: {name: value for name, value in each.items() if name != "id"})), "answer-id", "id is missing"),
    Planted("no jsonrpc", reply("*", document(lambda each: {name: value for name, value in each.items() if name != "jsonrpc"})), "answer-envelope", "no `jsonrpc`", '"jsonrpc": "2.0"'),
    Planted("JSON-RPC 1.0", reply("SendMessage", document(lambda each: {**each, "jsonrpc": "1.0"})), "answer-envelope", "'1.0'"),
    Planted("a result and an error", reply("SendMessage", document(lambda each: {**each, "error": {"code": 0, "message": ""}} if "result" in each else each)), "answer-envelope", "both result and error"),
    Planted("an error without a code", reply("DragomanDoctorAsks", document(lambda each: {**each, "error": {"code": "-32601", "message": "No"}})), "answer-envelope", "error.code"),
    Planted("an error that is a text", reply("GetTask", document(lambda each: {**each, "error": "No task"} if "error" in each else each)), "answer-envelope", "error.code"),
    Planted("an error without its wrapper over HTTP", reply("GetTask", lambda given: Reply({"code": 404, "message": "No"}, status=404) if given.status == 404 else given), "answer-envelope", "no `error`, but code, message", 'under "error"', of=REST),
    Planted("a JSON-RPC response over HTTP", result("SendMessage", lambda given: {"jsonrpc": "2.0", "id": 1, "result": given}), "answer-wrapper", "`result` of its own", of=REST),
    Planted("events without an envelope", events(lambda given: [each["result"] for each in given]), "answer-envelope", "neither result nor error"),
    Planted("types for kinds in 0.3", rename("kind", "type"), "answer-names", "type is written kind", of=OF_03),
    Planted("no way to cancel over HTTP", reply("CancelTask", served(b'{"detail":"Method Not Allowed"}', 405)), "unknown-cancel", "HTTP 405", of=REST),
    Planted("no task wrapper", result("SendMessage", _bare), "answer-wrapper", "bare Task", "under `task`"),
    Planted("no task wrapper over HTTP", result("SendMessage", _bare), "answer-wrapper", "bare Task", of=REST),
    Planted("no wrapper in a stream", result("SendStreamingMessage", lambda given: next(iter(given.values()))), "answer-wrapper", "bare TaskStatusUpdateEvent|bare Task"),
    Planted("a wrapped task where a bare one belongs", result("GetTask", lambda given: {"task": given}), "answer-wrapper", "under `task`, where a bare"),
    Planted("a task of 0.3", result("SendMessage", _in_03), "answer-version", "'task' as its kind", "no `kind`"),
    Planted("kinds of 0.3", put("kind", "text", having="text"), "answer-version", "kind is a field of 0.3"),
    Planted("states of 0.3", put("state", OLD_STATES), "answer-version", "how 0.3 writes TASK_STATE_COMPLETED"),
    Planted("roles of 0.3", put("role", "user"), "answer-version", "'user', which is how 0.3 writes ROLE_USER"),
    Planted("files of 0.3", everywhere(lambda each: each.update({"file": {"uri": "https://a.example/"}}) or each.pop("text") if "text" in each else None), "answer-version", "file is a field of 0.3"),
    Planted("states of 1.0 in 0.3", put("state", NEW_STATES), "answer-version", "how 1.0 writes completed", of=OF_03),
    Planted("wrappers of 1.0 in 0.3", result("SendMessage", lambda given: {"task": given}), "answer-version", "wrapped in `task`, as in 1.0", of=OF_03),
    Planted("no kinds in 0.3", without("kind", "parts"), "answer-fields", "kind is missing", of=OF_03),
    Planted("parts without a kind in 0.3", without("kind", "text"), "answer-fields", r"parts\[\].kind is missing", of=OF_03),
    Planted("names with underscores", rename("artifactId", "artifact_id"), "answer-names", "artifact_id is written artifactId", "camelCase"),
    Planted("wrappers with underscores", result("SendStreamingMessage", lambda given: {{"statusUpdate": "status_update"}.get(name, name): each for name, each in given.items()}), "answer-names", "status_update is written statusUpdate"),
    Planted("a misspelt name", rename("messageId", "messageID"), "answer-names", "messageID is written messageId"),
    Planted("an artifact without an id", without("artifactId", "parts"), "answer-fields", "artifactId is missing"),
    Planted("an artifact without parts", everywhere(lambda each: each.pop("parts") if "artifactId" in each else None), "answer-fields", "parts is missing"),
    Planted("a message without a role", without("role", "messageId"), "answer-fields", "role is missing"),
    Planted("a part without content", everywhere(lambda each: each.pop("text", None)), "answer-fields", "has none of data, raw, text, url"),
    Planted("a part of two contents", put("url", "https://a.example/", having="text"), "answer-values", "text and url"),
    Planted("a time that is none", put("timestamp", "yesterday"), "answer-values", "timestamp is 'yesterday'", "2026-01-31"),
    Planted("a time of an Unix clock", put("timestamp", 1767225600), "answer-values", "timestamp is 1767225600"),
    Planted("a time without a zone", put("timestamp", "2026-01-31T12:00:00"), "answer-values", "without a zone"),
    Planted("a day that there is not", put("timestamp", "2026-02-31T12:00:00Z"), "answer-values", "a time that there is not"),
    Planted("a state of its own", put("state", "TASK_STATE_DONE"), "answer-values", "'TASK_STATE_DONE', which is no TaskState", also=("message-blocks", "stream-ends", "cancel", "left-running", "message-answered")),
    Planted("bytes that are no base64", everywhere(lambda each: each.update({"raw": "%%%"}) or each.pop("text") if "text" in each else None), "answer-values", "not base64"),
    Planted("metadata as a text", put("metadata", "none", having="artifactId"), "answer-values", "metadata is 'none', not an object"),
    Planted("artifacts as an object", result("GetTask", lambda given: {**given, "artifacts": {}}), "answer-values", "artifacts is an object, not a list"),
    Planted("fields of its own", put("cost", 3, having="status"), "answer-unknown", "cost is not in the schema", "metadata", yellow=True),
    Planted("a list without its size", result("ListTasks", lambda given: {"tasks": given["tasks"]}), "answer-fields", "nextPageToken is missing.*totalSize is missing"),
    # -- messages --
    Planted("an error for every message", refuses("SendMessage", -32603), "message-answered", "InternalError"),
    Planted("a message breaks the server", reply("SendMessage", served(b"Internal Server Error", 500, content_type="text/plain")), "message-answered", "HTTP 500 with text/plain: Internal Server Error"),
    Planted("a stream for a message", reply("SendMessage", lambda given: stream([given.document])), "message-answered", "text/event-stream", "one JSON document"),
    Planted("a result that is null", result("SendMessage", lambda given: None), "message-answered", '"result": null', "in the result"),
    Planted("a list of answers", reply("SendMessage", lambda given: Reply([given.document])), "message-answered", "HTTP 200", "not with a list"),
    Planted("an agent that never answers", reply("SendMessage", late(3600.0)), "message-answered", "no answer within 10 s to a message, and none", "returnImmediately"),
    Planted("an answer before the end", method("SendMessage", _answers_at_once), "message-blocks", "in TASK_STATE_WORKING", "returnImmediately"),
    Planted("numbers that are none", reply("SendMessage", lambda given: replace(given, raw=given.body.replace(b'"Hello"', b"NaN"))), "message-answered", "NaN is no number of JSON"),
    Planted("an answer that is cut off", reply("SendMessage", lambda given: Reply(raw=given.body[:-3])), "message-answered", "ends in the middle", "count bytes"),
    Planted("answers in Latin-1", reply("SendMessage", lambda given: Reply(raw=given.body.replace(b"Hello", b"Hall\xf6"))), "message-answered", "is no UTF-8", "UTF-8"),
    Planted("a model without its key", _says("MODEL_KEY is not set", "TASK_STATE_FAILED"), "message-succeeds", "TASK_STATE_FAILED: MODEL_KEY is not set", "log", yellow=True, also=("task-read",)),
    Planted("messages of the caller", _says("Hello", role="ROLE_USER"), "message-role", "the role ROLE_USER", "ROLE_AGENT"),
    Planted("a wait that nobody wanted", _waits_for_the_end, "message-returns", "after 2000 ms, when its task has ended", "once its task is made", yellow=True),
    Planted("the oldest first", method("ListTasks", _lists_oldest_first), "list-order", "not by the time", "descending"),
    Planted("a context of its own", method("SendMessage", _in_a_new_context), "context-kept", "with the contextId 'context-.*' is answered with 'context-", "that the caller gave"),
    Planted("an ended task goes on", method("SendMessage", _continues), "message-to-ended", "a Task in TASK_STATE_COMPLETED", "UnsupportedOperationError"),
    Planted("two replicas without a store", two_replicas, "task-read", "found at one call, and not found at another", "share one store"),
    Planted("history for everybody", method("GetTask", _reads_with_history), "history-length", "historyLength 0 has 1", yellow=True),
    Planted("one page over and over", method("ListTasks", _serves_one_page), "list-pages", "the first again", "behind the last task"),
    Planted("no pages", method("ListTasks", _has_no_pages), "list-pages", "a page with pageSize 1 has", "apply pageSize"),
    Planted("no context", everywhere(lambda each: each.pop("contextId", None)), "message-context", "no contextId"),
    Planted("one task for all", one_id("id", "task-1"), "message-task", "the same task", "new id"),
    Planted("one context for all", one_id("contextId", "c"), "message-context", "the same one, 'c'", "new contextId"),
    Planted("an end that is taken back", result("GetTask", lambda given: {**given, "status": {"state": "TASK_STATE_WORKING", "timestamp": NOW}}), "task-read", "TASK_STATE_COMPLETED, which is final, is read in TASK_STATE_WORKING", also=("cancel",)),
    Planted("any task is continued", method("SendMessage", _takes_any_task), "message-to-unknown", "a task that does not exist"),
    Planted("tasks are forgotten", refuses("GetTask", NOT_FOUND), "task-read", "TaskNotFoundError"),
    Planted("another task is read", method("GetTask", _reads_another), "task-read", "just made"),
    Planted("no list", refuses("ListTasks", NO_METHOD), "list", "MethodNotFoundError", yellow=True),
    Planted("an empty list", method("ListTasks", lambda agent, given: {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}), "task-listed", "not among"),
    Planted("a list of all contexts", method("ListTasks", _lists_all), "list-filtered", "other contexts", "contextId"),
    Planted("a list with artifacts", method("ListTasks", _lists_artifacts), "list-filtered", "artifacts", "includeArtifacts"),
    Planted("an ended task is canceled", method("CancelTask", _cancels_again), "cancel-ended", "has ended", "TaskNotCancelableError"),
    Planted("a cancel that changes nothing", method("CancelTask", _ignores_cancel), "cancel", "in TASK_STATE_WORKING afterwards", "stop the work"),
    Planted("a cancel that is a lie", method("CancelTask", _says_canceled), "cancel", "in TASK_STATE_WORKING afterwards"),
    Planted("a cancel that breaks", method("CancelTask", _breaks), "cancel", "InternalError", yellow=True, also=("cancel-ended",)),
    Planted("no subscriptions", refuses("SubscribeToTask", NO_METHOD), "subscribe", "MethodNotFoundError", also=("subscribe-ended",)),
    Planted("a subscription without the task", method("SubscribeToTask", _starts_late), "subscribe", "begins with StatusUpdate", "begins with the task"),
    Planted("updates of an ended task", method("SubscribeToTask", _replays), "subscribe-ended", "a stream of 1"),
    Planted("webhooks at its own machine", set_(takes_local_webhooks=True), "webhook-address", "its own machine is accepted", yellow=True, webhooks=True),
    Planted("webhooks that are never called", set_(calls_webhooks=False), "push-called", "not called", "push sender", webhooks=True),
    # -- streams --
    Planted("no streams", refuses("SendStreamingMessage", UNSUPPORTED), "stream", "UnsupportedOperationError", "streaming: false"),
    Planted("streams that are not there", refuses("SendStreamingMessage", NO_METHOD), "stream", "MethodNotFoundError", of=OF_03),
    Planted("a stream of application/json", reply("SendStreamingMessage", _as_json), "stream-type", "application/json", "text/event-stream"),
    Planted("a stream of lines", reply("SendStreamingMessage", _framed_badly), "stream-frames", "no event with data", "empty line"),
    Planted("events over many lines", reply("SendStreamingMessage", _over_lines), "stream-frames", "a line that does not begin with `data:`", "before each of its lines"),
    Planted("events that are held back", events(_held_back), "stream-live", "made within 3.0 s come within 0.0 s", "no proxy", yellow=True),
    Planted("events that are no JSON", reply("SendStreamingMessage", _not_json), "stream-frames", "event 1 of 3 is no JSON", "as one event"),
    Planted("an empty stream", events(lambda given: []), "stream-begins", "empty", "begin a stream"),
    Planted("a stream that begins with a status", events(lambda given: given[1:]), "stream-begins", "begins with a ArtifactUpdate", "with the task"),
    Planted("a stream that ends too early", events(lambda given: given[:2]), "stream-ends", "ends in TASK_STATE_WORKING", "until the task has ended"),
    Planted("a stream that stays open", reply("SendStreamingMessage", _opens), "stream-closes", "still open 2 s after TASK_STATE_COMPLETED", "close the stream"),
    Planted("an artifact after the end", events(lambda given: [given[0], given[2], given[1]]), "stream-after-end", "1 update came after TASK_STATE_COMPLETED", "before the last status"),
    Planted("an update of another task", events(_other_task), "stream-ids", "of 2 tasks", "one task"),
    Planted("updates without a context", result("SendStreamingMessage", lambda given: [given["statusUpdate"].pop("contextId"), given][1] if "statusUpdate" in given else given), "stream-ids", "no contextId"),
    Planted("chunks of nothing", result("SendStreamingMessage", lambda given: [given["artifactUpdate"].update(append=True), given][1] if "artifactUpdate" in given else given), "stream-chunks", "has not begun", "without append"),
    Planted("no final status in 0.3", put("final", False), "stream-final", "final: False", "final: true", of=OF_03),
    Planted("a stream of slow beginning", reply("SendStreamingMessage", late(7.0)), "stream-first-update", "7000 ms", yellow=True),
    Planted("an error in a stream", events(lambda given: [given[0], envelope(given[0]["id"], Refusal(-32603, "broken"))]), "stream-ends", "breaks after 1 update"),
]  # fmt: skip
