"""What is secret of a webhook is written in no dialect's answer (DESIGN §7: secrets are write-only)."""

import pytest

from dragoman.dialects import beeos, evoai, kaos, protoagent, v03, v1
from dragoman.dialects.api import Dialect
from dragoman.model.operations import CreatePushConfig, GetPushConfig, ListPushConfigs, PushConfig

CONFIG = PushConfig(
    url="https://hooks.example/",
    id="hook",
    task_id="task",
    token="MAGIC-token",
    scheme="Bearer",
    credentials="MAGIC-credentials",
    secret="MAGIC-secret",
)
DIALECTS = [v1.JSONRPC, v1.REST, v03.JSONRPC, v03.REST, beeos.JSONRPC, evoai.JSONRPC, kaos.JSONRPC]
DIALECTS += [protoagent.JSONRPC, protoagent.REST]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_answer_holds_what_is_secret(dialect: Dialect) -> None:
    answers = [
        dialect.encode_result(CreatePushConfig(config=CONFIG), CONFIG),
        dialect.encode_result(GetPushConfig(task_id="task", id="hook"), CONFIG),
        dialect.encode_result(ListPushConfigs(task_id="task"), (CONFIG,)),
    ]
    for answer in answers:
        assert b"MAGIC" not in answer
    assert any(b"hooks.example" in answer for answer in answers)
