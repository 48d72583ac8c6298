"""A pipeline of dlt with its REST API source, as documented for GitHub: with `since` where it exists."""

import dlt
from address import redirect_to
from dlt.sources.rest_api import rest_api_source
from records import Job

job = Job()
redirect_to(job.url)
HIDDEN = [{"status_code": status, "action": "ignore"} for status in (404, 409, 410, 451)]


def of_each_repository(name, path, **params):
    """A list of each repository."""
    endpoint = {"path": f"repos/{job.login}/{{resources.repos.name}}/{path}", "params": params}
    return {"name": name, "endpoint": {**endpoint, "response_actions": HIDDEN}}


def since(field):
    """The newest time of the last run."""
    return {"type": "incremental", "cursor_path": field, "initial_value": "2000-01-01T00:00:00Z"}


source = rest_api_source(
    {
        "client": {
            "base_url": "https://api.github.com",
            "auth": {"type": "bearer", "token": job.token},
            "paginator": "header_link",
        },
        "resource_defaults": {
            "primary_key": "id",
            "write_disposition": "merge",
            "endpoint": {"params": {"per_page": 100}},
        },
        "resources": [
            {"name": "repos", "endpoint": {"path": f"users/{job.login}/repos", "params": {"per_page": 100}}},
            of_each_repository("issues", "issues", per_page=100, state="all", since=since("updated_at")),
            of_each_repository("pulls", "pulls", per_page=100, state="all"),
            {
                **of_each_repository("commits", "commits", per_page=100, since=since("commit.committer.date")),
                "primary_key": "sha",
            },
        ],
    }
)
pipeline = dlt.pipeline(
    "github",
    pipelines_dir=str(job.folder),
    destination=dlt.destinations.duckdb(str(job.folder / "warehouse.duckdb")),
    dataset_name="github",
)
pipeline.run(source)
with pipeline.sql_client() as client:
    for query, kind in (
        ("SELECT id FROM issues WHERE pull_request__url IS NULL", "issue"),
        ("SELECT id FROM pulls", "pull_request"),
        ("SELECT sha FROM commits", "commit"),
    ):
        with client.execute_query(query) as rows:
            for (identity,) in rows.fetchall():
                job.store(kind, identity)
