-- Bus factor: the smallest number of authors who together wrote at least half of the commits of a repository.
WITH authors AS (
    SELECT resource_key, coalesce(author_login, author_email, author_name, '') AS author, count(*) AS commits
    FROM github.commit
    WHERE _deleted_at IS NULL
    GROUP BY 1, 2
), ranked AS (
    SELECT
        resource_key,
        row_number() OVER by_commits AS place,
        sum(commits) OVER by_commits AS commits_so_far,
        sum(commits) OVER (PARTITION BY resource_key) AS commits
    FROM authors
    WINDOW by_commits AS (PARTITION BY resource_key ORDER BY commits DESC, author ROWS UNBOUNDED PRECEDING)
)
SELECT resource_key AS repository, min(place) AS bus_factor, max(commits) AS commits
FROM ranked
WHERE commits_so_far * 2 >= commits
GROUP BY resource_key
ORDER BY repository;
