"""`POST /graphql`: what a query costs, what it may not ask for, and its answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate_simulators.github.answers import Answer, Refused, error, ok
from tidegate_simulators.github.calls import Call
from tidegate_simulators.github.draws import iso
from tidegate_simulators.github.graphql_language import (
    Document,
    Field,
    Fragment,
    Selection,
    SyntaxProblem,
    Variable,
    parse,
)
from tidegate_simulators.github.graphql_schema import CONNECTIONS, FieldProblem, Node, Schema
from tidegate_simulators.github.windows import Allowance

MOST_NODES = 500_000
_NODES_PER_SECOND = 10_000
MOST_PER_CONNECTION = 100
TIMED_OUT = "Something went wrong while executing your query. This may be the result of a timeout."


class _Request(msgspec.Struct):
    query: str
    variables: dict[str, Any] | None = None


@dataclass
class Price:
    """What a query asks for, known before it runs."""

    requests: int = 0
    nodes: int = 0

    @property
    def points(self) -> int:
        """A hundredth of the requests for connections, at least one."""
        return max(1, round(self.requests / 100))


class GraphQL:
    """Runs queries for a caller."""

    def __init__(self, schema: Schema, nodes_in_time: int) -> None:
        self._schema, self._nodes_in_time = schema, nodes_in_time

    def answer(self, call: Call, allowance: Allowance) -> Answer:
        """The answer to a query, and what it took."""
        if not call.caller.is_authorised:
            return error(401, "This endpoint requires you to be authenticated.")
        try:
            request = msgspec.json.decode(call.body, type=_Request)
            document = parse(request.query)
        except (msgspec.DecodeError, SyntaxProblem) as problem:
            return ok({"errors": [{"message": f"Parse error: {problem}"}]})
        query = _Query(document, {**document.defaults, **(request.variables or {})})
        price, problems = query.price()
        if problems:
            return ok({"errors": problems})
        if price.nodes > self._nodes_in_time:
            # A query that timed out is charged twice its points.
            late = error(502, TIMED_OUT)
            late.cost = 2 * price.points
            late.computing_s = price.nodes / _NODES_PER_SECOND
            return late
        return self._run(query, call, allowance, price)

    def _run(self, query: "_Query", call: Call, allowance: Allowance, price: Price) -> Answer:
        account_id = call.caller.owner.number if call.caller.owner.kind == "user" else None
        root = self._schema.root(account_id, _rate_limit(allowance, call.at, price))
        content: dict[str, Any] = {"data": query.run(root)}
        if query.problems:
            content["errors"] = query.problems
        answer = ok(content)
        answer.cost = price.points
        answer.computing_s = query.visited / _NODES_PER_SECOND
        return answer


def _rate_limit(allowance: Allowance, at: float, price: Price) -> dict[str, Any]:
    """The allowance as it is after this query."""
    headers = allowance.headers(at)
    remaining = max(0, allowance.left(at) - price.points)
    return {
        "limit": allowance.limit,
        "cost": price.points,
        "remaining": remaining,
        "used": allowance.limit - remaining,
        "resetAt": iso(int(headers["x-ratelimit-reset"])),
        "nodeCount": price.nodes,
    }


def without_item(answer: Answer) -> Answer:
    """The same answer with one entry missing, and an error that says so."""
    content = msgspec.json.decode(answer.body, type=dict[str, Any])
    path = _remove(content.get("data"), [])
    problem = {"type": "SERVICE_UNAVAILABLE", "message": TIMED_OUT, "path": path}
    content["errors"] = [*content.get("errors", []), problem]
    corrupted = ok(content)
    corrupted.cost, corrupted.computing_s = answer.cost, answer.computing_s
    return corrupted


def _remove(value: Any, path: list[str | int]) -> list[str | int]:
    """Replace the last entry of the first list by null; its path, or that of nothing."""
    if isinstance(value, dict):
        for name, below in value.items():
            if isinstance(below, list) and below:
                below[-1] = None
                return [*path, str(name), len(below) - 1]
            if found := _remove(below, [*path, str(name)]):
                return found
    return []


class _Query:
    """One query with its variables, run once."""

    def __init__(self, document: Document, variables: Mapping[str, Any]) -> None:
        self._document, self._variables = document, variables
        self.visited = 0
        self.problems: list[dict[str, Any]] = []

    def price(self) -> tuple[Price, list[dict[str, Any]]]:
        """Walk the query without running it."""
        price, problems = Price(), list[dict[str, Any]]()
        if self._document.operation != "query":
            problems.append({"type": "FORBIDDEN", "message": "Only queries are answered here."})
        self._price_of(self._document.selections, 1, price, problems)
        if price.nodes > MOST_NODES:
            message = (
                f"This query requests up to {price.nodes:,} possible nodes which exceeds the maximum limit of 500,000."
            )
            problems.append({"type": "MAX_NODE_LIMIT_EXCEEDED", "message": message})
        return price, problems

    def _price_of(
        self, selections: tuple[Selection, ...], times: int, price: Price, problems: list[dict[str, Any]]
    ) -> None:
        for selection in selections:
            if isinstance(selection, Fragment):
                self._price_of(self._inside(selection), times, price, problems)
                continue
            below = times
            if selection.name in CONNECTIONS:
                count = self._bound(selection, problems)
                price.requests += times
                price.nodes += times * count
                below = times * count
            elif selection.name == "nodes" and "ids" in selection.arguments:
                below = times * len(self._resolve(selection.arguments["ids"]) or ())
            self._price_of(selection.selections, below, price, problems)

    def _bound(self, field: Field, problems: list[dict[str, Any]]) -> int:
        args = self._arguments(field)
        which = "first" if args.get("first") is not None else "last"
        count = args.get(which)
        if not isinstance(count, int):
            message = f"You must provide a `first` or `last` value to properly paginate the `{field.name}` connection."
            problems.append({"type": "MISSING_PAGINATION_BOUNDARIES", "message": message})
            return 0
        if not 1 <= count <= MOST_PER_CONNECTION:
            asked = f"Requesting {count} records on the `{field.name}` connection"
            message = f"{asked} exceeds the `{which}` limit of {MOST_PER_CONNECTION} records."
            problems.append({"type": "EXCESSIVE_PAGINATION", "message": message})
            return 0
        return count

    def run(self, root: Node) -> dict[str, Any]:
        """Execute the query; return its data."""
        return self._object(root, self._document.selections, [])

    def _object(self, node: Node, selections: tuple[Selection, ...], path: list[str | int]) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        self.visited += 1
        for selection in selections:
            if isinstance(selection, Field):
                shown[selection.alias] = self._field(node, selection, [*path, selection.alias])
            elif self._applies(selection, node):
                shown |= self._object(node, self._inside(selection), path)
        return shown

    def _field(self, node: Node, field: Field, path: list[str | int]) -> Any:
        if field.name == "__typename":
            return node.type_name
        if field.name not in node.fields:
            message = f"Field '{field.name}' doesn't exist on type '{node.type_name}'"
            self.problems.append({"type": "UNDEFINED_FIELD", "message": message, "path": path})
            return None
        value = node.fields[field.name]
        try:
            found = value(self._arguments(field)) if callable(value) else value
        except FieldProblem as problem:
            self.problems.append({"type": problem.kind, "message": str(problem), "path": path})
            return None
        except Refused:
            self.problems.append(
                {"type": "INVALID_CURSOR_ARGUMENTS", "message": "That cursor is no place.", "path": path}
            )
            return None
        return self._value(found, field, path)

    def _value(self, found: Any, field: Field, path: list[str | int]) -> Any:
        if isinstance(found, Node):
            return self._object(found, field.selections, path)
        if isinstance(found, list):
            return [self._value(one, field, [*path, i]) for i, one in enumerate(found)]
        return found

    def _applies(self, fragment: Fragment, node: Node) -> bool:
        if fragment.spread is not None:
            fragment = self._document.fragments.get(fragment.spread, fragment)
        return fragment.type_name in (None, node.type_name, "Node", "Actor")

    def _inside(self, fragment: Fragment) -> tuple[Selection, ...]:
        if fragment.spread is None:
            return fragment.selections
        named = self._document.fragments.get(fragment.spread)
        return named.selections if named else ()

    def _arguments(self, field: Field) -> dict[str, Any]:
        resolved = {name: self._resolve(value) for name, value in field.arguments.items()}
        return {name: value for name, value in resolved.items() if value is not None}

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, Variable):
            return self._variables.get(value.name)
        if isinstance(value, list):
            return [self._resolve(one) for one in value]
        if isinstance(value, dict):
            return {name: self._resolve(one) for name, one in value.items()}
        return value
