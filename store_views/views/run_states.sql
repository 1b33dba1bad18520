-- What each run is doing, as its trainer says every two seconds, and how it ended.
-- Columns of `workers_raw` and `training_steps_raw`, and:
--   trainer_id: trainer that spoke last.
--   state: `running`; `lost` (no word of its trainer for 12 seconds: killed, hung, or cut off); `finished`, `failed` or
--     `stopped` (by a signal, or by its program) as its trainer said when it ended.
--   error: message of the error that ended it; empty where there was none.
--   silent_seconds: seconds since its trainer's last word, by that machine's clock.
WITH beats AS (SELECT * FROM workers_raw WHERE kind = 'trainer'), said AS (
    -- Few of thousands, before their JSON is read: the last of each process, and those of trainings that ended.
    SELECT *, CASE WHEN json_valid(stats_json) THEN stats_json::JSON END AS stats
    FROM beats
    WHERE status = 'stopped' OR log_offset IN (SELECT max(log_offset) FROM beats GROUP BY worker_id, host, pid)
), latest AS (
    SELECT *, stats ->> '$.run_id' AS run_id, (epoch_ns(now()) - heartbeat_unix_nano) / 1e9 AS silent_seconds
    FROM said
    WHERE (stats ->> '$.run_id') IS NOT NULL AND coalesce((stats ->> '$.trains')::BOOLEAN, true)
    QUALIFY row_number() OVER (PARTITION BY stats ->> '$.run_id' ORDER BY log_offset DESC) = 1
), made AS (
    SELECT run_id, arg_max(trainer_id, log_offset) AS trainer_id, max(step) AS step,
        arg_max(steps_planned, log_offset) AS steps_planned
    FROM training_steps_raw
    WHERE outcome <> 'measured'
    GROUP BY run_id
)
SELECT
    coalesce(latest.run_id, made.run_id) AS run_id,
    coalesce(regexp_replace(latest.worker_id, '^trainer:', ''), made.trainer_id) AS trainer_id,
    CASE
        WHEN latest.status = 'stopped' AND (stats ->> '$.state') IS NOT NULL THEN stats ->> '$.state'
        WHEN latest.status <> 'stopped' AND silent_seconds > 12 THEN 'lost'
        WHEN latest.status <> 'stopped' THEN 'running'
        -- Of versions that did not say how they ended, and where newer words of the trainer took the place of these.
        WHEN made.steps_planned > 0 AND made.step >= made.steps_planned THEN 'finished'
        ELSE 'stopped'
    END AS state,
    coalesce(stats ->> '$.error', '') AS error,
    latest.host, latest.pid, latest.heartbeat_unix_nano, silent_seconds
FROM latest
FULL JOIN made ON made.run_id = latest.run_id
