"""The agent that A2A's test kit, the TCK, talks to: the id of a message names what to do with it.

The messages of 1.0's kit are those of its folder `scenarios`. 0.3's kit asks for one long task; all its other tasks
wait for more, so that it can read, continue and cancel them.
"""

import asyncio

from dragoman import Agent, Context, Part, Reject

agent = Agent("tck", description="Does what the scenarios of the test kit describe", direct="auto")

TEXTS = {
    "tck-artifact-text": "Generated text content",
    "tck-stream-001": "Stream hello from TCK",
    "tck-stream-003": "Stream task lifecycle",
    "tck-stream-artifact-text": "Streamed text content",
    "tck-stream-ordering-001": "Ordered output",
}
"""Messages that are answered with a text."""

FILES = {
    "tck-artifact-file-url": Part(url="https://example.com/output.txt", filename="output.txt", media_type="text/plain"),
    "tck-artifact-file": Part(raw=b"tck", filename="output.txt", media_type="text/plain"),
    "tck-stream-artifact-file": Part(raw=b"tck", filename="output.txt", media_type="text/plain"),
    "tck-artifact-data": Part(data={"key": "value", "count": 42}),
}
"""Messages that are answered with a file or data. The longer of two beginnings comes first."""

LONG_S = 4.0
"""Twice the kit's time-out of streams."""


@agent.skill("tck", tags=["tck"])
async def answer(ctx: Context) -> None:
    """Answers a message of the test kit."""
    message = ctx.message.message_id
    if message.startswith("tck-message-response"):
        await ctx.message_reply("Direct message response")
    if message.startswith("tck-reject-task"):
        raise Reject("rejected")
    if message.startswith("tck-input-required"):
        await ctx.ask("What else?")
    await ctx.status("Working")
    for begin, text in TEXTS.items():
        if message.startswith(begin):
            await ctx.artifact(text)
    if file := next((file for begin, file in FILES.items() if message.startswith(begin)), None):
        await ctx.artifact(file)
    if message.startswith("tck-stream-artifact-chunked"):
        await ctx.artifact("chunk-1 ", name="chunks", append=True)
        await ctx.artifact("chunk-2", name="chunks", append=True, last=True)
    if message.startswith("test-resubscribe-message-id"):
        await asyncio.sleep(LONG_S)
        return
    while not message.startswith("tck-"):
        await ctx.ask("What else?")
    await ctx.finish("Hello from TCK")
