"""Pays bills; above a limit only with a person's consent: `dragoman serve examples/approval/payments.py`."""

import re

from dragoman import Agent, Context, Part, Reject

FREE = 100
"""The largest amount, in euros, that is paid without asking."""

agent = Agent("payments", description="Pays bills, and asks before it pays large ones")


@agent.skill("pay", tags=["payments"], examples=["Pay 40 to Ada", "Pay 900 to Grace"])
async def pay(ctx: Context) -> dict[str, object]:
    """Pays an amount to somebody; above 100 euros a person must approve."""
    bill = re.search(r"\bpay (\d{1,7}) to (\w+)", ctx.text, re.IGNORECASE)
    if bill is None:
        raise Reject("Say, for example: Pay 40 to Ada")
    amount, receiver = int(bill[1]), bill[2]
    if amount > FREE:
        question = Part(text=f"Pay {amount} euros to {receiver}?")
        answer = await ctx.ask([question, Part(data={"amount": amount, "receiver": receiver})])
        if not approved(str(answer), answer.data):
            await ctx.finish(f"Nothing was paid to {receiver}.")
    # The only action on the outside world stands behind the only question. The id of the task makes it safe to repeat.
    return {"paid": amount, "receiver": receiver, "reference": ctx.task_id}


def approved(text: str, data: object) -> bool:
    """Whether an answer is a clear yes; everything else is a no."""
    if isinstance(data, dict):
        return data.get("approved") is True
    return text.strip().lower() in ("yes", "ok", "approve")
