-- Every change of every release, in order: its history. A record that lost a race is in `releases_raw` alone.
-- Columns of `releases_raw`.
SELECT *
FROM releases_raw
QUALIFY row_number() OVER (PARTITION BY release, revision ORDER BY log_offset) = 1
