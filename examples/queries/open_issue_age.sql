-- Open issues and their age in days, at the time of the last change in the table; pull requests are left out.
WITH moment AS (
    SELECT max(_collected_at) AS at FROM github.issue
)
SELECT
    resource_key AS repository,
    count(*) AS open_issues,
    round(CAST(avg(extract(epoch FROM moment.at - github_created_at)) / 86400.0 AS numeric), 1) AS mean_days
FROM github.issue, moment
WHERE state = 'open' AND NOT is_pull_request AND _deleted_at IS NULL
GROUP BY resource_key
ORDER BY repository;
