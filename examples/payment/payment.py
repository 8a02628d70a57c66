"""A till that charges once, whenever its server dies: `dragoman serve examples/payment/payment.py`."""

import json
import os
import re
from collections.abc import AsyncIterator
from urllib.request import Request, urlopen

from dragoman import Agent, Context, Reject, StepFailed

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:7873")
"""Where `provider.py` runs."""

agent = Agent("payment", description="Charges an amount, and sends the goods", restartable=True)


def charge(amount: float, *, step_key: str) -> dict[str, object]:
    """Have the provider charge an amount. The key is the same in every attempt, so that it charges once."""
    request = Request(
        f"{PROVIDER}/charges",
        data=json.dumps({"amount": amount}).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": step_key},
    )
    with urlopen(request, timeout=30) as answer:
        receipt: dict[str, object] = json.load(answer)
        return receipt


def pack(receipt: str) -> str:
    """Pack the goods, and return the number of the parcel."""
    return f"parcel for {receipt}"


@agent.skill("buy", name="Buy", tags=["payment"], examples=["tea for 12.50"])
async def buy(ctx: Context) -> AsyncIterator[str]:
    """Charges the amount in the message, then packs the goods."""
    amount = re.search(r"\d+(?:\.\d\d)?", ctx.text)
    if amount is None:
        raise Reject("Say what it costs: tea for 12.50")
    try:
        receipt = await ctx.step("charge", charge, float(amount[0]), retries=3)
    except StepFailed as failed:
        await ctx.fail(f"Nothing was charged: {failed.text}")
    yield f"Paid: {receipt['receipt']}. "
    parcel = await ctx.step("pack", pack, str(receipt["receipt"]))
    yield f"On its way: {parcel}."
