"""An OpenAPI document as a page for people.

Invariant: no text of the document becomes markup. The page has no script and loads nothing, and its content security
policy forbids both.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any

from dragoman.bindings.request import Header

STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d9dce1, #3a3f47); --quiet: light-dark(#59606b, #a4acb8); }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 56rem; margin: 3rem auto; padding: 0 1.25rem;
  color: light-dark(#1c2026, #e6e9ee); background: light-dark(#fff, #16191e); overflow-wrap: break-word; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; }
h3 { font-size: 1rem; margin: 1.1rem 0 .25rem; }
a { color: light-dark(#0b57b0, #8ab8ff); }
code { font: .875rem/1.4 ui-monospace, monospace; }
details { border-top: 1px solid var(--line); padding: .6rem 0; overflow-x: auto; }
summary { cursor: pointer; }
details > :not(summary) { margin-left: 1.1rem; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; border-top: 1px solid var(--line); }
th { font-weight: normal; color: var(--quiet); border-top: 0; }
.method { display: inline-block; min-width: 4.2rem; }
.quiet { color: var(--quiet); }
"""

_DIGEST = b64encode(sha256(STYLE.encode()).digest()).decode()

SAFETY: tuple[Header, ...] = (
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; ".encode()
        + b"frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
)
"""Headers of the page."""

CODE = re.compile(r"`([^`]+)`")


def render(document: Mapping[str, Any]) -> str:
    """The page. It shows operations by tag, then the schemas, each with an anchor of its own."""
    info = document["info"]
    sections = "\n".join(_section(tag, document) for tag in document["tags"])
    schemas = "\n".join(_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items()))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(info["title"])}: HTTP</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(info["title"])} over HTTP</h1>
<p>{_text(info["description"])}</p>
<p class="quiet">Version {escape(info["version"])}. For programs: <a href="openapi.json">openapi.json</a>.</p>
{sections}
<h2>Schemas</h2>
{schemas}
</body>
</html>
"""


def _section(tag: Mapping[str, str], document: Mapping[str, Any]) -> str:
    shown = "\n".join(
        _operation(path, method, operation)
        for path, item in (*document["paths"].items(), *document.get("webhooks", {}).items())
        for method, operation in item.items()
        if method != "servers" and tag["name"] in operation["tags"]
    )
    return f"<h2>{escape(tag['name'])}</h2>\n<p>{_text(tag['description'])}</p>\n{shown}"


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    name = escape(operation["operationId"])
    parts = [f'<p class="quiet">Operation {name}</p>']
    if "description" in operation:
        parts.append(f"<p>{_text(operation['description'])}</p>")
    if rows := [_parameter(each) for each in operation.get("parameters", ())]:
        parts.append(_table("Parameters", ("Name", "In", "Type", ""), rows))
    if "requestBody" in operation:
        body = operation["requestBody"]
        needed = "" if body["required"] else " (may be left out)"
        parts.append(f"<h3>Body{needed}</h3>{_contents(body['content'])}")
    answers = [
        (f"<code>{escape(status)}</code>", _text(answer["description"]), _contents(answer.get("content", {})))
        for status, answer in operation["responses"].items()
    ]
    parts.append(_table("Answers", ("Status", "", "Form"), answers))
    return (
        f'<details id="{name}"><summary><code><span class="method">{escape(method.upper())}</span> '
        f"{escape(path)}</code> {_text(operation['summary'])}</summary>{''.join(parts)}</details>"
    )


def _parameter(said: Mapping[str, Any]) -> tuple[str, ...]:
    schema = said["schema"]
    description = said.get("description") or schema.get("description", "")
    return f"<code>{escape(said['name'])}</code>", escape(said["in"]), _type(schema), _text(description)


def _contents(content: Mapping[str, Any]) -> str:
    return "<br>".join(_content(kind, each) for kind, each in content.items())


def _content(kind: str, each: Mapping[str, Any]) -> str:
    data = each["schema"].get("properties", {}).get("data")
    shown = f"events, each a {_type(data['contentSchema'])}" if data else _type(each["schema"])
    return f"<code>{escape(kind)}</code>: {shown}"


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(field)}</code>",
            _type(each),
            "required" if field in needed else "",
            _text(each.get("description", "")),
        )
        for field, each in schema.get("properties", {}).items()
    ]
    said = f"<p>{_text(schema['description'])}</p>" if "description" in schema else ""
    values = f"<p>{_type(schema)}</p>" if "enum" in schema else ""
    table = _table("", ("Field", "Type", "", ""), rows) if rows else ""
    anchor = f"schema-{escape(name)}"
    return f'<details id="{anchor}"><summary><code>{escape(name)}</code></summary>{said}{values}{table}</details>'


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words, with links to the schemas that it refers to."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    if "enum" in schema:
        return ", ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    for union in ("anyOf", "oneOf"):
        if union in schema and "properties" not in schema:
            return " or ".join(map(_type, schema[union]))
    kind = schema.get("type", "any JSON value")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    bounds = [f"{word} {schema[key]}" for key, word in BOUNDS.items() if key in schema]
    return escape(", ".join([str(kind), *bounds]))


BOUNDS = {"minimum": "from", "maximum": "to", "minLength": "at least", "maxLength": "at most", "format": "format"}


def _table(title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{each}</td>" for each in row) + "</tr>" for row in rows)
    return (f"<h3>{title}</h3>" if title else "") + f"<table><tr>{head}</tr>{body}</table>"


def _text(said: str) -> str:
    """Text with the parts between backticks as code."""
    return CODE.sub(r"<code>\1</code>", escape(said, quote=False))
