"""The headers of an attempt, and that official verifiers take them."""

import base64
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from dragoman.dialects.beeos import JSONRPC as BEEOS
from dragoman.model.operations import PushConfig
from dragoman.push.caller import header_fault, make_headers
from dragoman.store.outbox import Due
from tests.push.rig import FORM, delivery

NOW_MS = int(datetime.now(UTC).timestamp() * 1000)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
URL = "https://hooks.example.org/a"
SECRET = "whsec_" + base64.b64encode(b"twenty-four random bytes").decode()


def due(**config: str) -> Due:
    return Due(
        number=7,
        task_id="t",
        agent="echo",
        config=PushConfig(**{"url": URL, **config}),  # type: ignore[arg-type]
        host="https://hooks.example.org:443",
        delivery=delivery(b'{"task": 1}', 3, id="msg_1", traceparent=TRACE),
        attempts=0,
        made_ms=NOW_MS,
    )


def test_what_goes_with_every_call() -> None:
    assert make_headers(due(), FORM, FORM, 1_800_000_000_999, None) == {
        "content-type": "application/a2a+json",
        "webhook-id": "msg_1",
        "webhook-timestamp": "1800000000",
        "x-dragoman-seq": "3",
        "traceparent": TRACE,
    }


def test_without_a_trace_no_traceparent_goes_out() -> None:
    bare = replace(due(), delivery=replace(due().delivery, traceparent=None))
    assert "traceparent" not in make_headers(bare, FORM, FORM, NOW_MS, None)


@pytest.mark.parametrize("secret", [SECRET, "a plain text of 16 or more characters"])
def test_the_official_library_verifies_the_signature(secret: str) -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)  # the library takes what is five minutes old at most
    sent = make_headers(due(secret=secret), FORM, FORM, now_ms, None)
    key = secret if secret.startswith("whsec_") else base64.b64encode(secret.encode()).decode()
    assert Webhook(key).verify(b'{"task": 1}', sent) == {"task": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook(key).verify(b'{"task": 2}', sent)
    with pytest.raises(WebhookVerificationError):
        Webhook(key).verify(b'{"task": 1}', {**sent, "webhook-id": "msg_2"})


def test_each_attempt_is_signed_at_its_own_time() -> None:
    first, second = (make_headers(due(secret=SECRET), FORM, FORM, at_ms, None) for at_ms in (NOW_MS, NOW_MS + 5000))
    assert first["webhook-id"] == second["webhook-id"]
    assert first["webhook-timestamp"] != second["webhook-timestamp"]
    assert first["webhook-signature"] != second["webhook-signature"]


def test_a_jwt_is_the_bearer_where_nothing_else_is() -> None:
    asked: list[tuple[str, str, str, bytes]] = []

    def token(*told: object) -> str:
        asked.append(told)  # type: ignore[arg-type]
        return "e.y.J"

    assert make_headers(due(), FORM, FORM, NOW_MS, token)["authorization"] == "Bearer e.y.J"
    both = make_headers(due(token="mine"), FORM, FORM, NOW_MS, token)
    assert (both["authorization"], both["x-dragoman-jwt"]) == ("Bearer mine", "e.y.J")
    assert asked[0] == (URL, "msg_1", "t", b'{"task": 1}')


def test_where_there_is_no_jwt_none_goes_out() -> None:
    sent = make_headers(due(), FORM, FORM, NOW_MS, lambda *told: None)
    assert not {"authorization", "x-dragoman-jwt"} & sent.keys()


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "HOST", "webhook-id", "X\r\nY", "", "a b"])
def test_headers_that_are_not_the_callers_to_set_are_refused(name: str) -> None:
    form = replace(FORM, authorization=lambda config: [(name, "x")])
    assert "X-API-Key" in str(header_fault(form, due().config))


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\0b", "\x7f"])
def test_a_value_that_would_make_another_header_is_refused(value: str) -> None:
    form = replace(FORM, authorization=lambda config: [("X-API-Key", value)])
    assert "control character" in str(header_fault(form, due().config))
    assert header_fault(FORM, due(token="plain").config) is None


def test_what_is_ours_is_not_replaced_by_what_a_caller_registered() -> None:
    form = replace(FORM, authorization=lambda config: [("Webhook-Id", "theirs"), ("X-Dragoman-Seq", "9")])
    sent = make_headers(due(), form, form, NOW_MS, None)
    assert (sent["webhook-id"], sent["x-dragoman-seq"]) == ("msg_1", "3")


def test_a_body_of_another_dialect_has_its_own_type_and_signature_and_the_tokens_of_its_configuration() -> None:
    assert BEEOS.push is not None
    sent = make_headers(due(token="t", secret=SECRET), BEEOS.push, FORM, NOW_MS, None)
    assert sent["content-type"] == "application/json"
    assert sent["x-beeos-webhook-format"] == "a2a"
    assert "x-beeos-signature" in sent
    assert "webhook-signature" not in sent
    assert (sent["authorization"], sent["x-a2a-notification-token"]) == ("Bearer t", "t")
