"""Decoding KAOS, which has no webhooks."""

import json
from typing import Any

import pytest

from dragoman.dialects.kaos import JSONRPC
from dragoman.model.errors import PushNotificationNotSupported

TEXT = {"parts": [{"text": "x"}]}


def call(method: str, params: Any) -> Any:
    return JSONRPC.decode(method, json.dumps(params).encode())


@pytest.mark.parametrize("webhook", [{"url": "https://example.com/h"}, {}, "https://example.com/h", 7])
def test_a_webhook_is_refused_in_whatever_form_it_comes(webhook: Any) -> None:
    for params in ({"pushNotificationConfig": webhook}, {"configuration": {"pushNotificationConfig": webhook}}):
        with pytest.raises(PushNotificationNotSupported):
            call("SendMessage", {"message": TEXT, **params})
