"""Credentials and secret of a webhook are in no answer; its token, a setting, is in those that its owner gets."""

import pytest

from dragoman.dialects import beeos, evoai, kaos, protoagent, v03, v1
from dragoman.dialects.api import Dialect
from dragoman.model.operations import CreatePushConfig, GetPushConfig, ListPushConfigs, PushConfig

CONFIG = PushConfig(
    url="https://hooks.example/",
    id="hook",
    task_id="task",
    token="shared-token",
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


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_token_is_given_back_where_a2a_says_so(dialect: Dialect) -> None:
    """A2A 1.0 §3.1.8: with all settings. For BeeOS, Evo AI and protoAgent it is the credential of the calls."""
    got = dialect.encode_result(GetPushConfig(task_id="task", id="hook"), CONFIG)
    listed = dialect.encode_result(ListPushConfigs(task_id="task"), (CONFIG,))
    made = dialect.encode_result(CreatePushConfig(config=CONFIG), CONFIG)
    withheld = dialect in (beeos.JSONRPC, evoai.JSONRPC, protoagent.JSONRPC, protoagent.REST)
    assert [b"shared-token" in each for each in (got, listed, made)] == [not withheld] * 3
