"""The OpenAPI document says what the server does: no more, no less, and in the same types."""

import json
from collections.abc import AsyncGenerator
from html.parser import HTMLParser
from pathlib import PurePosixPath
from typing import Any

import pytest
import pytest_asyncio

from tests.http.serving import Served
from tidegate.core.errors import ContractBroken
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType
from tidegate.http.routes import declaration_of, route

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def document(deployment: Served) -> AsyncGenerator[dict[str, Any]]:
    yield (await deployment.client.get("/openapi.json")).json


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


async def test_every_required_route_exists(document: dict[str, Any]):
    assert set(operations(document)) >= {
        "POST /v1/runs",
        "GET /v1/runs",
        "GET /v1/runs/{run_id}",
        "GET /v1/runs/{run_id}/events",
        "GET /v1/runs/{run_id}/jobs",
        "POST /v1/runs/{run_id}/cancel",
        "POST /v1/runs/{run_id}/retry",
        "POST /v1/jobs/{job_id}/retry",
        "GET /v1/users/{login}/statistics",
        "GET /v1/statistics",
        "GET /v1/credentials",
        "POST /v1/credentials",
        "DELETE /v1/credentials/{name}",
        "GET /v1/quotas",
        "GET /v1/dead-letters",
        "POST /v1/dead-letters/{letter_id}/replay",
        "POST /v1/crawl/runs",
        "POST /v1/crawl/schedules",
        "GET /v1/crawl/products",
        "GET /v1/crawl/raws",
        "POST /v1/crawl/raws/{raw_id}/replay",
        "PUT /v1/crawl/identities/{name}",
        "GET /v1/jobs/{job_id}/executions",
        "GET /v1/rooms",
        "POST /v1/rooms/{room}/entries",
        "GET /v1/rooms/{room}/place/events",
        "GET /metrics",
        "GET /healthz",
        "GET /readyz",
        "GET /openapi.json",
        "GET /docs",
    }


async def test_the_document_is_complete(document: dict[str, Any]):
    assert document["openapi"] == "3.1.0"
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        assert schema.get("description") or "enum" in schema, name
    text = json.dumps(document)
    referred = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert referred - set(schemas) == set()
    names = [operation["operationId"] for operation in operations(document).values()]
    assert len(names) == len(set(names))
    for place, operation in operations(document).items():
        assert operation["summary"].endswith((".", ":")), place
        assert {"403", "422", "500", "503"} <= set(operation["responses"]), place
        assert all(response["description"] for response in operation["responses"].values()), place


async def test_fields_are_described_by_their_docstrings(document: dict[str, Any]):
    schemas = document["components"]["schemas"]

    assert schemas["NewRuns"]["properties"]["full"]["description"].startswith("Read everything again")
    assert schemas["RunDetail"]["properties"]["waits"]["description"].startswith("Empty if the run can continue")
    assert schemas["RunDetail"]["properties"]["calls"]["description"], "also what is inherited"
    [before] = [each for each in operations(document)["GET /v1/runs"]["parameters"] if each["name"] == "before"]
    assert before["description"] == "Only runs older than this one."
    assert schemas["Run"]["properties"]["created_at"]["format"] == "date-time"
    assert schemas["Run"]["properties"]["started_at"]["anyOf"][0]["format"] == "date-time"
    assert "None" not in json.dumps(document), "here it is called null"


async def test_no_response_schema_has_a_field_for_a_secret(document: dict[str, Any]):
    """What comes back is described by schemas that have none; only what goes in has."""
    schemas = document["components"]["schemas"]
    going_in = {"CredentialRequest", "App", "IdentityHeaders"}
    secret = {"token", "private_key", "secret", "sealed", "fingerprint", "headers"}

    found = {name for name, schema in schemas.items() if secret & set(schema.get("properties", {}))}
    assert found == going_in


class Page(HTMLParser):
    """What a page asks of others, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.external: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        if given.get("id"):
            self.ids.add(str(given["id"]))
        for name in ("src", "href"):
            if given.get(name):
                self.links.add(str(given[name]))


async def test_the_documentation_page_loads_nothing_external_and_explains_every_problem(deployment: Served):
    answer = await deployment.client.get("/docs")
    page = Page()
    page.feed(answer.body.decode())

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
    assert "unsafe" not in policy
    assert not page.tags & {"img", "iframe", "form", "style"}
    files = page.links - {"openapi.json"}
    assert {file.partition("/")[0] for file in files} == {"docs"}, "no other site"
    assert {PurePosixPath(file).suffix for file in files} == {".css", ".js", ".svg"}
    for file in files:
        loaded = await deployment.client.get(f"/{file}")
        assert loaded.status == 200, file
        assert "immutable" in loaded.headers["cache-control"]
        assert b"sourceMappingURL" not in loaded.body
    assert {kind.slug for kind in ProblemType} <= page.ids


async def test_files_of_another_page_version_are_not_found(deployment: Served):
    answer = await deployment.client.get("/docs/0123456789abcdef/docs.js")

    assert (answer.status, answer.problem) == (404, "not-found")


class Query(RequestInput, frozen=True, kw_only=True):
    """Anything."""

    n: int = 0


async def good(thing_id: int, query: Query) -> Query:
    """Do something."""
    del thing_id
    return query


async def undocumented() -> Query:
    return Query()


async def test_a_handler_that_does_not_match_its_path_is_refused_when_declared():
    declared = declaration_of(route("GET", "/x/{thing_id}", good, "x"))
    assert declared is not None
    assert declared.contract.path == {"thing_id": int}
    for method, path, handler in (
        ("GET", "/x", good),
        ("GET", "/x/{thing_id}/{other}", good),
        ("FETCH", "/x/{thing_id}", good),
        ("GET", "/x", undocumented),
    ):
        with pytest.raises(ContractBroken):
            route(method, path, handler, "x")
