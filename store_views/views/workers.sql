-- Every worker as it last reported.
-- Columns of `workers_raw`.
SELECT *
FROM workers_raw
QUALIFY row_number() OVER (PARTITION BY worker_id ORDER BY log_offset DESC) = 1
