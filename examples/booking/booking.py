"""A restaurant's host, who asks for what a booking lacks: `dragoman serve examples/booking/booking.py`."""

import re
from dataclasses import dataclass

from dragoman import Agent, Context, Reject

OPEN, LAST = 17, 21
"""The hours at which the first and the last guests are seated."""

SEATS = 8

agent = Agent("booking", description="Books a table at the Harbour Inn")


@dataclass
class Wish:
    """A table as far as it is known: guests, day, and the hour, from 0 to 23."""

    guests: int | None
    day: str | None
    hour: int | None


def read(text: str) -> Wish:
    """Find what `text` says about a table: "for 4 on Friday at 19"."""
    guests = re.search(r"\bfor (\d{1,4})\b", text, re.IGNORECASE)
    day = re.search(r"\b(mon|tues|wednes|thurs|fri|satur|sun)day\b", text, re.IGNORECASE)
    hour = re.search(r"\bat (\d{1,2})\b", text, re.IGNORECASE)
    return Wish(
        guests=int(guests[1]) if guests else None,
        day=day[0].capitalize() if day else None,
        hour=int(hour[1]) if hour else None,
    )


@agent.skill("book", name="Book a table", tags=["booking"], examples=["A table for 4 on Friday at 19"])
async def book(ctx: Context) -> dict[str, object]:
    """Books a table; asks how many come, on which day and when, and for a confirmation."""
    wish = read(ctx.text)
    while wish.guests is None:
        wish.guests = number(await ctx.ask("For how many guests?"))
    if wish.guests > SEATS:
        raise Reject(f"Our largest table seats {SEATS}")
    while wish.day is None:
        wish.day = read(await ctx.ask("On which day of the week?")).day
    while wish.hour is None or not OPEN <= wish.hour <= LAST:
        wish.hour = number(await ctx.ask(f"At what time? We seat guests from {OPEN} to {LAST} o'clock"))
    sure = await ctx.ask(f"A table for {wish.guests} on {wish.day} at {wish.hour}:00. Shall I book it?")
    if not sure.lower().startswith(("y", "ok")):
        await ctx.finish("Nothing is booked. Come back any time.")
    # After a restart the function runs again up to here with the answers that were given. An action on the outside
    # world belongs after the last question, where it is reached once.
    return {"table": ctx.task_id[-4:], "guests": wish.guests, "day": wish.day, "hour": wish.hour}


def number(text: str) -> int | None:
    """The first number in `text`."""
    found = re.search(r"\d{1,4}", text)
    return int(found[0]) if found else None
