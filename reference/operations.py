"""The page of HTTP: every operation with its parameters, answers, role and problems."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reference.markdown import MADE, anchor, code, page, prose, table
from reference.schemas import describe_schemas, in_words
from tidegate.http.openapi import ROLE
from tidegate.http.problems import ProblemType

_HEAD = f"""# HTTP

{MADE}

A server has the same at `/docs` for people and at `/openapi.json` for machines. How it is meant to be used is in
[run it as a service](../guides/http.md).

Bodies and answers are JSON, times are ISO 8601 with a zone, and lists are read page by page: `next` is the address of
the next page. What goes wrong is `application/problem+json`; see [problems](#problems).

Beside what stands with it, any operation can end with {{everywhere}}; one that needs a role with {{of_roles}}; one that
is no GET with {{of_changes}}; one that may have a body (POST, PUT, PATCH) with {{of_bodies}}.
"""


_WITH_BODY = ("POST", "PUT", "PATCH")


@dataclass(frozen=True)
class Usual:
    """Problems that all operations of a sort have: said once, and not with each."""

    everywhere: set[str]
    of_roles: set[str]
    of_changes: set[str]
    of_bodies: set[str]

    @classmethod
    def of(cls, operations: Sequence[tuple[str, str, Any]]) -> "Usual":
        """What is common to all, to those that need a role, to those that are no GET, and to those with a body."""
        everywhere = _common(each for _, _, each in operations)
        of_roles = _common(each for _, _, each in operations if ROLE in each) - everywhere
        of_changes = _common(each for method, _, each in operations if method != "GET" and ROLE in each)
        of_bodies = _common(each for method, _, each in operations if method in _WITH_BODY) - everywhere
        return cls(everywhere, of_roles, of_changes - everywhere - of_roles, of_bodies)

    def for_(self, method: str, operation: Mapping[str, Any]) -> set[str]:
        """Of one operation."""
        found = set(self.everywhere)
        found |= self.of_roles if ROLE in operation else set()
        found |= self.of_changes if method != "GET" else set()
        return found | (self.of_bodies if method in _WITH_BODY else set())


def _common(operations: Iterable[Mapping[str, Any]]) -> set[str]:
    return set[str].intersection(*map(_slugs, operations))


def describe_operations(document: Mapping[str, Any]) -> str:
    """The page, as Markdown."""
    operations = list(_operations(document))
    usual = Usual.of(operations)
    lines = [_HEAD.format(**{name: _problem_links(slugs) for name, slugs in asdict(usual).items()})]
    for tag in document["tags"]:
        lines += ["", f"## Operations: {tag['name']}", ""]
        for method, path, operation in operations:
            if tag["name"] in operation["tags"]:
                lines += _described(method, path, operation, usual)
    lines += ["", "## Problems", "", *_problems()]
    lines += ["", "## Structures", "", *describe_schemas(document["components"]["schemas"])]
    return page(lines)


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _described(method: str, path: str, operation: Mapping[str, Any], usual: Usual) -> list[str]:
    lines = ["", f"### {method} {path}", "", prose(operation["summary"]), "", f"Who may: {_who_may(operation)}.", ""]
    if description := operation.get("description"):
        lines += [prose(description), ""]
    lines += table(["parameter", "in", "type", "meaning"], map(_parameter, operation.get("parameters", [])))
    if body := operation.get("requestBody"):
        left_out = "" if body["required"] else "; it may be left out"
        lines += [f"Body: {_content(body['content'])}{left_out}.", ""]
    lines += table(["status", "answer", "meaning"], _answers(operation))
    own = _slugs(operation) - usual.for_(method, operation)
    return [*lines, *([f"Problems: {_problem_links(own)}.", ""] if own else [])]


def _who_may(operation: Mapping[str, Any]) -> str:
    if role := operation.get(ROLE):
        return f"the role `{role}`"
    return "everybody"


def _parameter(parameter: Mapping[str, Any]) -> list[str]:
    needed = " (needed)" if parameter["required"] and parameter["in"] != "path" else ""
    kind = in_words(parameter["schema"])
    return [code(parameter["name"]), parameter["in"], kind + needed, prose(parameter.get("description", ""))]


def _answers(operation: Mapping[str, Any]) -> Iterator[list[str]]:
    for status, answer in operation["responses"].items():
        if "application/problem+json" not in answer.get("content", {}):
            headers = [f"{code(name)}: {each['description']}" for name, each in answer.get("headers", {}).items()]
            yield [status, _content(answer.get("content", {})), prose(" ".join([answer["description"], *headers]))]


def _content(content: Mapping[str, Any]) -> str:
    kinds = [_media(media, each.get("schema", {})) for media, each in content.items()]
    return " or ".join(kinds) or "nothing"


def _media(media: str, schema: Mapping[str, Any]) -> str:
    if media == "application/json":
        return in_words(schema)
    if media == "text/event-stream":
        event = schema["properties"]
        names = " and ".join(map(code, event["event"]["enum"]))
        return f"events {names}, each {in_words(event['data']['contentSchema'])}"
    return code(media.partition(";")[0])


def _slugs(operation: Mapping[str, Any]) -> set[str]:
    told = [answer["description"] for status, answer in operation["responses"].items() if status >= "400"]
    return {slug for description in told for slug in re.findall(r"\(`([a-z-]+)`\)", description)}


def _problem_links(slugs: Iterable[str]) -> str:
    kinds = [kind for kind in ProblemType if kind.slug in slugs]
    return ", ".join(f"[{kind.value.status} `{kind.slug}`](#{anchor(_problem_title(kind))})" for kind in kinds)


def _problem_title(kind: ProblemType) -> str:
    """With its status: a structure may have the same name."""
    return f"{kind.value.status} {kind.slug}"


def _problems() -> Iterable[str]:
    for kind in ProblemType:
        told = f"{prose(kind.value.title)}. {prose(kind.value.meaning)}"
        yield from (f"### {_problem_title(kind)}", "", told, "")
