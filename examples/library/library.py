"""Finds passages in a folder of texts and cites them: `FOLDER=examples dragoman serve examples/library/library.py`.

The ranking is BM25 over paragraphs, in memory. The index follows the folder: a file that has changed is read again.
"""

import math
import os
import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from dragoman import Agent, Artifact, Context, Part, Reject

BEST = 3
"""How many passages an answer has at most."""

SATURATION, LENGTH = 1.5, 0.75
"""The constants k1 and b of BM25, at their usual values."""

agent = Agent("library", description="Finds passages in a folder of texts, and says where they stand", restartable=True)


@dataclass(frozen=True)
class Passage:
    """A paragraph: its file, the number of its first line, its text, and how often each word is in it."""

    file: str
    line: int
    text: str
    words: Counter[str]


class Library:
    """The passages of the texts below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[float, list[Passage]]] = {}

    def search(self, question: str) -> list[Passage]:
        """The best passages for a question, best first; none if no word of it is in any."""
        passages = self._passages()
        asked = set(words_of(question))
        having = {word: sum(word in passage.words for passage in passages) for word in asked}
        mean = sum(passage.words.total() for passage in passages) / max(len(passages), 1)

        def score(passage: Passage) -> float:
            total = 0.0
            for word in asked & passage.words.keys():
                rarity = math.log(1 + (len(passages) - having[word] + 0.5) / (having[word] + 0.5))
                often = passage.words[word]
                norm = SATURATION * (1 - LENGTH + LENGTH * passage.words.total() / mean)
                total += rarity * often * (SATURATION + 1) / (often + norm)
            return total

        scored = sorted(((score(passage), passage) for passage in passages), key=lambda pair: -pair[0])
        return [passage for found, passage in scored[:BEST] if found > 0]

    def _passages(self) -> list[Passage]:
        """All passages, after a look at which files have changed."""
        files = [path for suffix in ("*.md", "*.txt") for path in sorted(self._folder.rglob(suffix))]
        self._read = {path: self._of(path) for path in files}
        return [passage for _, passages in self._read.values() for passage in passages]

    def _of(self, path: Path) -> tuple[float, list[Passage]]:
        """A file's passages with the time at which it was changed, from memory if it has not changed since."""
        changed = path.stat().st_mtime
        known = self._read.get(path)
        if known is not None and known[0] == changed:
            return known
        text = path.read_text(encoding="utf-8", errors="replace")
        name = str(path.relative_to(self._folder))
        found = re.finditer(r"(?:[^\n]*\S[^\n]*\n?)+", text)
        return changed, [
            Passage(name, text.count("\n", 0, match.start()) + 1, match[0].strip(), Counter(words_of(match[0])))
            for match in found
        ]


def words_of(text: str) -> list[str]:
    """The words of a text that are worth looking for."""
    return re.findall(r"\w{3,}", text.lower())


library = Library(Path(os.environ.get("FOLDER", "docs")))


@agent.skill("find", tags=["search", "read-only"], examples=["How are webhooks signed?"])
async def find(ctx: Context) -> AsyncIterator[object]:
    """Finds the passages that answer a question best, and cites file and line of each."""
    if not words_of(ctx.text):
        raise Reject("Ask a question")
    found = library.search(ctx.text)
    if not found:
        await ctx.finish("Nothing in the library says anything about that.")
    for passage in found:
        yield f"{passage.text}\n({passage.file}:{passage.line})\n\n"
    places = [{"file": passage.file, "line": passage.line} for passage in found]
    yield Artifact(artifact_id="sources", name="sources", parts=(Part(data=places),))
