"""The part of GraphQL's language that queries are written in."""

import re
from dataclasses import dataclass, field
from typing import Any

_TOKENS = re.compile(
    r"""(?P<skip>[\s,\ufeff]+|\#[^\n]*)|(?P<spread>\.\.\.)|(?P<punctuation>[!$()\[\]{}:=@|&])"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<text>"(?:[^"\\\n]|\\.)*")"""
)
_CONSTANTS = {"true": True, "false": False, "null": None}


class SyntaxProblem(Exception):
    """The text is not a valid query."""


@dataclass(frozen=True)
class Variable:
    """A place in a query that is filled by the request."""

    name: str


@dataclass(frozen=True)
class Field:
    """A field that is asked for, with everything below it."""

    name: str
    alias: str
    arguments: dict[str, Any]
    selections: tuple["Selection", ...]


@dataclass(frozen=True)
class Fragment:
    """Fields for one type only; `spread` names one that is written elsewhere."""

    type_name: str | None
    selections: tuple["Selection", ...] = ()
    spread: str | None = None


Selection = Field | Fragment


@dataclass
class Document:
    """A query: its operation, the defaults of its variables, and its fragments."""

    selections: tuple[Selection, ...] = ()
    operation: str = "query"
    defaults: dict[str, Any] = field(default_factory=dict[str, Any])
    fragments: dict[str, Fragment] = field(default_factory=dict[str, Fragment])


def parse(text: str) -> Document:
    """Read a query; raises `SyntaxProblem`."""
    return _Parser(text).document()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = self._split(text)
        self._at = 0

    @staticmethod
    def _split(text: str) -> list[str]:
        tokens: list[str] = []
        at = 0
        while at < len(text):
            found = _TOKENS.match(text, at)
            if found is None:
                raise SyntaxProblem(f"Unexpected character {text[at]!r} at {at}")
            if found.lastgroup != "skip":
                tokens.append(found.group())
            at = found.end()
        return tokens

    @property
    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, expected: str | None = None) -> str:
        token = self._next
        if not token or (expected is not None and token != expected):
            raise SyntaxProblem(f"Expected {expected or 'more'}, found {token or 'the end'}")
        self._at += 1
        return token

    def _accept(self, token: str) -> bool:
        if self._next != token:
            return False
        self._at += 1
        return True

    def document(self) -> Document:
        read = Document()
        while self._next:
            if self._accept("fragment"):
                name = self._take()
                self._take("on")
                read.fragments[name] = Fragment(self._take(), self._selections())
            else:
                self._operation(read)
        return read

    def _operation(self, read: Document) -> None:
        if self._next != "{":
            read.operation = self._take()
            if self._next not in ("(", "{", "@"):
                self._take()  # the operation's name
            if self._accept("("):
                while not self._accept(")"):
                    self._definition(read)
        read.selections = self._selections()

    def _definition(self, read: Document) -> None:
        self._take("$")
        name = self._take()
        self._take(":")
        while self._next not in ("$", ")", "="):
            self._take()  # its type
        if self._accept("="):
            read.defaults[name] = self._value()

    def _selections(self) -> tuple[Selection, ...]:
        self._take("{")
        found: list[Selection] = []
        while not self._accept("}"):
            found.append(self._fragment() if self._accept("...") else self._field())
        return tuple(found)

    def _fragment(self) -> Fragment:
        if self._accept("on"):
            return Fragment(self._take(), self._selections())
        if self._next == "{":
            return Fragment(None, self._selections())
        return Fragment(None, spread=self._take())

    def _field(self) -> Field:
        alias = name = self._take()
        if self._accept(":"):
            name = self._take()
        arguments: dict[str, Any] = {}
        if self._accept("("):
            while not self._accept(")"):
                argument = self._take()
                self._take(":")
                arguments[argument] = self._value()
        return Field(name, alias, arguments, self._selections() if self._next == "{" else ())

    def _value(self) -> Any:
        token = self._take()
        if token == "$":  # noqa: S105 - a token of the language
            return Variable(self._take())
        if token == "[":  # noqa: S105
            items: list[Any] = []
            while not self._accept("]"):
                items.append(self._value())
            return items
        if token == "{":  # noqa: S105
            return self._object()
        if token[0] == '"':
            return bytes(token[1:-1], "utf-8").decode("unicode_escape") if "\\" in token else token[1:-1]
        if token[0].isdigit() or token[0] == "-":
            return float(token) if any(c in token for c in ".eE") else int(token)
        return _CONSTANTS.get(token, token)  # else a word of an enumeration

    def _object(self) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not self._accept("}"):
            name = self._take()
            self._take(":")
            members[name] = self._value()
        return members
