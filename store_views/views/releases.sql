-- Every release as it is now.
-- Columns of `release_changes`.
SELECT *
FROM release_changes
QUALIFY row_number() OVER (PARTITION BY release ORDER BY revision DESC) = 1
