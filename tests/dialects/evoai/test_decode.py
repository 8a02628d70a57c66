"""Decoding Evo AI: webhooks in their many spellings."""

import json
from typing import Any

import pytest

from dragoman.dialects.evoai import JSONRPC
from dragoman.model.operations import CreatePushConfig


@pytest.mark.parametrize(
    ("authentication", "scheme", "credentials"),
    [
        ({"type": "none"}, None, None),
        ({"type": "None", "token": ""}, None, None),
        ({"type": "bearer", "token": "s"}, "bearer", "s"),
        ({"type": "apikey", "apiKey": "s"}, "ApiKey", "s"),
        ({"type": "apikey", "key": "s"}, "ApiKey", "s"),
        ({"type": "apikey", "key": "s", "headerName": "x-api-key"}, "ApiKey", "s"),
        ({"type": "apikey", "key": "s", "headerName": "X-Key"}, "ApiKey", '{"in":"header","name":"X-Key","value":"s"}'),
        (
            {"schemes": ["ApiKey"], "credentials": '{"in": "header", "name": "X-Key", "value": "s"}'},
            "ApiKey",
            '{"in":"header","name":"X-Key","value":"s"}',
        ),
        ({"schemes": ["Bearer", "Basic"], "credentials": "s"}, "Bearer", "s"),
    ],
)
@pytest.mark.parametrize("name", ["authentication", "webhookAuthenticationInfo"])
def test_a_webhook_authenticates_as_its_owner_says(
    name: str, authentication: dict[str, Any], scheme: str | None, credentials: str | None
) -> None:
    params = {"taskId": "t1", "pushNotificationConfig": {"url": "https://example.com/h", name: authentication}}
    operation = JSONRPC.decode("tasks/pushNotificationConfig/set", json.dumps(params).encode())
    assert isinstance(operation, CreatePushConfig)
    assert (operation.config.scheme, operation.config.credentials) == (scheme, credentials)
