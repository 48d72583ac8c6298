"""Hooks of MkDocs, so that pages written for GitHub can be built as a site.

Patterns in the navigation stand for the pages that they fit. Links to files outside of docs/ lead to copies of them.
Diagrams are told as tables: to draw them, the theme would ask another host for a program.
"""

import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

COPIES = "source/"
"""Where the site has files from outside of docs/."""
_DOCS = "docs/"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|/)([^)\s#]+)(?=[)#])")
_CODE = re.compile(r"`[^`\n]+`")
_ARROW = re.compile(r'\s*(?:-- "([^"]*)" -->|-\. "([^"]*)" \.->|-->)\s*')
_NODE = re.compile(r"(\w+)(?:[\[({]+([^\])}]*)[\])}]+)?")
_LANGUAGES = {".py": "python", ".lua": "lua", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Write the navigation out: a pattern becomes what it fits, and what is not there (yet) is left out."""
    folder = Path(config.docs_dir)
    pages = sorted(str(page.relative_to(folder)) for page in folder.rglob("*.md"))
    config.nav = _written_out(config.nav or [], pages, set[str]())
    return config


def _written_out(entries: Any, pages: list[str], taken: set[str]) -> Any:
    """`taken` are the pages that are somewhere by now: a pattern stands for the others."""
    if isinstance(entries, list):
        named = {entry for entry in entries if isinstance(entry, str) and "*" not in entry}
        found: list[Any] = []
        for entry in entries:
            if isinstance(entry, str):
                fitting = [page for page in pages if fnmatch(page, entry) and page not in taken | (named - {entry})]
                taken.update(fitting)
                found += fitting
            else:
                found += [each for each in [_written_out(entry, pages, taken)] if each]
        return found
    [(title, inner)] = entries.items()
    whole = inner if isinstance(inner, str) else _written_out(inner, pages, taken)
    return {title: whole} if whole else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add copies of the files that pages link to, of those that these link to, and so on."""
    root, seen = Path(config.docs_dir).parent, set[str]()
    frontier = [file.removeprefix(COPIES) for file in _entries(config.nav) if file.startswith(COPIES)]
    for file in files.documentation_pages():
        frontier += _links(file.content_string, _DOCS + file.src_uri)
    while frontier:
        path = frontier.pop()
        if path in seen or path.startswith(_DOCS) or not (root / path).exists():
            continue
        seen.add(path)
        content = _copy_of(root / path, path)
        frontier += _links(content, path)
        rewritten = _with_links_of_the_site(content, path)
        files.append(File.generated(config, _uri(path), content=rewritten, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def _entries(nav: Any) -> Iterator[str]:
    """Every page that the navigation names."""
    if isinstance(nav, str):
        yield nav
    for inner in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _entries(inner)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn what GitHub reads otherwise into what the site reads."""
    del config, files
    uri = page.file.src_uri
    text = markdown if uri.startswith(COPIES) else _with_links_of_the_site(markdown, _DOCS + uri)
    text = _FENCE.sub(lambda fence: diagram_as_table(fence[2]) if fence[1] == "mermaid" else fence[0], text)
    return "\n".join(_bare_bars(line) if line.startswith("|") else line for line in text.split("\n"))


def _bare_bars(row: str) -> str:
    """In a row of a table, GitHub wants a backslash before a bar in code; here it would be shown."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), row)


def _uri(path: str) -> str:
    """Where the site has a file of the repository."""
    if path.startswith(_DOCS):
        return path.removeprefix(_DOCS)
    return COPIES + (path if path.endswith(".md") else f"{path}.md")


def _links(text: str, path: str) -> list[str]:
    """The files of the repository that a page links to."""
    return [posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) for link in _LINK.findall(_prose(text))]


def _prose(text: str) -> str:
    return _FENCE.sub("", text)


def _with_links_of_the_site(text: str, path: str) -> str:
    """The same page, with its links as they are from its place on the site."""
    here, there = posixpath.dirname(path), posixpath.dirname(_uri(path))

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, link[1]))
        return posixpath.relpath(_uri(target), there or ".")

    found, end = list[str](), 0
    for fence in _FENCE.finditer(text):
        found += [_LINK.sub(moved, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*found, _LINK.sub(moved, text[end:])])


def _copy_of(file: Path, path: str) -> str:
    """What the site shows of a file: a page as it is, code as code, a folder as a list."""
    if file.is_dir():
        inner = sorted(each for each in file.iterdir() if each.is_file())
        return "\n".join([f"# {path}", "", *(f"- [{each.name}]({file.name}/{each.name})" for each in inner)])
    text = file.read_text()
    return text if file.suffix == ".md" else f"# {path}\n\n```{_LANGUAGES.get(file.suffix, 'text')}\n{text}```\n"


def diagram_as_table(diagram: str) -> str:
    """The arrows of a diagram, a row for each."""
    names: dict[str, str] = {}
    rows = [row for line in diagram.splitlines()[1:] for row in _arrows(line.strip(), names)]
    lines = [f"| {names.get(start, start)} | {names.get(end, end)} | {label} |" for start, end, label in rows]
    return "\n".join(["| from | to | when |", "| --- | --- | --- |", *lines])


def _arrows(line: str, names: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    pieces = _ARROW.split(line)
    state, _, told = pieces[-1].partition(": ")
    nodes = [_node(piece, names) for piece in [*pieces[:-1:3], state]]
    for n, (start, end) in enumerate(pairwise(nodes)):
        label = pieces[3 * n + 1] or pieces[3 * n + 2] or told
        yield "(begin)" if start == "[*]" else start, "(end)" if end == "[*]" else end, label


def _node(piece: str, names: dict[str, str]) -> str:
    """Its name; what it is shown as is noted."""
    found = _NODE.fullmatch(piece.strip())
    if found is None:
        return piece.strip()
    if found[2]:
        names[found[1]] = found[2].strip("()")
    return found[1]
