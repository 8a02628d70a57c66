"""The doctor's schema of 1.0 is that of the official proto, and any value gives faults."""

from typing import Any

import msgspec
import pytest
from a2a.types import a2a_pb2
from google.api import field_behavior_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.doctor.protocol import SCHEMAS, V1
from dragoman.doctor.schema import FaultKind, meant_name

TIGHTER = {("ListTasksResponse", name) for name in ("tasks", "nextPageToken", "pageSize", "totalSize")}
"""Fields that are required, and may be empty."""


@pytest.mark.parametrize("name", sorted(V1.shapes))
def test_the_schema_of_1_0_has_the_fields_of_the_official_proto(name: str) -> None:
    official = a2a_pb2.DESCRIPTOR.message_types_by_name[name]
    behavior = field_behavior_pb2.field_behavior
    required = {
        field.json_name
        for field in official.fields
        if field_behavior_pb2.REQUIRED in field.GetOptions().Extensions[behavior]
    }
    shape = V1.shapes[name]
    assert set(shape.members) == {field.json_name for field in official.fields}
    said = {member for member, is_ in shape.members.items() if is_.required}
    assert said == required - ({"contextId"} if name.endswith("Event") else set())
    assert {member for member, is_ in shape.members.items() if is_.required and not is_.filled} == {
        member for shape_name, member in TIGHTER if shape_name == name
    }
    oneofs = {field.json_name for oneof in official.oneofs for field in oneof.fields if not oneof.name.startswith("_")}
    assert shape.one_of == oneofs


def test_the_enums_of_1_0_are_those_of_the_official_proto() -> None:
    for name, words in V1.enums.items():
        official = set(a2a_pb2.DESCRIPTOR.enum_types_by_name[name].values_by_name)
        assert words == {word for word in official if not word.endswith("_UNSPECIFIED")}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(("task", "id", "status", "state", "kind", "parts", "file", "artifact", "x")), inner
        )
    ),
    max_leaves=6,
)


@settings(max_examples=20)
@given(value=_JSON)
def test_any_value_gives_faults_and_no_exception(value: Any) -> None:
    for schema in SCHEMAS.values():
        for kind in schema.shapes:
            faults = list(schema.faults(kind, value, "result"))
            assert isinstance(value, dict) or faults
            msgspec.json.encode([str(each) for each in faults])


def test_a_misspelt_field_is_one_fault_and_not_missing() -> None:
    task = {"id": "t", "Status": {"state": "TASK_STATE_WORKING"}}
    assert [each.kind for each in V1.faults("Task", task, "result")] == [FaultKind.NAME]


@pytest.mark.parametrize(
    ("said", "meant"),
    [("task_id", "taskId"), ("taskID", "taskId"), ("taskIdd", "taskId"), ("taskName", ""), ("id", ""), ("x", "")],
)
def test_a_name_is_told_from_a_misspelling(said: str, meant: str) -> None:
    assert meant_name(said, ["taskId", "contextId"]) == meant
