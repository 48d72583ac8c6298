-- Throughput: issues opened and closed per month; pull requests are left out.
WITH events AS (
    SELECT date_trunc('month', github_created_at) AS month, 1 AS opened, 0 AS closed
    FROM github.issue
    WHERE NOT is_pull_request AND _deleted_at IS NULL
    UNION ALL
    SELECT date_trunc('month', closed_at), 0, 1
    FROM github.issue
    WHERE NOT is_pull_request AND closed_at IS NOT NULL AND _deleted_at IS NULL
)
SELECT month, CAST(sum(opened) AS bigint) AS opened, CAST(sum(closed) AS bigint) AS closed
FROM events
GROUP BY month
ORDER BY month;
