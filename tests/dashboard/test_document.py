"""What the dashboard asks is in the OpenAPI document like everything else; the page itself is for browsers alone."""

import msgspec
import pytest

from tests.http import test_openapi
from tests.http.serving import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_its_routes_are_documented_and_its_files_are_not(deployment: Served):
    document = (await deployment.client.get("/openapi.json")).json

    assert set(test_openapi.operations(document)) >= {
        "GET /v1/overview",
        "GET /v1/overview/dead",
        "GET /v1/runtime",
        "GET /v1/crawl/overview",
        "GET /v1/history",
        "GET /v1/live",
        "GET /v1/jobs/{job_id}",
        "POST /v1/jobs/{job_id}/retry",
    }
    assert not {"/", "/assets/{digest}/{name}"} & set(document["paths"])
    await test_openapi.test_the_document_is_complete(document)
    await test_openapi.test_no_response_schema_has_a_field_for_a_secret(document)


async def test_responses_have_exactly_the_fields_of_their_schemas(deployment: Served):
    document = (await deployment.client.get("/openapi.json")).json
    schemas = document["components"]["schemas"]

    for path in ("/v1/overview", "/v1/runtime", "/v1/crawl/overview", "/v1/overview/dead", "/v1/history"):
        content = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        schema = schemas[content["$ref"].rpartition("/")[2]]
        answer = await deployment.client.get(path)
        assert list(msgspec.json.decode(answer.body)) == list(schema["properties"]), path
