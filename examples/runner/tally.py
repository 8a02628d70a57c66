"""A runner that asks, works and reports."""

import asyncio

from dragoman import Artifact, Part, Reject
from dragoman.engine.api import Run, Runner, Traits
from dragoman.model.card import AgentSkill, Profile


class Tally(Runner):
    """Adds up numbers, one a line."""

    def __init__(self) -> None:
        skill = AgentSkill(id="add", name="Add", description="Adds up numbers, one a line", tags=("numbers",))
        self.profile = Profile(id="tally", name="Tally", description="Adds up", version="1.0.0", skills=(skill,))
        self.traits = Traits(restartable=True, deadline_s=60)

    async def run(self, run: Run) -> None:
        lines = run.message.text.split()
        if not all(line.isdecimal() for line in lines):
            raise Reject("Send whole numbers, one a line.")
        answer = await run.ask([Part(text=f"Add up {len(lines)} numbers?")])
        if answer.text.strip().lower() != "yes":
            raise Reject("Nothing was added up.")
        total = 0
        for count, line in enumerate(lines, start=1):
            await asyncio.sleep(1)  # the work
            total += int(line)
            sums = Artifact(artifact_id="sums", parts=(Part(text=f"{total}\n"),))
            await run.artifact(sums, append=count > 1, last_chunk=count == len(lines))
            await run.status([], progress=(count, len(lines)))


tally = Tally()
