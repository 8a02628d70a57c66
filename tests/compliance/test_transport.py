"""How the commands reach live agents: cards, interfaces, versions, tenants, extensions, streams that break."""

import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.a2a.peer import Asked, serve_http
from tests.client.proxy import Fault
from tests.compliance.agents import OFFICIAL, Caller
from tests.compliance.evidence import KEYED
from tests.compliance.proxied import proxied

requirement = pytest.mark.requirement

OFFICIAL_ONLY = pytest.mark.parametrize(
    "live", [pytest.param(name, marks=pytest.mark.peer) for name in OFFICIAL], indirect=True
)
EXTENSION = "https://example.org/extensions/timing/v1"


def read_card(caller: Caller, what: str = "echo") -> dict[str, Any]:
    """The agent's card."""
    card: dict[str, Any] = caller.shell.run("card", "get", *caller.to(what), "-o", "json").json
    return card


def write_card(caller: Caller, card: dict[str, Any]) -> tuple[str, str]:
    """Keep a card as a file, and return the options that name it."""
    (caller.shell.work / "card.json").write_text(json.dumps(card))
    return "-a", "./card.json"


def spoken(err: str) -> tuple[str, str]:
    """The version and the binding that a command chose, by its log."""
    found = re.search(r"speaking (\S+) over (\S+) at ", err)
    assert found is not None, err
    return found[1], found[2]


@requirement("CARD_GET_001")
def test_a_card_is_found_by_origin_url_and_file(caller: Caller) -> None:
    reference = caller.live.reference("echo")
    whole = read_card(caller)
    bare = reference.removeprefix("http://")
    path = caller.shell.work / "card.json"
    path.write_text(json.dumps(whole))
    for each in (bare, reference, f"{reference}/.well-known/agent-card.json", "./card.json", path.as_uri()):
        ran = caller.shell.run("card", "get", "-a", each)
        assert (ran.status, ran.fields["Name"]) == (0, whole["name"]), each
        labels = {line.partition(":")[0] for line in ran.out.splitlines()}
        assert labels >= {"Name", "Streaming", "Push notifications", "Extended card", "Interface", "Skill"}
        sent = caller.shell.run("send", caller.live.text("echo"), "-a", each)
        assert sent.fields["State"] == "TASK_STATE_COMPLETED", (each, sent.err)


@requirement("OUT_007")
def test_a_card_is_logged_too(caller: Caller) -> None:
    ran = caller.shell.run("card", "get", "--debug", "-o", "json", *caller.to("echo"))
    (logged,) = re.findall(r"< (\{.*)", ran.err)
    assert json.loads(logged) == ran.json


@requirement("CARD_GET_001", "CARD_GET_002")
def test_the_url_of_a_card_is_used_as_it_is(caller: Caller) -> None:
    whole, came = read_card(caller), []

    def answer(asked: Asked) -> tuple[int, Any]:
        came.append(asked.line)
        return (200, whole) if asked.line == "GET /cards/mine?of=me" else (200, {**whole, "name": "another"})

    with serve_http(answer) as url:
        ran = caller.shell.run("card", "get", "--validate", "-a", f"{url}/cards/mine?of=me")
    assert (ran.status, ran.fields["Name"], ran.fields.get("Valid")) == (0, whole["name"], "yes"), ran.err
    assert set(came) == {"GET /cards/mine?of=me"}


@requirement("CARD_GET_002")
def test_a_live_card_is_valid(caller: Caller) -> None:
    ran = caller.shell.run("card", "get", "--validate", *caller.to("echo"))
    assert (ran.status, ran.fields.get("Valid")) == (0, "yes"), ran.err
    broken = {name: value for name, value in read_card(caller).items() if name != "version"}
    refused = caller.shell.run("card", "get", "--validate", "-o", "json", *write_card(caller, broken))
    assert (refused.status, refused.json["error"]["code"]) == (1, "A2ACLI_ERR_CARD_INVALID")
    assert "version: is missing" in refused.json["error"]["message"]


@requirement("TX_001", "TX_002", "TX_004", "CARD_GET_001")
def test_the_cards_order_decides_and_the_users_order_outweighs_it(caller: Caller) -> None:
    card = read_card(caller)
    current = [each for each in card["supportedInterfaces"] if each["protocolVersion"].startswith("1.")]
    bindings = list(dict.fromkeys(each["protocolBinding"] for each in current))
    assert {"JSONRPC", "HTTP+JSON"} <= set(bindings)
    first = caller.send("echo", "--debug")
    assert spoken(first.err)[1] == bindings[0]
    turned = write_card(caller, {**card, "supportedInterfaces": current[::-1]})
    ran = caller.shell.run("send", caller.live.text("echo"), "--debug", *turned)
    assert (ran.status, spoken(ran.err)[1]) == (0, current[-1]["protocolBinding"])
    for binding in bindings:
        ran = caller.send("echo", "--transport", binding, "--debug")
        assert (ran.status, spoken(ran.err)[1]) == (0, binding), ran.err
    absent = [each for each in ("GRPC", "JSONRPC", "HTTP+JSON") if each not in bindings]
    for missing in absent:
        ran = caller.send("echo", "--transport", missing, "--transport", bindings[-1], "--debug")
        assert (ran.status, spoken(ran.err)[1]) == (0, bindings[-1])
        assert spoken(caller.send("echo", "--transport", missing, "--debug").err)[1] == bindings[0]


@requirement("OUT_004", "TX_004")
def test_an_error_is_the_same_over_every_binding(caller: Caller) -> None:
    card = read_card(caller)
    bindings = {each["protocolBinding"] for each in card["supportedInterfaces"]}
    for binding in sorted(bindings):
        ran = caller.task("get", "no-such-task", "-o", "json", "--transport", binding, what="echo")
        assert (ran.status, ran.json["error"]["code"]) == (1, "TaskNotFoundError"), binding
        assert ran.json["error"]["a2aCode"] == -32001


@requirement("TX_005", "OUT_004", "VER_001")
@pytest.mark.parametrize(
    "live", [*(pytest.param(name, marks=pytest.mark.peer) for name in OFFICIAL), KEYED], indirect=True
)
def test_the_commands_speak_grpc(caller: Caller) -> None:
    if caller.live.name in OFFICIAL:
        agent: tuple[str, ...] = ("-a", f"{caller.live.url}/grpc")
    else:
        agent = (*caller.to("ask"), "--transport", "GRPC")
    asked = caller.shell.run("send", caller.live.text("ask"), "-o", "json", "--debug", *agent)
    assert asked.status == 0, asked.err
    assert spoken(asked.err) == ("1.0", "GRPC")
    assert "a2a-version: 1.0" in asked.err
    task = asked.json["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert caller.shell.run("task", "get", task["id"], *agent).fields["Task"] == task["id"]
    streamed = caller.shell.run("send", "--task-id", task["id"], "--text", "Oslo", "--stream", "-o", "json", *agent)
    assert (streamed.status, {*streamed.lines[0]} <= {"task", "statusUpdate"}) == (0, True), streamed.err
    missing = caller.shell.run("task", "get", "no-such-task", "-o", "json", *agent)
    assert (missing.status, missing.json["error"]["code"]) == (1, "TaskNotFoundError")


@requirement("VER_001", "OUT_007")
def test_the_version_is_in_every_request(caller: Caller) -> None:
    for binding in ("JSONRPC", "HTTP+JSON"):
        ran = caller.send("echo", "--transport", binding, "--debug", "-o", "json")
        assert ran.json["task"]["id"]  # the log is on stderr
        requests = [line for line in ran.err.splitlines() if re.search(r" > (GET|POST) ", line)]
        versions = re.findall(r" > a2a-version: (\S+)", ran.err, re.IGNORECASE)
        assert requests
        assert versions == ["1.0"] * len(requests)
        assert '"ROLE_USER"' in ran.err  # whole messages
        assert "TASK_STATE_COMPLETED" in ran.err


@requirement("VER_001")
@OFFICIAL_ONLY
def test_a_version_below_one_is_spoken_only_on_request(caller: Caller) -> None:
    old = ("-a", f"{caller.live.url}/old")  # a card with endpoints of 0.3 alone
    refused = caller.shell.run("send", "hello", "-o", "json", *old)
    assert (refused.status, refused.json["error"]["code"]) == (1, "VersionNotSupportedError")
    assert "--a2a-version 0.3" in refused.json["error"]["hint"]
    asked = caller.shell.run("send", "hello", "--a2a-version", "0.3", *old)
    assert (asked.status, asked.fields["State"]) == (0, "TASK_STATE_COMPLETED"), asked.err


@requirement("TX_003")
@OFFICIAL_ONLY
@pytest.mark.parametrize("tenant", ["acme", ""])
def test_the_tenant_of_the_interface_is_in_every_request(caller: Caller, tenant: str) -> None:
    card = read_card(caller)
    interface = next(each for each in card["supportedInterfaces"] if each["protocolBinding"] == "JSONRPC")
    with proxied(interface["url"]) as proxy:
        parts = urlsplit(interface["url"])
        place = interface["url"].replace(f"{parts.scheme}://{parts.netloc}", proxy.url)
        routed = {**interface, "url": place, **({"tenant": tenant} if tenant else {})}
        agent = write_card(caller, {**card, "supportedInterfaces": [routed]})
        task = caller.shell.run("send", "slow", "--async", *agent).fields["Task"]
        hook = ("push-config", "create", task, "--url", "https://example.org/hook", "--id", "mine")
        for words in (
            ("get", task),
            ("list",),
            hook,
            ("push-config", "get", task, "mine"),
            ("push-config", "list", task),
            ("push-config", "delete", task, "mine"),
            ("cancel", task),
            ("subscribe", task),
        ):
            ran = caller.shell.run("task", *words, *agent)
            assert ran.status == 0, (words, ran.err)
        assert caller.shell.run("send", "hello", *agent).status == 0
    calls = [json.loads(asked.partition(b"\r\n\r\n")[2]) for asked in proxy.asked if asked.startswith(b"POST")]
    assert {call["method"] for call in calls} >= {
        *("SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"),
        *(f"{verb}TaskPushNotificationConfig" for verb in ("Create", "Get", "Delete")),
        "ListTaskPushNotificationConfigs",
    }
    assert {call["params"].get("tenant") for call in calls} == {tenant or None}


@requirement("VER_002")
@OFFICIAL_ONLY
def test_a_required_extension_is_declared(caller: Caller) -> None:
    card = read_card(caller)
    card["capabilities"]["extensions"] = [{"uri": EXTENSION, "required": True}]
    agent = write_card(caller, card)
    refused = caller.shell.run("send", "hello", "-o", "json", *agent)
    assert (refused.status, refused.json["error"]["code"]) == (1, "ExtensionSupportRequiredError")
    sent = caller.shell.run("send", "hello", "--extension", EXTENSION, "--debug", *agent)
    assert sent.status == 0, sent.err
    assert f"> a2a-extensions: {EXTENSION}" in sent.err.lower()


@requirement("VER_003", "SEND_003", "TASK_POLL_001")
def test_what_the_card_does_not_offer_is_not_asked_for(caller: Caller) -> None:
    card = {**read_card(caller), "capabilities": {"streaming": False}}
    card.pop("supportsAuthenticatedExtendedCard", None)  # how 0.3 spells that capability
    agent = write_card(caller, card)
    ran = caller.shell.run("send", caller.live.text("echo"), "--stream", "-o", "json", "--debug", *agent)
    assert ran.status == 0, ran.err
    assert [list(line) for line in ran.lines] == [["task"]]  # still JSON lines
    assert "stream" not in " ".join(line for line in ran.err.lower().splitlines() if " > " in line)
    for words, code in (
        (("task", "push-config", "list", "t"), "PushNotificationNotSupportedError"),
        (("card", "get", "--extended"), "ExtendedAgentCardNotConfiguredError"),
    ):
        refused = caller.shell.run(*words, "-o", "json", "--debug", *agent)
        assert (refused.status, refused.json["error"]["code"]) == (1, code)
        assert " > POST" not in refused.err


GATEWAY_DOWN = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("resumes", [True, False])
@requirement("TASK_POLL_004", "TASK_SUBSCRIBE_002")
def test_a_stream_that_breaks_is_resumed_or_replaced_by_polling(
    caller: Caller, resumes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.cli.a2a.session.MEND_S", 1.0)
    card = read_card(caller, "count")
    interface = next(each for each in card["supportedInterfaces"] if each["protocolBinding"] == "JSONRPC")
    text = "count 40" if caller.live.name in OFFICIAL else "20 every 0.1"
    with proxied(interface["url"]) as proxy:

        def choose(asked: bytes) -> Fault | None:
            if b'"SendStreamingMessage"' in asked:
                return Fault(cut=1600)
            return Fault(refuses=GATEWAY_DOWN) if b'"SubscribeToTask"' in asked and not resumes else None

        proxy.choose = choose
        parts = urlsplit(interface["url"])
        place = interface["url"].replace(f"{parts.scheme}://{parts.netloc}", proxy.url)
        agent = write_card(caller, {**card, "supportedInterfaces": [{**interface, "url": place}]})
        ran = caller.shell.run("send", text, "-o", "json", "--poll-interval", "50ms", "--timeout", "60s", *agent)
        methods = [m[1].decode() for asked in proxy.asked if (m := re.search(rb'"method": ?"(\w+)"', asked))]
    assert ran.status == 0, ran.err
    task = ran.json["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    said = "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])
    assert len(said.split()) == (40 if caller.live.name in OFFICIAL else 20)
    assert "SendStreamingMessage" in methods
    assert methods[-1] == "GetTask"


@requirement("TASK_POLL_002")
def test_a_wait_outlasts_an_agent_that_is_away_for_a_moment(caller: Caller) -> None:
    card = read_card(caller, "count")
    interface = next(each for each in card["supportedInterfaces"] if each["protocolBinding"] == "JSONRPC")
    text = "count 3" if caller.live.name in OFFICIAL else "3 every 0.3"
    with proxied(interface["url"]) as proxy:
        parts = urlsplit(interface["url"])
        place = interface["url"].replace(f"{parts.scheme}://{parts.netloc}", proxy.url)
        plain = {**card, "capabilities": {"streaming": False}, "supportedInterfaces": [{**interface, "url": place}]}
        agent = write_card(caller, plain)
        task = caller.shell.run("send", text, "--async", *agent).fields["Task"]
        refusals = iter(range(8))  # more than the client repeats one call
        proxy.choose = lambda asked: Fault(refuses=GATEWAY_DOWN) if next(refusals, None) is not None else None
        gone = caller.shell.run("task", "get", task, "--wait", "-o", "json", *agent)
        assert (gone.status, gone.json["error"]["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")  # never told of the task
        proxy.choose = lambda asked: Fault(refuses=GATEWAY_DOWN) if len(proxy.asked) in range(3, 10) else None
        proxy.asked.clear()
        words = ("--poll-interval", "10ms", "--timeout", "60s")
        ran = caller.shell.run("send", text, *words, *agent)
    assert (ran.status, ran.fields["State"]) == (0, "TASK_STATE_COMPLETED"), ran.err
