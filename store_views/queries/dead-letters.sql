-- Records that could not be used, the last first.
-- $limit = 200: how many rows.
SELECT reason, detail, origin_topic, origin_partition, origin_offset, value_size, left(value::VARCHAR, 2000) AS value,
  reported_by, observed_unix_nano::VARCHAR AS observed_unix_nano, log_partition, log_offset
FROM dead_letters ORDER BY log_offset DESC LIMIT $limit
