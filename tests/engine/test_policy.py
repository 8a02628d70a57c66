"""The identity of calls, tokens and ids: pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.engine import policy
from dragoman.engine.policy import EngineSettings
from dragoman.model.errors import InvalidParams
from dragoman.model.message import Part
from dragoman.model.principal import KeyLimits
from dragoman.store.api import Quota
from tests.engine.house import call, sending

UUID = "0190b0a0-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (Part(text="a"), "text/plain"),
        (Part(text="a", media_type="Text/HTML; charset=utf-8"), "text/html"),
        (Part(raw=b""), "application/octet-stream"),
        (Part(url="http://x"), "application/octet-stream"),
        (Part(data=None), "application/json"),
    ],
)
def test_the_media_type_of_a_part(part: Part, kind: str) -> None:
    assert policy.media_type(part) == kind


def test_calls_are_the_same_by_owner_agent_name_and_params() -> None:
    once = sending("a", message_id=UUID)
    same = policy.dedupe(call(once), once, 0)
    assert same is not None
    assert policy.dedupe(call(once), once, 0) == same
    for other in (call(once, owner="b"), call(once, agent="b"), call(once, idempotency_key=UUID)):
        different = policy.dedupe(other, once, 0)
        assert different is not None
        assert different.key != same.key
    changed = sending("b", message_id=UUID)
    found = policy.dedupe(call(changed), changed, 0)
    assert found is not None
    assert (found.key == same.key, found.digest == same.digest) == (True, False)
    waiting = sending("a", message_id=UUID, return_immediately=True)
    assert policy.dedupe(call(waiting), waiting, 0) is not None


@pytest.mark.parametrize("name", ["", "1", UUID[:-1], UUID + "0", "{" + UUID + "}", UUID.replace("-", "")])
def test_an_id_that_is_no_uuid_names_no_call(name: str) -> None:
    once = sending("a", message_id=name)
    assert policy.dedupe(call(once), once, 0) is None


@given(st.integers(0, 2**53 - 1), st.text(max_size=40))
def test_a_page_token_comes_back_as_it_was(status_ms: int, task_id: str) -> None:
    assert policy.read_page_token(policy.page_token(status_ms, task_id)) == (status_ms, task_id)


@given(st.text(max_size=60))
def test_any_page_token_is_read_or_refused(token: str) -> None:
    """Invariant 11."""
    try:
        status_ms, _ = policy.read_page_token(token)
        assert 0 <= status_ms < 2**53
    except InvalidParams:
        pass


@given(st.text("0123456789.x-+ ", max_size=20), st.integers(0, 100))
def test_any_last_id_is_read_or_refused(after: str, last: int) -> None:
    """Invariant 11."""
    try:
        seq, frame = policy.read_after(after, last)
        assert 0 <= seq <= last
        assert frame >= 0
    except InvalidParams:
        pass


@pytest.mark.parametrize(("number", "told"), [(1, "1 task "), (2, "2 tasks ")])
@pytest.mark.parametrize("limit", ["max_open_tasks", "max_daily_tasks"])
def test_a_quota_of_one_is_said_in_the_singular(limit: str, number: int, told: str) -> None:
    settings = EngineSettings(max_open_tasks=number, max_daily_tasks=number)
    assert told in str(policy.over_quota(limit, policy.quota(settings, None, 0), 0))


def test_the_limits_of_a_key_take_the_place_of_those_of_the_settings() -> None:
    settings = EngineSettings(max_open_tasks=5)
    assert policy.quota(settings, KeyLimits(max_daily_tasks=7), 0) == Quota(5, 7, 0)
    assert policy.quota(settings, KeyLimits(max_open_tasks=50), 0) == Quota(50, 0, 0)
    assert policy.quota(EngineSettings(), KeyLimits(max_requests_per_s=1), 0) is None
