-- Every assembled attempt, in its latest revision.
SELECT *
FROM trajectories_raw
QUALIFY row_number() OVER (PARTITION BY rollout_id, attempt_id ORDER BY revision DESC, log_offset) = 1
