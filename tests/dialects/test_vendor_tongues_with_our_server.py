"""BeeOS, KAOS, Evo AI and protoAgent: what our own server writes in their dialects, read by a client."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects.api import Answer
from dragoman.dialects.beeos import REST as BEEOS_REST
from dragoman.dialects.beeos.client import TONGUE as BEEOS
from dragoman.dialects.extensions import USAGE
from dragoman.dialects.protoagent.extensions import COST_TYPE, MIME_TYPE, media_type
from dragoman.model import errors
from dragoman.model.errors import A2AError, AgentFailed
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import (
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
    TaskPage,
)
from dragoman.model.task import Record, Task, TaskHead, TaskState
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, TaskList, Update
from tests.dialects import shown, vendor_vectors
from tests.dialects.tongues import DIALECTS, SEND, TONGUES, called, of_all, told_by


def plain(part: Part) -> Part:
    """The part without what older dialects cannot say of it."""
    if part.raw is not None or part.url is not None:
        return part
    return replace(part, media_type=media_type(part), filename=None, metadata=unmarked(part.metadata))


def unmarked(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    return {name: value for name, value in (metadata or {}).items() if name != MIME_TYPE} or None


def of_the_agent(artifacts: tuple[Artifact, ...]) -> list[tuple[str, list[Part]]]:
    """The parts of artifacts, without those in which protoAgent tells the cost."""
    held = [
        (each.artifact_id, [plain(part) for part in each.parts if media_type(part) != COST_TYPE]) for each in artifacts
    ]
    return [(artifact_id, parts) for artifact_id, parts in held if parts]


KNOWN_TO_EVOAI = {TaskState.REJECTED: TaskState.FAILED, TaskState.AUTH_REQUIRED: TaskState.INPUT_REQUIRED}


def state_in(name: str, state: TaskState) -> TaskState:
    return KNOWN_TO_EVOAI.get(state, state) if name == "evoai" else state


def assert_is_of(name: str, task: Task, record: Record) -> None:
    assert (task.id, task.context_id) == (record.head.id, record.head.context_id)
    assert task.status.state is state_in(name, record.state)
    assert task.status.timestamp[:19] == record.status.timestamp[:19]
    assert of_the_agent(task.artifacts) == of_the_agent(record.artifacts)
    if name == "protoagent" and record.usage is not None:
        assert task.metadata is not None
        assert task.metadata[USAGE]["totalTokens"] == record.usage.total_tokens


def check_answer(name: str, operation: Operation, result: Any, answer: Answer) -> None:
    match result:
        case Record():
            assert isinstance(answer, Task)
            assert_is_of(name, answer, result)
        case TaskPage():
            assert isinstance(answer, TaskList)
            assert answer.total_size == result.total_size
            for task, record in zip(answer.tasks, result.records, strict=True):
                assert_is_of(name, task, record)
        case PushConfig():
            told = as_told(result)
            assert answer == (told if name in ("beeos", "evoai") else replace(told, events=()))
        case None:
            assert answer is None
        case _:
            assert answer == tuple([as_told(each) for each in result])


def as_told(config: PushConfig) -> PushConfig:
    """The webhook as its owner reads it: without its secrets, of which the token is one in these dialects."""
    return replace(config, token=None, secret=None, credentials=None)


@pytest.mark.parametrize(("name", "vector"), of_all("encode", "beeos", "kaos"))
def test_what_our_server_answers_is_understood(name: str, vector: dict[str, Any]) -> None:
    operation = shown.operation_of(vector)
    answer = TONGUES[name].read_answer(operation, json.dumps(vector["written"]["result"]).encode())
    check_answer(name, operation, shown.result_of(vector), answer)


@pytest.mark.parametrize(("name", "vector"), of_all("answer", "evoai", "protoagent"))
def test_what_our_server_answers_key_by_key_is_understood(name: str, vector: dict[str, Any]) -> None:
    operation = vendor_vectors.expected(vector)
    answer = TONGUES[name].read_answer(operation, json.dumps(vector["answer"]["result"]).encode())
    kind = vendor_vectors.RESULTS[vector["result"]] if vector["result"] is not None else None
    check_answer(name, operation, msgspec.convert(vector["value"], kind), answer)


def check_updates(name: str, head: TaskHead, event: Event, updates: list[Update]) -> None:
    """The part of one event that is compared: its task, and its state, its text or its artifact."""
    for each in updates:
        assert (each.id if isinstance(each, Task) else each.task_id) == head.id
    match event:
        case Submitted():
            (told,) = updates
            assert isinstance(told, Task | StatusUpdate)
            assert told.status.state is TaskState.SUBMITTED
        case StatusChanged():
            *before, told = updates
            assert isinstance(told, StatusUpdate)
            assert told.status.state is state_in(name, event.state)
            assert all(isinstance(each, ArtifactUpdate) and each.last_chunk for each in before)
            if event.progress is not None and name != "beeos":
                assert told.progress == event.progress
            if event.usage is not None and name == "protoagent":
                assert told.usage == event.usage
        case ArtifactChunk() if name != "evoai":  # which tells the text so far
            (told,) = updates
            assert isinstance(told, ArtifactUpdate)
            assert of_the_agent((told.artifact,)) == of_the_agent((event.artifact,))
            assert told.append or not event.append
        case _:
            assert name == "evoai" or not updates


@pytest.mark.parametrize(("name", "vector"), of_all("frames", "evoai", "protoagent"))
def test_what_our_server_streams_is_understood(name: str, vector: dict[str, Any]) -> None:
    head = msgspec.convert(vector["head"], TaskHead)
    for step in vector["log"]:
        event: Event = msgspec.convert(step["event"], Event)
        if any('"error"' in frame for frame in step["frames"]):
            with pytest.raises(AgentFailed) as raised:
                told_by(name, step["frames"][0].removeprefix("data: "))
            assert raised.value.task_id == head.id
            assert isinstance(event, StatusChanged)
            assert event.message is None or raised.value.details == event.message.text
            continue
        updates = [told for frame in step["frames"] for told in told_by(name, frame.removeprefix("data: "))]
        check_updates(name, head, event, updates)


@pytest.mark.parametrize(("name", "vector"), of_all("event", "beeos"))
def test_what_our_server_streams_without_envelopes_is_understood(name: str, vector: dict[str, Any]) -> None:
    updates = [told for frame in vector["frames"] for told in told_by(name, json.dumps(frame))]
    check_updates(name, msgspec.convert(vector["head"], TaskHead), msgspec.convert(vector["event"], Event), updates)


def taken_up(name: str) -> Iterator[Any]:
    for prefix, frames in (("subscription", "frames"), ("subscribe", "frames")):
        for param in of_all(prefix, name):
            _, vector = param.values
            yield pytest.param(name, vector.get("record", vector.get("value")), vector[frames], id=param.id)


@pytest.mark.parametrize(
    ("name", "record", "frames"), [each for name in ("beeos", "evoai", "protoagent") for each in taken_up(name)]
)
def test_how_our_server_begins_a_subscription_is_understood(name: str, record: Any, frames: list[Any]) -> None:
    known = msgspec.convert(record, Record)
    told: list[Update] = []
    for frame in frames:
        text = frame.removeprefix("data: ") if isinstance(frame, str) else json.dumps(frame)
        if '"error"' in text:
            with pytest.raises(AgentFailed):
                told_by(name, text)
            return
        told += told_by(name, text)
    states = [each.status.state for each in told if isinstance(each, Task | StatusUpdate)]
    assert set(states) == {state_in(name, known.state)}
    if name != "evoai":
        held = [each.artifact for each in told if isinstance(each, ArtifactUpdate)]
        whole = next((each.artifacts for each in told if isinstance(each, Task)), tuple(held))
        assert of_the_agent(whole) == of_the_agent(known.artifacts)


ERRORS: tuple[A2AError, ...] = (
    errors.ParseError("p"),
    errors.InvalidRequest("r"),
    errors.MethodNotFound("x"),
    errors.InvalidParams("message.parts", "is required"),
    errors.InternalError("abc"),
    errors.TaskNotFound("t"),
    errors.TaskNotCancelable("t", "completed"),
    errors.PushNotificationNotSupported(),
    errors.UnsupportedOperation("u"),
    errors.ContentTypeNotSupported("c"),
    errors.InvalidAgentResponse("i"),
    errors.ExtendedAgentCardNotConfigured("e"),
    errors.ExtensionSupportRequired("https://example.com/x"),
    errors.VersionNotSupported("9"),
    errors.AgentNotFound("a"),
    errors.AgentOffline("a"),
    errors.TaskTimeout("t", 1.0),
    errors.AgentFailed("t", "why"),
    errors.TooManyRequests("max", "too many", 3),
    errors.Unauthorized("no"),
    errors.Unauthorized("no", missing=True),
    errors.Forbidden("no"),
)
AS_ANOTHER: dict[str, dict[type, type]] = {
    "beeos": {errors.PushNotificationNotSupported: errors.UnsupportedOperation},
    "kaos": {
        errors.AgentNotFound: errors.InvalidParams,
        errors.AgentOffline: errors.InternalError,
        errors.TaskTimeout: errors.InternalError,
        errors.AgentFailed: errors.InternalError,
        errors.TooManyRequests: errors.TooManyRequests,
    },
    "evoai": {errors.AgentOffline: errors.AgentFailed, errors.TaskTimeout: errors.AgentFailed},
    "protoagent": {},
}
"""The error that stands for one for which a system has neither code nor status nor word."""


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", TONGUES)
def test_our_own_errors_are_understood(name: str, error: A2AError) -> None:
    dialect, tongue = DIALECTS[name], TONGUES[name]
    status, whole = dialect.error_status(error), None if dialect.http_error is None else dialect.http_error(error)
    before, after = dialect.around_error(b"1")
    body = before + dialect.encode_error(error) + after if whole is None else whole
    heard = [tongue.read_error(body, status)]
    if whole is None and status == 200:
        heard.append(tongue.read_error(dialect.encode_error(error), 0))
    for each in heard:
        assert type(each) is AS_ANOTHER[name].get(type(error), type(error))
        if name != "kaos" and isinstance(each, errors.Unauthorized) and isinstance(error, errors.Unauthorized):
            assert each.missing == error.missing
    if type(error) is type(heard[0]) and name in ("beeos", "protoagent") and whole is None:
        assert heard[0].metadata == error.metadata
        assert heard[0].message == error.message


def test_beeos_words_over_rest_are_understood() -> None:
    for error in ERRORS:
        heard = BEEOS.read_error(BEEOS_REST.encode_error(error), BEEOS_REST.error_status(error))
        assert type(heard) is AS_ANOTHER["beeos"].get(type(error), type(error))


# Calls and logs of any shape


words = st.text("aé \n", min_size=1, max_size=4)
some_words = st.none() | words
objects = st.none() | st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9) | words, min_size=1, max_size=2)
parts = st.one_of(
    st.builds(Part, text=st.text("aé", max_size=3), metadata=objects),
    st.builds(Part, raw=st.binary(max_size=4), filename=some_words, media_type=some_words, metadata=objects),
    st.builds(Part, url=words, filename=some_words, media_type=some_words),
    st.builds(Part, data=st.lists(words, max_size=2) | st.dictionaries(words, words, max_size=2), metadata=objects),
)
webhooks = st.builds(
    PushConfig,
    url=words.map("https://example.com/{}".format),
    id=st.just("") | st.sampled_from("pq"),
    token=st.none() | st.just("s"),
    scheme=st.just("Bearer"),
    credentials=st.just("k"),
    secret=st.none() | st.just("0123456789abcdef"),
    events=st.sets(st.sampled_from(["completed", "input-required"])).map(sorted).map(tuple),
)
sends = st.sampled_from([SendMessage, StreamMessage]).flatmap(
    lambda kind: st.builds(
        kind,
        message=st.builds(
            Message,
            message_id=st.uuids().map(str),
            role=st.just(Role.USER),
            parts=st.lists(parts, min_size=1, max_size=3).map(tuple),
            context_id=some_words,
            task_id=some_words,
            reference_task_ids=st.lists(words, max_size=2).map(tuple),
            extensions=st.lists(words, max_size=1).map(tuple),
        ),
        return_immediately=st.booleans(),
        history_length=st.none() | st.integers(0, 9),
        accepted_output_modes=st.lists(words, max_size=2).map(tuple),
        metadata=objects,
        skill=some_words,
        skills=st.lists(words, max_size=2).map(tuple),
        push_config=st.none() | webhooks,
    )
)


@given(sends)
@pytest.mark.parametrize("name", TONGUES)
def test_our_server_reads_any_send_as_what_was_asked(name: str, asked: SendMessage) -> None:
    if name == "kaos":
        asked = replace(SEND, **{each: getattr(asked, each) for each in SEND.__struct_fields__})
        asked = replace(asked, push_config=None)
    call = called(TONGUES[name], asked)
    heard = DIALECTS[name].decode(call.method, call.params)
    if asked.skill is not None:
        asked = replace(asked, metadata={**(asked.metadata or {}), "skill": asked.skill})
    if name == "kaos":  # whose messages have the metadata of their task
        asked = replace(asked, message=replace(asked.message, metadata=asked.metadata))
    assert heard == asked


T = "2026-11-20T07:00:00.000Z"
HEAD = TaskHead(id="t", context_id="c", agent="a", owner="o", dialect="x", mount="/", created_at=T)


def fold(updates: list[Update]) -> tuple[TaskState | None, dict[str, str]]:
    """The last state, and the text of each artifact, as a client adds them up."""
    state, texts = None, dict[str, str]()
    for each in updates:
        match each:
            case Task() | StatusUpdate():
                state = each.status.state
            case ArtifactUpdate():
                text = "".join(part.text or "" for part in each.artifact.parts)
                key = each.artifact.artifact_id
                texts[key] = texts.get(key, "") + text if each.append else text
    return state, texts


@given(st.lists(st.tuples(st.sampled_from("ab"), st.text("xyz", min_size=1, max_size=3), st.booleans()), max_size=6))
@pytest.mark.parametrize("name", ["beeos", "protoagent"])
def test_whoever_adds_up_what_is_streamed_has_the_artifacts(name: str, chunks: list[tuple[str, str, bool]]) -> None:
    dialect, seen = DIALECTS[name], set[str]()
    log: list[Event] = [Submitted(SEND.message, T)]
    for key, text, last in chunks:
        log.append(ArtifactChunk(Artifact(artifact_id=key, parts=(Part(text=text),)), key in seen, last))
        seen.add(key)
    log.append(StatusChanged(TaskState.COMPLETED, T))
    folded, updates = Fold(HEAD), list[Update]()
    for seq, event in enumerate(log, 1):
        folded.add(seq, event)
        record = folded.record() if type(event) in dialect.folds else None
        for frame in dialect.encode_event(HEAD, event, record):
            updates += TONGUES[name].read_update(frame)
    expected = {each.artifact_id: "".join(part.text or "" for part in each.parts) for each in folded.record().artifacts}
    state, texts = fold(updates)
    assert state is TaskState.COMPLETED
    assert {key: text for key, text in texts.items() if text} == expected
