-- What a run is doing, and the error that ended it, as in `run_states`.
-- $run: the run.
SELECT state, error, trainer_id, host, pid, heartbeat_unix_nano::VARCHAR AS said_unix_nano, silent_seconds
FROM run_states WHERE run_id = $run
