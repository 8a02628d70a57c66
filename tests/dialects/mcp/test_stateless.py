"""What arrives in MCP 2026-07-28, and forms that agents ask with: whatever it is, it is a value or an A2AError."""

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from dragoman.dialects.mcp import names, stateless
from dragoman.dialects.mcp.questions import decode_response, forms_of, merge_forms, split_content
from dragoman.dialects.mcp.schemas import find_violation
from dragoman.dialects.mcp.stateless import MirroredHeaders
from dragoman.dialects.v03.fields import Fields
from dragoman.model.errors import A2AError
from dragoman.model.message import FORM_MEDIA_TYPE, Message, Part, Role

OWN = (names.TASKS, names.META_VERSION, names.META_CAPABILITIES, names.META_LOG_LEVEL, names.STATELESS)
OTHERS = (
    "type properties required items enum const object string array additionalProperties anyOf a a.b answer "
    "taskId inputResponses requestState notifications taskIds action accept content name arguments _meta extensions "
    "elicitation progressToken info"
)
WORDS = some.sampled_from([*OWN, *OTHERS.split()])
VALUES: Any = some.recursive(
    some.none() | some.booleans() | some.integers(-2, 2) | some.floats(-2, 2) | WORDS,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(WORDS, inner, max_size=5),
    max_leaves=25,
)
OBJECTS = some.dictionaries(WORDS, VALUES, max_size=6)
FIELDS = some.dictionaries(
    WORDS, some.dictionaries(some.sampled_from(["type", "items", "enum", "const"]), VALUES, max_size=3), max_size=3
)
SCHEMAS = some.fixed_dictionaries(
    {"type": some.just("object"), "properties": FIELDS | VALUES}, optional={"required": VALUES, "items": VALUES}
)
METHODS = some.sampled_from([names.TOOLS_CALL, names.TASKS_GET, names.DISCOVER, "x"])
HEADER = some.none() | WORDS


@given(OBJECTS, METHODS, HEADER, HEADER)
def test_any_params_give_a_value_or_an_error(params: dict[str, Any], method: str, named: str, name: str) -> None:
    fields, headers = Fields(params), MirroredHeaders(named, method, name)
    terms = None
    with contextlib.suppress(A2AError):
        terms = stateless.decode_terms(method, fields, headers)
    for decode in (stateless.decode_call, stateless.decode_update, stateless.decode_task_id, stateless.is_stateless):
        with contextlib.suppress(A2AError):
            decode(fields)
    if terms is not None:
        with contextlib.suppress(A2AError):
            stateless.decode_listen(fields, terms)
    with contextlib.suppress(A2AError):
        decode_response(fields)


@given(VALUES | OBJECTS, VALUES | SCHEMAS)
def test_any_value_fits_any_schema_or_does_not(value: Any, schema: Any) -> None:
    violation = find_violation(value, schema, "arguments")
    assert violation is None or violation[0].startswith("arguments")


@given(some.lists(VALUES | SCHEMAS, max_size=4), OBJECTS)
def test_any_question_has_forms(schemas: list[Any], content: dict[str, Any]) -> None:
    parts = tuple(Part(data=schema, media_type=FORM_MEDIA_TYPE, filename="f") for schema in schemas)
    forms = forms_of(Message(message_id="m", role=Role.AGENT, parts=parts))
    assert forms
    assert len({form.name for form in forms}) == len(forms)
    assert merge_forms(forms).params["requestedSchema"]["type"] == "object"
    for form in forms:
        find_violation(content, form.schema, "content")
    split_content(content)
