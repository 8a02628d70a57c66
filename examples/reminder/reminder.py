"""A reminder that outlives every restart: `dragoman serve examples/reminder/reminder.py`."""

import re

from dragoman import Agent, Context, Reject

agent = Agent("reminder", description="Reminds you when it is time", restartable=True)

WHEN = re.compile(r"\s*(?:in|later)?\s*(\d+(?:\.\d+)?\s*(?:s|m|h|d|w))\b[\s:,]*(.*)", re.IGNORECASE | re.DOTALL)
"""`in 2h: call Ann`, `10m`, `later 5m`."""


@agent.skill("remind", name="Remind", tags=["reminder"], examples=["in 10s: the tea is ready", "in 2h: call Ann"])
async def remind(ctx: Context) -> str:
    """Sleeps for the time in the message, then asks whether it is done; "later 10m" sleeps again."""
    asked = WHEN.fullmatch(ctx.text)
    if asked is None:
        raise Reject("Say when and what: in 2h: call Ann")
    pause, what = asked[1], asked[2].strip() or "it is time"
    times = 0
    while True:
        await ctx.sleep(pause.replace(" ", "").lower())
        times += 1
        answer = await ctx.ask(f"{what[0].upper()}{what[1:]}! Answer done, or for example: later 10m")
        again = WHEN.fullmatch(answer)
        if again is None:
            return f"Done after {times} reminder{'s' if times > 1 else ''}."
        pause = again[1]
