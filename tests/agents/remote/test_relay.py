"""The part of a repeated artifact that is not known yet."""

from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.remote.credentials import CallCredentials
from dragoman.agents.remote.relay import Overlap, Relay, overlaps
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.updates import ArtifactUpdate
from dragoman.store.blobs.api import BlobAddress
from dragoman.testing.run import FakeRun
from tests.kit.values import artifact

Said = list[tuple[bool, str]]


def told_of(told: str, came: list[tuple[str, bool]], *, anew: bool = False) -> Said:
    """The chunks, each with `append`, that are passed on to a reader who knows `told`."""
    pending: Overlap | None = overlaps([artifact(told)], anew=anew)["a"]
    passed: Said = []
    for text, append in came:
        if pending is None:
            passed.append((append, text))
            continue
        chunk = pending.chunk(artifact(text), append=append, whole=False)
        if chunk.artifact is not None:
            passed.append((chunk.append, "".join(part.text or "" for part in chunk.artifact.parts)))
        if chunk.settled:
            pending = None
    if pending is not None and (left := pending.left()) is not None:
        passed.append((False, "".join(part.text or "" for part in left.parts)))
    return passed


def test_what_goes_on_is_passed_on() -> None:
    assert told_of("one ", [("two ", True), ("three", True)]) == [(True, "two "), (True, "three")]


def test_what_begins_anew_is_held_back_until_it_says_more() -> None:
    assert told_of("one two ", [("one ", False), ("two th", True), ("ree", True)]) == [(True, "th"), (True, "ree")]


def test_what_turns_out_to_be_another_replaces_it() -> None:
    came = [("one ", False), ("three", True), (" four", True)]
    assert told_of("one two ", came) == [(False, "one three"), (True, " four")]


def test_what_stops_short_replaces_it_in_the_end() -> None:
    assert told_of("one two ", [("one ", False)]) == [(False, "one ")]


def test_deltas_that_begin_anew_are_told_apart_from_such_as_go_on() -> None:
    assert told_of("one two ", [("one two ", True), ("three", True)], anew=True) == [(True, "three")]
    assert told_of("one two ", [("three", True)], anew=True) == [(True, "three")]
    assert told_of("one two ", [("on", True), ("ward", True)], anew=True) == [(True, "onward")]


def test_a_link_to_bytes_is_those_bytes() -> None:
    raw = b"x" * 2000
    link = Part(url=f"http://here/files/t/{BlobAddress.of('', raw).digest}?sig=1", filename="f")
    overlap = Overlap((Part(text="see "), link))
    same = Artifact(artifact_id="a", parts=(Part(text="see "), Part(raw=raw, filename="f")))
    assert overlap.chunk(same, append=False, whole=True).artifact is None


@given(st.text("ab", max_size=8), st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=6))
def test_whatever_is_told_again_folds_to_what_the_upstream_has(told: str, texts: list[str]) -> None:
    passed = told_of(told, [(text, index > 0) for index, text in enumerate(texts)])
    whole = told
    for append, text in passed:
        whole = whole + text if append else text
    assert whole == "".join(texts)
    if "".join(texts).startswith(told):
        assert all(append for append, _ in passed)


async def test_a_text_counts_although_what_began_its_artifact_was_left_out() -> None:
    run = FakeRun(Message(message_id="m", role=Role.USER, parts=(Part(text="Hi"),)))
    relay = Relay(run, CallCredentials(None, forwards=False), "partner")
    for part, append in ((Part(data=2**60), False), (Part(text="Hello"), True)):
        given = Artifact(artifact_id="a", parts=(part,))
        await relay.pass_chunk(ArtifactUpdate(task_id="t", context_id="c", artifact=given, append=append))
    assert (relay.emitted, len(relay.faults)) == (True, 1)
    assert [each.parts for each in run.record.artifacts] == [(Part(text="Hello"),)]
