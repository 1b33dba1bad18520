-- Every version of the resources, as last published under its id.
-- Columns of `resources_raw`.
SELECT *
FROM resources_raw
QUALIFY row_number() OVER (PARTITION BY resources_id ORDER BY log_offset DESC) = 1
