"""The checks of our own find what they are there to find."""

import subprocess
from pathlib import Path

import pytest

from scripts import check_links, check_tree


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements/dev.txt", "--index-url somewhere\nclick==8\n"),
        ("requirements/dev.txt", "click @ https://packages.example.org/click.whl\n"),
        ("tests/peers/js/package-lock.json", '{"resolved": "x"}'),
        ("uv.lock", ""),
    ],
)
def test_a_lock_file_that_names_a_registry_is_found(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    (found,) = check_tree.hosts(tmp_path)
    assert found.startswith(f"{file}: ")


def test_a_lock_file_with_hashes_only_is_fine(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "dev.txt").write_text("click==8 \\\n    --hash=sha256:00\n")
    assert check_tree.hosts(tmp_path) == []


def test_a_module_that_git_does_not_track_is_found(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    for name in ("ignored.py", "kept.py", "new.py"):
        (tmp_path / name).write_text("")
    subprocess.run(["git", "-C", str(tmp_path), "add", "kept.py"], check=True)
    (found,) = check_tree.untracked(tmp_path)
    assert found.startswith("new.py: ")


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Two words\n[a](page.md#two-words) [b](#two-words) [c](https://example.org)\n"
        "`[code](x.md)`\n```\n[fence](x.md)\n```\n[d](absent.md) [e](#absent)\n"
    )
    assert check_links.broken(page) == ["absent.md: no such file", "#absent: no such heading"]


def test_files_of_the_repository_that_are_not_there_are_found(tmp_path: Path) -> None:
    for folder in ("examples", "src/dragoman/engine", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("examples/agents.py", "src/dragoman/engine/engine.py"):
        (tmp_path / file).touch()
    page = tmp_path / "docs" / "page.md"
    page.write_text(
        "`examples/agents.py` `examples/*.py` `engine/engine.py` `engine/` `message/send` `application/json`\n"
        "`examples/absent.py` `examples/*.mjs` `engine/absent.py` `examples/absent` `absent/`\n"
        "```sh\ndragoman serve examples/agents.py --port 1\ndragoman serve speller.py\n"
        "X=1 dragoman serve agents.py:echo\n.venv/bin/python -q absent.py\n```\n`dragoman worker absent/words.py`\n"
    )
    assert check_links.absent(page, tmp_path) == [
        f"{path}: no such file"
        for path in (
            "absent.py", "absent/words.py", "agents.py", "engine/absent.py", "examples/*.mjs", "examples/absent",
            "examples/absent.py",
        )
    ]  # fmt: skip


def test_an_installation_from_a_registry_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "pip install . pip install '.[s3]' pip install a2a-sdk\n"
        "`pip install dragoman` pip install -q 'dragoman==1' uv add dragoman\n"
        "pip install 'dragoman[s3]'\n"
    )
    assert [finding.partition(":")[0] for finding in check_links.published(page)] == [
        "pip install dragoman",
        "pip install -q 'dragoman",
        "uv add dragoman",
    ]


def test_a_page_that_nothing_leads_to_is_found(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "docs" / "agents").mkdir(parents=True)
    (tmp_path / "site" / "mkdocs.yml").write_text(
        "nav:\n  - Start:\n      - Tour: start.md\n      - agents/README.md\n"
    )
    (tmp_path / "docs" / "README.md").write_text("[tour](start.md)\n[kinds](agents/README.md#all)\n")
    (tmp_path / "docs" / "agents" / "README.md").write_text("[programs](program.md)\n")
    for name in ("start.md", "lost.md", "agents/program.md"):
        (tmp_path / "docs" / name).write_text("# A page\n")
    assert check_links.unlisted(tmp_path) == [
        "site/mkdocs.yml: nav lacks agents/program.md",
        "site/mkdocs.yml: nav lacks lost.md",
        "docs/README.md: nothing leads to lost.md",
    ]


def test_a_picture_that_no_page_shows_is_found(tmp_path: Path) -> None:
    pictures = tmp_path / "docs" / "pictures"
    pictures.mkdir(parents=True)
    for name in ("shown.png", "left.png"):
        (pictures / name).touch()
    page = tmp_path / "docs" / "page.md"
    page.write_text("![It](pictures/shown.png)")
    assert check_links.unshown(tmp_path, [page]) == ["docs/pictures/left.png: no page shows it"]
