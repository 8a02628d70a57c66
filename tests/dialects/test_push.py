"""Webhook calls by vectors: what each dialect's body is, which headers carry tokens, and how it is signed."""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.dialects import beeos, evoai, fasta2a, kaos, protoagent, v03, v1
from dragoman.dialects.api import Dialect, PushForm, Signing, Told
from dragoman.dialects.beeos import REST as BEEOS_REST
from dragoman.model.events import StatusChanged, Submitted
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import PushConfig
from dragoman.model.task import STATES, Record, TaskHead, TaskState, TaskStatus
from tests.dialects.shown import compact

ROOT = Path(__file__).parent / "vectors"
AT = "2026-11-20T07:00:00.000Z"
URL = "https://example.com/h"
HEAD = TaskHead(
    id="t1", context_id="c1", agent="a", owner="o", dialect="1.0", mount="/", created_at="2026-11-20T06:59:58.000Z"
)
SIGNING = Signing(delivery_id="d1", task_id="t1", timestamp_s=1_763_622_000, body=b'{"a":1}')
SECRET = "0123456789abcdef"

DIALECTS = {
    "v1": (v1.JSONRPC, v1.REST),
    "v03": (v03.JSONRPC, v03.REST, v03.REST_TWICE),
    "beeos": (beeos.JSONRPC, BEEOS_REST),
    "evoai": (evoai.JSONRPC,),
    "protoagent": (protoagent.JSONRPC, protoagent.REST),
    "fasta2a": (fasta2a.JSONRPC,),
}
FILES = [(name, path) for name in DIALECTS for path in sorted((ROOT / name).glob("push-*.json"))]
PAIRS: list[tuple[str, dict[str, Any]]] = [(name, json.loads(path.read_text("utf-8"))) for name, path in FILES]
VECTORS = [pytest.param(*pair, id=f"{name}-{path.stem}") for pair, (name, path) in zip(PAIRS, FILES, strict=True)]


def form(dialect: Dialect) -> PushForm:
    assert dialect.push is not None
    return dialect.push


def told_of(vector: dict[str, Any]) -> Told:
    """The events that the vector's webhook is told of."""
    ((kind, value),) = vector["told"].items()
    match kind:
        case "event":
            event: Submitted | StatusChanged = msgspec.convert(value, Submitted | StatusChanged)
            return event
        case "artifact":
            return msgspec.convert(value, Artifact)
        case _:
            return None


def record(state: TaskState) -> Record:
    return Record(head=HEAD, seq=2, status=TaskStatus(state=state, timestamp=AT))


def signed_hex(secret: bytes, content: bytes) -> str:
    return hmac.digest(secret, content, hashlib.sha256).hex()


def test_each_dialect_with_webhooks_has_vectors_of_each_kind() -> None:
    found = {(name, next(iter(vector["told"]))) for name, vector in PAIRS}
    assert found == {(name, kind) for name in DIALECTS for kind in ("event", "artifact", "nothing")}


@pytest.mark.parametrize(("name", "vector"), VECTORS)
def test_a_webhook_is_told_exactly_these_bytes(name: str, vector: dict[str, Any]) -> None:
    stands = msgspec.convert(vector["record"], Record)
    for dialect in DIALECTS[name]:
        push = form(dialect)
        body = push.encode(HEAD, told_of(vector), lambda: stands)
        assert body == compact(vector["body"])
        assert push.content_type == vector["content_type"]
        assert push.told(told_of(vector), lambda: stands) is vector["unasked"]


def test_kaos_has_no_webhooks() -> None:
    assert kaos.JSONRPC.push is None


@pytest.mark.parametrize("state", STATES)
def test_protoagent_tells_unasked_only_of_the_end(state: TaskState) -> None:
    told = form(protoagent.JSONRPC).told
    ended = state in {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
    assert told(StatusChanged(state, AT), lambda: record(state)) is ended
    assert told(None, lambda: record(state)) is ended
    begun = Submitted(Message(message_id="m", role=Role.USER, parts=(Part(text="x"),)), AT)
    assert told(begun, lambda: record(state)) is False
    assert told(Artifact(artifact_id="a", parts=(Part(text="x"),)), lambda: record(state)) is False


OFFICIAL: list[tuple[dict[str, str], list[tuple[str, str]]]] = [
    ({}, []),
    ({"token": "t"}, [("Authorization", "Bearer t"), ("X-A2A-Notification-Token", "t")]),
    ({"scheme": "Bearer", "credentials": "c"}, [("Authorization", "Bearer c")]),
    ({"scheme": "bearer", "credentials": "c"}, [("Authorization", "Bearer c")]),
    ({"scheme": "Basic", "credentials": "c"}, [("Authorization", "Basic c")]),
    ({"credentials": "c"}, [("Authorization", "Bearer c")]),
    (
        {"scheme": "Basic", "credentials": "c", "token": "t"},
        [("Authorization", "Basic c"), ("X-A2A-Notification-Token", "t")],
    ),
    ({"scheme": "Bearer", "token": "t"}, [("Authorization", "Bearer t"), ("X-A2A-Notification-Token", "t")]),
    ({"scheme": "Basic", "token": "t"}, [("X-A2A-Notification-Token", "t")]),
]
TOP_LEVEL: list[tuple[dict[str, str], list[tuple[str, str]]]] = [
    ({}, []),
    ({"token": "t"}, [("Authorization", "Bearer t"), ("X-A2A-Notification-Token", "t")]),
    ({"scheme": "Bearer", "credentials": "c"}, [("Authorization", "Bearer c")]),
    ({"scheme": "Basic", "credentials": "c"}, [("Authorization", "Bearer c")]),
    (
        {"scheme": "Bearer", "credentials": "c", "token": "t"},
        [("Authorization", "Bearer t"), ("X-A2A-Notification-Token", "t")],
    ),
]
API_KEYS: list[tuple[dict[str, str], list[tuple[str, str]]]] = [
    ({"scheme": "ApiKey", "credentials": "k"}, [("X-API-Key", "k")]),
    ({"scheme": "ApiKey", "credentials": '{"in":"header","name":"X-Key","value":"k"}'}, [("X-Key", "k")]),
    ({"scheme": "ApiKey", "credentials": "k", "token": "t"}, [("X-API-Key", "k"), ("X-A2A-Notification-Token", "t")]),
    ({"scheme": "ApiKey", "token": "t"}, [("X-A2A-Notification-Token", "t")]),
]


@pytest.mark.parametrize(
    ("name", "config", "headers"),
    [
        *(pytest.param(name, *case) for name in ("v1", "v03", "evoai") for case in OFFICIAL),
        *(pytest.param("evoai", *case) for case in API_KEYS),
        *(pytest.param(name, *case) for name in ("protoagent", "beeos") for case in TOP_LEVEL),
    ],
)
def test_tokens_go_where_the_dialects_receivers_look(
    name: str, config: dict[str, Any], headers: list[tuple[str, str]]
) -> None:
    for dialect in DIALECTS[name]:
        assert form(dialect).authorization(PushConfig(url=URL, **config)) == headers


@pytest.mark.parametrize("name", DIALECTS)
def test_a_body_of_beeos_says_of_which_format_it_is(name: str) -> None:
    for dialect in DIALECTS[name]:
        assert form(dialect).headers == ((("X-BeeOS-Webhook-Format", "a2a"),) if name == "beeos" else ())


@pytest.mark.parametrize("name", DIALECTS)
def test_dialects_that_tell_the_whole_task_say_so(name: str) -> None:
    for dialect in DIALECTS[name]:
        assert form(dialect).whole is (name in ("v03", "evoai"))


@pytest.mark.parametrize("name", [name for name in DIALECTS if name != "beeos"])
@pytest.mark.parametrize(
    ("secret", "key"),
    [
        (SECRET, SECRET.encode()),
        ("grüße-aus-der-ferne", "grüße-aus-der-ferne".encode()),
        ("whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode(), b"0123456789abcdef01234567"),
    ],
)
def test_a_secret_signs_by_standard_webhooks(name: str, secret: str, key: bytes) -> None:
    digest = hmac.digest(key, b'd1.1763622000.{"a":1}', hashlib.sha256)
    for dialect in DIALECTS[name]:
        assert form(dialect).signature(secret, SIGNING) == [
            ("webhook-timestamp", "1763622000"),
            ("webhook-signature", f"v1,{base64.b64encode(digest).decode()}"),
        ]


def test_the_signature_is_that_of_standard_webhooks_own_example() -> None:
    """The example in the Standard Webhooks specification and its libraries' tests."""
    example = Signing(
        delivery_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        task_id="t1",
        timestamp_s=1_614_265_330,
        body=b'{"test": 2432232314}',
    )
    headers = form(v1.JSONRPC).signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", example)
    assert dict(headers)["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_beeos_signs_in_its_own_way() -> None:
    for dialect in DIALECTS["beeos"]:
        assert form(dialect).signature(SECRET, SIGNING) == [
            ("X-BeeOS-Event", "task.state"),
            ("X-BeeOS-Task-Id", "t1"),
            ("X-BeeOS-Signature", f"t=1763622000,v1={signed_hex(SECRET.encode(), b'1763622000.' + SIGNING.body)}"),
        ]


def test_beeos_names_the_event_of_an_artifact() -> None:
    push = form(beeos.JSONRPC)
    body = push.encode(HEAD, Artifact(artifact_id="a", parts=(Part(text="x"),)), lambda: record(TaskState.WORKING))
    assert body is not None
    headers = push.signature(SECRET, msgspec.structs.replace(SIGNING, body=body))
    assert ("X-BeeOS-Event", "task.artifact") in headers
