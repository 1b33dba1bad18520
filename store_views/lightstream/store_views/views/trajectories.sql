-- Every assembled attempt, in its latest revision.
-- Columns of `trajectories_raw`.
SELECT *
FROM trajectories_raw
QUALIFY row_number() OVER (PARTITION BY rollout_id, attempt_id ORDER BY revision DESC, log_offset) = 1
