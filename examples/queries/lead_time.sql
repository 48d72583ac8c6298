-- Lead time for changes: hours from the opening of a pull request to its merge, per repository and month of the merge.
SELECT
    resource_key AS repository,
    date_trunc('month', merged_at) AS month,
    count(*) AS merged,
    round(CAST(percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM merged_at - github_created_at) / 3600.0) AS numeric), 2) AS median_hours
FROM github.pull_request
WHERE merged_at IS NOT NULL AND _deleted_at IS NULL
GROUP BY resource_key, date_trunc('month', merged_at)
ORDER BY repository, month;
