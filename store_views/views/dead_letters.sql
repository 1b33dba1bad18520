-- Every record that could not be used, once, whoever reported it.
-- Columns of `dead_letters_raw`.
SELECT *
FROM dead_letters_raw
QUALIFY row_number() OVER (
    PARTITION BY origin_topic, origin_partition, origin_offset ORDER BY log_offset
) = 1
