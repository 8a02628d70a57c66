"""Makes the site of the pages in docs/, which are written to be read in a repository.

* README.md of the repository is the home page, docs/README.md the list of all pages; SECURITY.md and the others of
  the repository's root that a page links to are pages too.
* A file of the repository that a page links to, such as an example, gets a page that shows it.
* A table that a page names by its command, `dragoman help TOPIC`, is put there; `make site` has written it to TABLES.
* Every package that `PACKAGES` names gets a page of its public names, from their docstrings.
* The scripts that the theme would load from elsewhere, the diagrams' renderer among them, are taken from node_modules.
"""

import ast
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
ROOT = HERE.parent

HOMES = {"README.md": "index.md", "docs/README.md": "pages.md"}
"""Pages of the repository whose place on the site is not their own."""

PACKAGES = {
    "dragoman": "what an agent needs",
    "dragoman.client": "calling agents",
    "dragoman.testing": "testing agents",
    "dragoman.kaos": "KAOS's names",
}
"""The packages of the public Python API, with what each is for."""

TABLES = ROOT / "build" / "tables"
"""The folder into which scripts/tables.py has written the tables."""

MARKER = re.compile(r"^\*\*Table:\*\* `dragoman help ([a-z-]+(?: [^`]+)?)`$", re.MULTILINE)
"""The line by which a page names a table."""

LINK = re.compile(r"(\]\()([^)\s:]+)(\))")
IMAGE = re.compile(r'(<img [^>]*src=")([^":]+)(")')
CELL_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?=(?: to [\d-]+)?\) \|)")
"""A date at the end of a cell, such as `(2026-10-27)`, which is kept on one line."""

FENCE = re.compile(r"^(?P<mark>```+|~~~+).*?^(?P=mark)[ \t]*$", re.MULTILINE | re.DOTALL)
LANGUAGES = {
    "mjs": "js",
    "mts": "ts",
    "yml": "yaml",
    "Containerfile": "docker",
    "conf": "nginx",
    "cfg": "text",
    "service": "ini",
}
PICTURES = (".png", ".svg", ".webp")

SCRIPTS = {"mermaid.min.js": "mermaid/dist/mermaid.min.js", "iframe-worker.js": "iframe-worker/shim/index.js"}
"""Scripts that pages load, below assets, and where node_modules has them."""

SHIM = re.compile(r"https://unpkg\.com/iframe-worker/shim")
"""The place from which the theme loads the worker that searches pages which are read from a folder."""

LOADED = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\s(?:src|href)=["']?(?:https?:)?//""")
"""An element by which a page loads something from elsewhere, not a link to follow."""

_origins: dict[str, str] = {}
"""Generated pages of the site, and what each is in the repository; "" for what is not there."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site: the pages of docs/, the pages and files that they link to, the reference, the assets."""
    for file in [file for file in files if file.src_uri == "README.md"]:
        files.remove(file)
    origins = {f"docs/{file.src_uri}" for file in files.documentation_pages()}
    waiting = [*HOMES, *origins]
    seen = set(waiting)
    while waiting:
        origin = waiting.pop()
        if origin not in origins:
            _origins[_place(origin)] = origin
            files.append(File.generated(config, _place(origin), content=_shown(origin)))
        for target in _linked(origin):
            if target not in seen and not (target.startswith("docs/") and files.get_file_from_path(target[5:])):
                seen.add(target)
                if target.endswith(PICTURES):
                    picture = File.generated(config, target, abs_src_path=str(ROOT / target))
                    files.append(picture)
                else:
                    waiting.append(target)
    for package, purpose in PACKAGES.items():
        _origins[f"reference/{package}.md"] = ""
        files.append(File.generated(config, f"reference/{package}.md", content=_reference(package, purpose)))
    for name, path in SCRIPTS.items():
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(HERE / "node_modules" / path)))
    files.append(File.generated(config, "assets/site.css", abs_src_path=str(HERE / "site.css")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with the tables that it names, and with links to files of the repository as links to pages."""
    origin = _origins.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    if not origin.endswith(".md"):
        return markdown

    def with_table(found: re.Match[str]) -> str:
        table = (TABLES / f"{found[1].replace(' ', '-')}.md").read_text(encoding="utf-8")
        table = CELL_DATE.sub(r'<span class="date">\g<0></span>', table)
        up = "../" * (origin.count("/") - 1)  # its links are relative to docs/
        return f"{found[0]}\n\n" + LINK.sub(lambda link: link[1] + up + link[2] + link[3], table)

    def turned(found: re.Match[str]) -> str:
        path, mark, anchor = found[2].partition("#")
        if not path:
            return found[0]
        place = posixpath.relpath(_place(_resolved(origin, path)), posixpath.dirname(page.file.src_uri) or ".")
        return found[1] + place + mark + anchor + found[3]

    return _outside_code(MARKER.sub(with_table, markdown), lambda text: IMAGE.sub(turned, LINK.sub(turned, text)))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The page with every script from the site itself."""
    own = posixpath.relpath("assets/iframe-worker.js", posixpath.dirname(page.file.dest_uri) or ".")
    return SHIM.sub(own, output)


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The page of errors, which is shown for any path, with every script from the site itself."""
    return SHIM.sub("/assets/iframe-worker.js", output_content)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site with a page that loads something from elsewhere."""
    site = Path(config.site_dir)
    pages = sorted(site.rglob("*.html"))
    loading = [str(page.relative_to(site)) for page in pages if LOADED.search(page.read_text(encoding="utf-8"))]
    if loading:
        raise PluginError(f"these pages load something from elsewhere: {', '.join(loading)}")


def _place(origin: str) -> str:
    """Where the site shows the file `origin` of the repository."""
    if origin in HOMES:
        return HOMES[origin]
    if origin.startswith("docs/"):
        return origin[5:]
    if origin.endswith(("/README.md", *PICTURES)):
        return origin.replace("/README.md", "/index.md")
    return origin if origin.endswith(".md") else f"source/{origin}.md"


def _resolved(origin: str, link: str) -> str:
    """The path in the repository that `link` on the page `origin` leads to."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
    return f"{path}/README.md" if (ROOT / path).is_dir() else path


def _linked(origin: str) -> Iterator[str]:
    """The files of the repository that the page `origin` links to."""
    if not origin.endswith(".md"):
        return
    text = FENCE.sub("", (ROOT / origin).read_text(encoding="utf-8"))
    for target in [found[1] for found in (*LINK.findall(text), *IMAGE.findall(text))]:
        path = target.partition("#")[0]
        if path and (ROOT / (resolved := _resolved(origin, path))).is_file():
            yield resolved


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """`markdown` with `change` made to everything outside of its fenced blocks."""
    pieces, at = [], 0
    for found in FENCE.finditer(markdown):
        pieces += [change(markdown[at : found.start()]), found[0]]
        at = found.end()
    return "".join([*pieces, change(markdown[at:])])


def _shown(origin: str) -> str:
    """The page for the file `origin` of the repository: itself, or its text as code."""
    text = (ROOT / origin).read_text(encoding="utf-8")
    if origin.endswith(".md"):
        return text
    name = posixpath.basename(origin)
    suffix = name.rpartition(".")[2]
    return f"# {name}\n\n`{origin}`\n\n````{LANGUAGES.get(suffix, suffix)}\n{text.rstrip()}\n````\n"


def _reference(package: str, purpose: str) -> str:
    """The page of the public names of `package`."""
    source = ROOT / "src" / package.replace(".", "/") / "__init__.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    exported = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    names = [name for name in exported if not name.startswith("__")]
    return "\n".join([f"# `{package}`: {purpose}", "", *(f"::: {package}.{name}\n" for name in names)])
