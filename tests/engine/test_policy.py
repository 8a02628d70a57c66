"""The identity of calls, tokens and ids: pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.engine import policy
from dragoman.engine.policy import EngineSettings
from dragoman.model.errors import InvalidParams
from dragoman.model.message import Part
from dragoman.model.principal import KeyLimits, Principal
from dragoman.store.api import OverQuota, Quota
from dragoman.store.members import TeamMembers
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
@pytest.mark.parametrize(("of_team", "who"), [(False, "you have"), (True, "your team has")])
def test_a_quota_of_one_is_said_in_the_singular(limit: str, number: int, told: str, of_team: bool, who: str) -> None:
    settings = EngineSettings(max_open_tasks=number, max_daily_tasks=number)
    own = KeyLimits(max_open_tasks=number, max_daily_tasks=number)
    quota = policy.quota(settings, Principal("team:a/key:x", team="a", team_limits=own), 0)
    said = str(policy.over_quota(OverQuota(limit, of_team=of_team), quota, 0))
    assert (told in said, who in said) == (True, True)


def test_the_limits_of_a_key_take_the_place_of_those_of_the_settings() -> None:
    settings = EngineSettings(max_open_tasks=5)
    assert policy.quota(settings, with_limits(KeyLimits(max_daily_tasks=7)), 0) == Quota(5, 7, 0)
    assert policy.quota(settings, with_limits(KeyLimits(max_open_tasks=50)), 0) == Quota(50, 0, 0)
    assert policy.quota(EngineSettings(), with_limits(KeyLimits(max_requests_per_s=1)), 0) is None


def test_the_limits_of_a_team_stand_beside_those_of_its_members() -> None:
    member = replace(with_limits(KeyLimits(max_open_tasks=2)), team="a", team_limits=KeyLimits(max_open_tasks=9))
    assert policy.quota(EngineSettings(), member, 0) == Quota(2, 0, 0, TeamMembers("a"), 9, 0)
    only_rate = replace(member, limits=None, team_limits=KeyLimits(max_requests_per_s=1))
    assert policy.quota(EngineSettings(), only_rate, 0) is None


def with_limits(limits: KeyLimits) -> Principal:
    return Principal("key:x", limits=limits)
