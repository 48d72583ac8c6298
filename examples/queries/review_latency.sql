-- Review latency: hours from the opening of a pull request to the first review by another account, per repository.
WITH first_review AS (
    SELECT p.id, p.resource_key, extract(epoch FROM min(r.submitted_at) - min(p.github_created_at)) / 3600.0 AS hours
    FROM github.pull_request AS p
    JOIN github.review AS r ON r.resource_key = p.resource_key AND r.pull_request_number = p.number
    WHERE r.submitted_at >= p.github_created_at AND r.user_id IS DISTINCT FROM p.user_id
      AND p._deleted_at IS NULL AND r._deleted_at IS NULL
    GROUP BY p.id, p.resource_key
)
SELECT resource_key AS repository, count(*) AS reviewed, round(CAST(avg(hours) AS numeric), 2) AS mean_hours
FROM first_review
GROUP BY resource_key
ORDER BY repository;
