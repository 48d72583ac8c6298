-- Contributor retention: of the accounts with their first commit in a month, how many committed again in a later month.
WITH active AS (
    SELECT author_login AS author, date_trunc('month', authored_at) AS month
    FROM github.commit
    WHERE author_login IS NOT NULL AND authored_at IS NOT NULL AND _deleted_at IS NULL
    GROUP BY 1, 2
), cohorts AS (
    SELECT author, min(month) AS first_month, count(*) AS months FROM active GROUP BY author
)
SELECT first_month, count(*) AS contributors, sum(CASE WHEN months > 1 THEN 1 ELSE 0 END) AS returned
FROM cohorts
GROUP BY first_month
ORDER BY first_month;
