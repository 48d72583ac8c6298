"""Checks names and prose against docs/glossary.md and a few rules of style.

    make prose                                # report, and fail where a count has risen
    .venv/bin/python -m tools.prose --list pronouns docs    # every finding of a rule, with file and line
    .venv/bin/python -m tools.prose --update  # store today's counts; refuses to raise one

Counts are stored per rule and package in prose_counts.json. For each rule and area (`src`, `docs`, `tests`), the sum
may fall but not rise. The sum decides and not the package, so that code can move from one package to another. The
area `tests` has all folders beside the package, such as benchmarks and examples; only rules for words apply to it.
"""

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "tools" / "prose_counts.json"
GLOSSARY = ROOT / "docs" / "glossary.md"
SOURCES = ("src", "simulators/src")
BESIDE = ("tests", "bench", "chaos", "scenarios", "examples", "reference", "tools", "deploy")
LONGEST_SUBJECT = 72
SHORTEST_DOCSTRING = 4

WORD_RULES: Mapping[str, re.Pattern[str]] = {
    "pronouns": re.compile(r"\b(?:he|him|his|himself|she|her|hers|herself)\b", re.IGNORECASE),
    "nobody": re.compile(r"\b(?:nobody|somebody|anybody|everybody|whoever)\b", re.IGNORECASE),
    "who": re.compile(r"\b(?:who|whose|whom)\b", re.IGNORECASE),
    "figurative": re.compile(
        r"\b(?:anew|afresh|in vain|nonsense|how-maniest|came of (?:it|them)|became of|at (?:its|the) door|goes by"
        r"|looks? after|looked after|troubles?|of our own|ours|ourselves|lets? (?:in|out)|(?:is|are|was|were) told)\b",
        re.IGNORECASE,
    ),
}
"""Rules that are applied to prose: text of pages, docstrings, comments and messages."""

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`]*`")
_WORD = re.compile(r"[A-Za-z][A-Za-z']*")
_LUA_COMMENT = re.compile(r"^\s*--(?!-@)(.*)$", re.MULTILINE)
_SCRIPT_PROSE = re.compile(r"//([^\n]*)|/\*(.*?)\*/|\"([^\"\n]* [^\"\n]*)\"|`([^`]* [^`]*)`", re.MULTILINE | re.DOTALL)
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GENERATED = "docs/reference/"
_FROZEN = "/migrations/versions/"
_OWN = frozenset({ROOT / "tools" / "prose.py", ROOT / "tests" / "architecture" / "test_prose.py"})
"""Files that name the words of the rules."""


@dataclass(frozen=True)
class Text:
    """A piece of prose, and the line of its file on which it begins."""

    line: int
    text: str


@dataclass(frozen=True)
class Finding:
    """One place that breaks a rule."""

    rule: str
    file: str
    line: int
    text: str

    @property
    def area(self) -> str:
        """`src`, `docs` or `tests`; commits are none of these."""
        return area_of(self.file)

    @property
    def package(self) -> str:
        """The package of `src`, or the folder of `docs`, in which the file is."""
        parts = Path(self.file).parts
        depth = 4 if "systems" in parts[:3] or parts[0] == "simulators" else 3
        return "/".join(parts[: min(depth, len(parts) - 1)]) or self.file

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text}"


def area_of(file: str) -> str:
    """The area whose counts a file belongs to. Pages made from the code count as code."""
    if file.startswith((*(f"{folder}/" for folder in SOURCES), _GENERATED)):
        return "src"
    if file.startswith(tuple(f"{folder}/" for folder in BESIDE)):
        return "tests"
    return "commits" if file == "commits" else "docs"


def files() -> Iterator[Path]:
    """Files that are checked: the source, hand-written pages and the texts at the top of the repository."""
    for folder in SOURCES:
        for pattern in ("*.py", "*.lua", "*.js", "*.html"):
            yield from (
                path
                for path in sorted((ROOT / folder).rglob(pattern))
                if not {"__pycache__", "vendor"} & set(path.parts)
            )
    yield from (page for page in sorted((ROOT / "docs").rglob("*.md")) if _GENERATED not in page.as_posix())
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))


def files_beside() -> Iterator[Path]:
    """Python files of the area `tests`."""
    for folder in BESIDE:
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if path not in _OWN)


def prose_of(path: Path, text: str) -> Iterator[Text]:
    """The prose of a file, without code. Code keeps its lines, so that findings have the right one."""
    if path.suffix == ".md":
        without_blocks = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
        yield from (Text(n, _INLINE_CODE.sub("", line)) for n, line in enumerate(without_blocks.splitlines(), 1))
    elif path.suffix == ".py":
        yield from _python_prose(text)
    elif path.suffix == ".html":
        plain = _TAG.sub(lambda found: "\n" * found[0].count("\n") + " ", text)
        yield from (Text(n, line) for n, line in enumerate(plain.splitlines(), 1) if line.strip())
    else:
        pattern = _LUA_COMMENT if path.suffix == ".lua" else _SCRIPT_PROSE
        for found in pattern.finditer(text):
            yield Text(
                text.count("\n", 0, found.start()) + 1, next(part for part in found.groups() if part is not None)
            )


def _python_prose(text: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            for offset, line in enumerate(node.value.splitlines()):
                yield Text(node.lineno + offset, _INLINE_CODE.sub("", line))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], _INLINE_CODE.sub("", token.string))


def retired_terms(glossary: str) -> dict[str, str]:
    """The status of each retired term in the glossary: `done` or `open`."""
    section = glossary.partition("\n## Retired terms\n")[2]
    rows = re.findall(r"^\| ([^|]+?) \| [^|]+ \| (done|open) \|$", section, re.MULTILINE)
    return {term.strip("`").lower(): status for term, status in rows}


def pattern_of(terms: list[str]) -> re.Pattern[str] | None:
    """Matches any of the terms, written apart or joined by `_` or `-`; a letter before or behind is another word."""
    if not terms:
        return None
    alternatives = "|".join(re.escape(term).replace(r"\ ", "[ _-]").replace(r"\-", "[ _-]") for term in terms)
    return re.compile(rf"(?<![A-Za-z])(?:{alternatives})(?![A-Za-z])", re.IGNORECASE)


def find_terms(text: str, pattern: re.Pattern[str] | None) -> Iterator[Text]:
    """Every use of a term in a text, also as a part of an identifier."""
    for number, line in enumerate(text.splitlines() if pattern else (), 1):
        assert pattern
        yield from (Text(number, found[0]) for found in pattern.finditer(_CAMEL.sub(" ", line)))


def brief_docstrings(text: str) -> Iterator[Text]:
    """Docstrings of public classes and functions of fewer than four words, without references (See `Protocol`)."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            docstring = ast.get_docstring(node)
            if docstring is None or docstring.startswith("See `"):
                continue
            if len(docstring.split()) < SHORTEST_DOCSTRING:
                yield Text(node.lineno, f"{node.name}: {docstring}")


def long_subjects(root: Path = ROOT) -> Iterator[Finding]:
    """Commits of the current branch whose subject is too long; none where there is no history."""
    log = ["git", "log", "--no-merges", "--format=%h %s"]
    ran = subprocess.run(log, cwd=root, capture_output=True, text=True, check=False)
    for entry in ran.stdout.splitlines() if ran.returncode == 0 else ():
        commit, _, subject = entry.partition(" ")
        if len(subject) > LONGEST_SUBJECT:
            yield Finding("long-subjects", "commits", 0, f"{commit} {subject}")


def findings_of(path: Path, text: str, pieces: list[Text], terms: Mapping[str, str]) -> Iterator[Finding]:
    """Everything in one file that breaks a rule; `pieces` is its prose."""
    name = path.relative_to(ROOT).as_posix()
    for rule, pattern in WORD_RULES.items():
        for piece in pieces:
            yield from (Finding(rule, name, piece.line, piece.text.strip()) for _ in pattern.finditer(piece.text))
    if area_of(name) == "tests":
        return
    if path.suffix == ".py":
        yield from (Finding("brief-docstrings", name, each.line, each.text) for each in brief_docstrings(text))
    if _FROZEN in name or path == GLOSSARY or name == "CHANGELOG.md":
        return  # history, and the list itself
    for status in ("done", "open"):
        pattern = pattern_of([term for term, each in terms.items() if each == status])
        rule = "retired-terms" if status == "done" else "open-terms"
        yield from (Finding(rule, name, each.line, each.text) for each in find_terms(text, pattern))


@dataclass(frozen=True)
class Report:
    """All findings of the repository, and the number of words of prose in each area."""

    findings: list[Finding]
    words: Counter[str]

    def counts(self) -> dict[str, dict[str, int]]:
        """Findings per rule and package."""
        found: dict[str, Counter[str]] = {}
        for each in self.findings:
            found.setdefault(f"{each.area}: {each.rule}", Counter())[each.package] += 1
        return {rule: dict(sorted(packages.items())) for rule, packages in sorted(found.items())}


def examine() -> Report:
    """Check the whole repository."""
    terms, words, findings = retired_terms(GLOSSARY.read_text()), Counter[str](), list(long_subjects())
    for path in (*files(), *files_beside()):
        text = path.read_text()
        pieces = list(prose_of(path, text))
        findings += findings_of(path, text, pieces, terms)
        words[area_of(path.relative_to(ROOT).as_posix())] += sum(len(_WORD.findall(piece.text)) for piece in pieces)
    return Report(findings, words)


def stored_counts() -> dict[str, dict[str, int]]:
    """The counts that may not be exceeded."""
    return json.loads(COUNTS.read_text()) if COUNTS.exists() else {}


def risen(now: Mapping[str, Mapping[str, int]], stored: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A line for each rule whose sum has risen, with the packages that have more than before."""
    lines: list[str] = []
    for rule, packages in now.items():
        before = stored.get(rule, {})
        if sum(packages.values()) > sum(before.values()):
            grown = {name: count for name, count in packages.items() if count > before.get(name, 0)}
            more = ", ".join(f"{name} {before.get(name, 0)} -> {count}" for name, count in grown.items())
            lines.append(f"{rule}: {sum(before.values())} -> {sum(packages.values())} ({more})")
    return lines


def show(report: Report) -> None:
    """Print the counts per rule and area, and per 1,000 words of prose."""
    for rule, packages in report.counts().items():
        total, words = sum(packages.values()), report.words[rule.partition(":")[0]]
        rate = f"{1000 * total / words:7.2f} per 1,000 words" if words and rule.split()[1] in WORD_RULES else ""
        print(f"{rule:24} {total:6}  {rate}".rstrip())
    print(", ".join(f"{area}: {count:,} words of prose" for area, count in sorted(report.words.items())))


def main() -> int:
    """Run from the command line; the exit code is 1 where a count has risen."""
    parser = argparse.ArgumentParser(prog="tools.prose", description="Check names and prose.")
    parser.add_argument("--list", nargs="+", metavar=("RULE", "PATH"), help="print every finding of a rule")
    parser.add_argument("--update", action="store_true", help="store today's counts")
    options = parser.parse_args()
    report = examine()
    if options.list:
        rule, *paths = options.list
        print(*(e for e in report.findings if e.rule == rule and e.file.startswith(tuple(paths or [""]))), sep="\n")
        return 0
    show(report)
    counts, stored = report.counts(), stored_counts()
    worse = risen(counts, stored) if stored else []
    if worse:
        print(*worse, "See `.venv/bin/python -m tools.prose --list RULE PATH`.", sep="\n", file=sys.stderr)
        return 1
    if options.update:
        COUNTS.write_text(json.dumps(counts, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
