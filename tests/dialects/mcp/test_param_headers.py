"""Arguments that are repeated in headers (2026-07-28, Custom Headers from Tool Parameters)."""

from typing import Any

import pytest

from dragoman.dialects.mcp.param_headers import ParamHeader, UnusableSchema, encode_param_headers, find_param_headers


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(header: Any, kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": header}


def test_headers_are_found_along_properties() -> None:
    found = find_param_headers(schema(region=marked("Region"), at=schema(zone=marked("Zone", "integer"))))
    assert found == (ParamHeader("Mcp-Param-Region", ("region",)), ParamHeader("Mcp-Param-Zone", ("at", "zone")))


def test_a_name_or_a_value_is_no_annotation() -> None:
    plain = {"x-mcp-header": {"type": "string", "default": {"x-mcp-header": "A"}}}
    assert find_param_headers(schema(**plain)) == ()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (schema(a=marked("")), "not the name of a header"),
        (schema(a=marked("A B")), "not the name of a header"),
        (schema(a=marked("A\r\nX")), "not the name of a header"),
        (schema(a=marked(1)), "not the name of a header"),
        (schema(a=marked("A", "number")), "no string, integer or boolean"),
        (schema(a=marked("A", "object")), "no string, integer or boolean"),
        (schema(a=marked("A"), b=marked("a")), "there twice"),
        (schema(a={"type": "array", "items": marked("A")}), "beside the chain"),
        (schema(a={"anyOf": [marked("A")]}), "beside the chain"),
        ({"$defs": {"d": marked("A")}, **schema()}, "beside the chain"),
        ({**schema(), "x-mcp-header": "A"}, "beside the chain"),
    ],
)
def test_an_annotation_that_is_not_allowed_makes_the_tool_unusable(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UnusableSchema, match=told):
        find_param_headers(given)


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        (42, "42"),
        (-7.0, "-7"),
        (True, "true"),
        (None, None),
        ({}, None),
        (1.5, None),
    ],
)
def test_values_are_encoded_as_in_the_specification(value: Any, header: str | None) -> None:
    encoded = encode_param_headers((ParamHeader("Mcp-Param-A", ("b", "a")),), {"b": {"a": value}})
    assert encoded == ({} if header is None else {"Mcp-Param-A": header})


def test_an_argument_that_is_missing_has_no_header() -> None:
    assert encode_param_headers((ParamHeader("Mcp-Param-A", ("b", "a")),), {"b": 1}) == {}
