"""Links to large files: who has one may read that file until it expires, and nothing else."""

from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.engine.files import Expired, Links, same_parts
from dragoman.model.errors import A2AError, Forbidden, NotFound
from dragoman.model.events import ArtifactChunk, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus
from dragoman.store.blobs.api import BlobAddress
from tests.engine.house import StandingClock

BASE = "https://agents.example.org"
EXPIRE_S = 60
PLACE = BlobAddress.of("01a1f92a-3e47-7761-82d7-4cc7178158f7", b"content")
FILE = Part(file=str(PLACE), filename="a b&c=d.txt", media_type="text/plain")


def linked(links: Links, part: Part = FILE) -> str:
    message = links.at(BASE).message(Message(message_id="m", role=Role.AGENT, parts=(part,)))
    (found,) = message.parts
    assert found.url is not None
    assert found.file is None
    assert (found.filename, found.media_type) == (part.filename, part.media_type)
    return found.url


def claimed(links: Links, url: str) -> object:
    parts = urlsplit(url)
    _, _, task_id, digest = parts.path.split("/")
    return links.claim(task_id, digest, dict(parse_qsl(parts.query, keep_blank_values=True)))


def test_a_link_says_what_its_part_says() -> None:
    links = Links(b"secret", EXPIRE_S, clock := StandingClock())
    url = linked(links)
    assert url.startswith(f"{BASE}/files/{PLACE}?")
    claim = links.claim(PLACE.task_id, PLACE.digest, dict(parse_qsl(urlsplit(url).query)))
    assert (claim.place, claim.name, claim.media_type) == (PLACE, "a b&c=d.txt", "text/plain")
    assert claim.expires == clock.ms // 1000 + EXPIRE_S


def test_each_reading_gets_a_link_that_holds_as_long() -> None:
    links = Links(b"secret", EXPIRE_S, clock := StandingClock())
    first = linked(links)
    clock.ms += 1000 * EXPIRE_S
    second = linked(links)
    claimed(links, second)
    with pytest.raises(Expired, match="read the task again"):
        claimed(links, first)


def test_a_link_of_another_server_on_the_same_store_is_good() -> None:
    clock = StandingClock()
    claimed(Links(b"secret", EXPIRE_S, clock), linked(Links(b"secret", 5, clock)))


def test_a_link_of_another_store_is_not() -> None:
    clock = StandingClock()
    with pytest.raises(Forbidden):
        claimed(Links(b"secret", EXPIRE_S, clock), linked(Links(b"other", EXPIRE_S, clock)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("expires=1", "expires=2"),
        ("type=text%2Fplain", "type=text%2Fhtml"),
        ("name=a", "name=b"),
        ("name=a+b%26c%3Dd.txt&", ""),
        ("/01a1f92a", "/01a1f92b"),
        (PLACE.digest[:5], "00000"),
        ("signature=", "signature=A"),
        ("&signature=", "&sig="),
        ("expires=", "expires=0"),
        ("expires=", "expires=%D9%A1"),
    ],
)
def test_a_link_that_was_changed_is_refused(old: str, new: str) -> None:
    links = Links(b"secret", EXPIRE_S, StandingClock())
    url = linked(links)
    assert old in url
    with pytest.raises((Forbidden, NotFound)):
        claimed(links, url.replace(old, new, 1))


def test_name_and_type_cannot_be_moved_into_one_another() -> None:
    links = Links(b"secret", EXPIRE_S, clock := StandingClock())
    fields = {"name": "ab", "type": "c", "expires": str(clock.ms // 1000 + EXPIRE_S)}
    url = linked(links, Part(file=str(PLACE), filename="a", media_type="bc"))
    signature = dict(parse_qsl(urlsplit(url).query))["signature"]
    with pytest.raises(Forbidden):
        links.claim(PLACE.task_id, PLACE.digest, {**fields, "signature": signature})


@given(task_id=st.text(), digest=st.text(), query=st.dictionaries(st.text(), st.text()))
def test_anything_at_all_is_a_claim_or_an_error_of_ours(task_id: str, digest: str, query: dict[str, str]) -> None:
    with pytest.raises(A2AError):
        Links(b"secret", EXPIRE_S, StandingClock()).claim(task_id, digest, query)


@given(name=st.text(), media_type=st.text())
def test_whatever_a_file_is_called_its_link_is_good(name: str, media_type: str) -> None:
    links = Links(b"secret", EXPIRE_S, StandingClock())
    url = linked(links, Part(file=str(PLACE), filename=name, media_type=media_type))
    assert url.isascii()
    claimed(links, url)


def test_our_own_links_are_known_under_any_host_and_others_are_not() -> None:
    links = Links(b"secret", EXPIRE_S, clock := StandingClock())
    url = linked(links)
    assert links.place(url) == PLACE
    assert links.place(url.replace(BASE, "http://10.0.0.1:7870")) == PLACE
    assert links.place("https://example.org/files/a/b") is None
    assert links.place("https://[::1") is None
    assert links.place(url.replace("signature=", "signature=A")) is None
    clock.ms += 1000 * EXPIRE_S
    with pytest.raises(Expired):
        links.place(url)


def test_what_holds_no_file_stays_the_same_object() -> None:
    at = Links(b"secret", EXPIRE_S, StandingClock()).at(BASE)
    plain = Message(message_id="m", role=Role.USER, parts=(Part(text="x"), Part(raw=b"small"), Part(url="https://x")))
    head = TaskHead(
        id="t", context_id="c", agent="a", owner="", dialect="1.0", mount="/", created_at="2026-11-20T00:00:00.000Z"
    )
    status = TaskStatus(state=TaskState.WORKING, timestamp=head.created_at)
    record = Record(head=head, seq=1, status=status, history=(plain,))
    events = (
        Submitted(plain, head.created_at),
        StatusChanged(TaskState.WORKING, head.created_at, plain),
        StatusChanged(TaskState.WORKING, head.created_at),
        ArtifactChunk(Artifact(artifact_id="x", parts=plain.parts)),
    )
    for event in events:
        assert at.event(event) is event
    assert at.record(record) is record
    assert at.message(plain) is plain


def test_a_link_stands_for_the_bytes_it_leads_to() -> None:
    told = Part(
        url=linked(Links(b"secret", EXPIRE_S, StandingClock())), filename=FILE.filename, media_type=FILE.media_type
    )
    given_ = Part(raw=b"content", filename=FILE.filename, media_type=FILE.media_type)
    text = Part(text="x")
    assert same_parts((text, told), (text, given_))
    assert same_parts((given_,), (given_,))
    assert not same_parts((told,), (Part(raw=b"other", filename=FILE.filename, media_type=FILE.media_type),))
    assert not same_parts((told,), (Part(raw=b"content"),))
    assert not same_parts((told,), (given_, text))
    assert not same_parts((Part(url="https://[::1"),), (Part(url="https://x"),))
