"""Ordinary agents under the names that the conformance suite of MCP calls: `dragoman serve agents.py`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from dragoman import Agent, Context, Part, form

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63f8cfc0f01f0005"
    "0001ff56c7358e0000000049454e44ae426082"
)
WAV = (
    b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data"
)


def tool(
    name: str, schema: dict[str, Any] = NOTHING, *, tags: Iterable[str] = (), deadline_s: float | None = None
) -> Callable[[Callable[[Context], Any]], Callable[[Context], Any]]:
    """Make the function below the only skill of an agent, which is a tool of the agent's name."""

    def declare(function: Callable[[Context], Any]) -> Callable[[Context], Any]:
        agent = Agent(name, description=function.__doc__ or name, restartable=True, deadline_s=deadline_s)
        agent.skill("do", input_schema=schema, tags=tags)(function)
        globals()[f"agent_{name}"] = agent  # a server finds the agents of a module by their names
        return function

    return declare


def asking(**fields: Any) -> dict[str, Any]:
    """A schema with these fields, all of them required."""
    return {"type": "object", "properties": fields, "required": list(fields)}


TEXT, FLAG = {"type": "string"}, {"type": "boolean"}

# -- results -----------------------------------------------------------------------------------------------------------


@tool("test_simple_text")
async def simple_text(ctx: Context) -> str:
    """Answers with text."""
    return "This is a simple text response for testing."


@tool("test_image_content")
async def image(ctx: Context) -> Part:
    """Answers with an image."""
    return Part(raw=PNG, media_type="image/png")


@tool("test_audio_content")
async def audio(ctx: Context) -> Part:
    """Answers with a sound."""
    return Part(raw=WAV, media_type="audio/wav")


@tool("test_embedded_resource")
async def embedded(ctx: Context) -> Part:
    """Answers with a file."""
    return Part(raw=b"This is an embedded resource content.", media_type="text/plain")


@tool("test_multiple_content_types")
async def several(ctx: Context) -> list[Any]:
    """Answers with text, an image and a file."""
    image, file = Part(raw=PNG, media_type="image/png"), Part(raw=b'{"test": 1}', media_type="application/json")
    return ["Multiple content types test:", image, file]


@tool("test_error_handling")
async def error(ctx: Context) -> None:
    """Fails."""
    await ctx.fail("This tool intentionally returns an error for testing")


async def in_steps(ctx: Context) -> str:
    """Reports three times."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100, f"{done} of 100 done")
        await asyncio.sleep(0.05)
    return "done"


for name in ("test_tool_with_progress", "test_tool_with_logging", "test_logging_tool", "test_reconnection"):
    tool(name)(in_steps)


# -- arguments ---------------------------------------------------------------------------------------------------------


@tool(
    "json_schema_2020_12_tool",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": TEXT, "city": TEXT},
            }
        },
        "properties": {
            "name": TEXT,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": TEXT,
            "email": TEXT,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def contact(ctx: Context) -> Any:
    """Repeats a contact."""
    return ctx.data


@tool("test_region", asking(region={"type": "string", "x-mcp-header": "Region"}))
async def region(ctx: Context) -> str:
    """Repeats a region."""
    return str(ctx.data["region"])


@tool("greet", {"type": "object", "properties": {"name": TEXT}})
async def greet(ctx: Context) -> str:
    """Greets."""
    return f"Hello, {ctx.data['name']}!"


# -- questions ---------------------------------------------------------------------------------------------------------


@tool("test_elicitation", asking(message=TEXT))
async def elicit(ctx: Context) -> str:
    """Asks for a name and an address."""
    answer = await ctx.ask([ctx.data["message"], form(asking(username=TEXT, email=TEXT))])
    return f"User response: {answer.data}"


@tool("test_elicitation_sep1034_defaults")
async def defaults(ctx: Context) -> str:
    """Asks with defaults."""
    fields = asking(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return f"Elicitation completed: {(await ctx.ask(['Please review', form(fields)])).data}"


@tool("test_elicitation_sep1330_enums")
async def choices(ctx: Context) -> str:
    """Asks for choices of all kinds."""
    named = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
    plain = [f"option{number}" for number in (1, 2, 3)]
    fields = asking(
        untitledSingle={"type": "string", "enum": plain},
        titledSingle={"type": "string", "oneOf": named},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": named}},
    )
    return f"Elicitation completed: {(await ctx.ask(['Choose', form(fields)])).data}"


async def name_of_user(ctx: Context) -> str:
    """Asks for a name."""
    return f"Hello, {(await ctx.ask(['What is your name?', form(asking(name=TEXT), name='user_name')])).data['name']}!"


for name in ("test_input_required_result_elicitation", "test_streaming_elicitation"):
    tool(name)(name_of_user)


async def confirm(ctx: Context) -> str:
    """Asks whether it is all right."""
    await ctx.ask(["Please confirm", form(asking(ok=FLAG), name="confirm")])
    return "state-ok"


for name in ("test_input_required_result_request_state", "test_input_required_result_tampered_state"):
    tool(name)(confirm)


@tool("test_input_required_result_multi_round")
async def two_rounds(ctx: Context) -> str:
    """Asks twice."""
    name = await ctx.ask(["Step 1: What is your name?", form(asking(name=TEXT), name="step1")])
    color = await ctx.ask(["Step 2: What is your favorite color?", form(asking(color=TEXT), name="step2")])
    return f"{name.data['name']} likes {color.data['color']}"


# -- tasks -------------------------------------------------------------------------------------------------------------


@tool("slow_compute", {"type": "object", "properties": {"seconds": {"type": "number"}, "label": TEXT}})
async def slow(ctx: Context) -> str:
    """Takes so many seconds."""
    await asyncio.sleep(ctx.data["seconds"])
    return f"computed {ctx.data.get('label')}"


@tool("failing_job", tags=["task-only"])
async def failing(ctx: Context) -> None:
    """Fails after a while."""
    await asyncio.sleep(1.0)
    await ctx.fail("no luck")


@tool("protocol_error_job", deadline_s=1.0)
async def late(ctx: Context) -> None:
    """Takes longer than it may."""
    await asyncio.Event().wait()


@tool("confirm_delete", asking(filename=TEXT))
async def delete(ctx: Context) -> str:
    """Looks at a file, and asks whether to delete it."""
    await asyncio.sleep(1.0)
    answer = await ctx.ask([f"Delete {ctx.data['filename']}?", form(asking(confirm=FLAG))])
    return "deleted" if answer.data["confirm"] else "kept"


@tool("multi_input")
async def two_forms(ctx: Context) -> str:
    """Asks for two things at once."""
    await asyncio.sleep(1.0)
    first, second = form(asking(name=TEXT), name="first"), form(asking(name=TEXT), name="second")
    return f"got {(await ctx.ask(['First?', first, 'Second?', second])).data}"


@tool("test_tool_with_task")
async def then_slow(ctx: Context) -> AsyncIterator[str]:
    """Asks for a name, and takes a while then."""
    answer = await ctx.ask(["What is your name?", form(asking(name=TEXT), name="user_name")])
    await asyncio.sleep(1.0)
    yield f"Hello, {answer.data['name']}!"
