-- Releases that somebody should look at, with the reason. None: all is well.
-- Columns of `releases`, and:
--   alarm: `rewards_silent`, `judge_disagrees` or `gate_bypassed`.
--   detail: figures or names.
--   next_step: a sentence.
WITH calls AS (
    SELECT release, rollout_id, start_unix_nano, reward FROM release_calls
),
rewarded AS (
    SELECT release, max(start_unix_nano) AS last, max(start_unix_nano) FILTER (reward IS NOT NULL) AS last_rewarded
    FROM calls
    GROUP BY release
),
unrewarded AS (
    SELECT release, (max(last) - min(start_unix_nano)) / 3.6e12 AS hours
    FROM calls
    JOIN rewarded USING (release)
    WHERE start_unix_nano > coalesce(last_rewarded, 0)
    GROUP BY release
),
scored AS (
    SELECT rollout_id, avg(value) FILTER (is_judge) AS judge,
        avg(value) FILTER (NOT is_judge AND name = 'feedback' AND compared_with IS NULL) AS person
    FROM (
        SELECT rollout_id, name, value, compared_with,
            starts_with(scored_by, 'judge ') OR starts_with(key, 'judge/') AS is_judge
        FROM scores
    )
    GROUP BY rollout_id
),
compared AS (
    SELECT release, count(*) AS rollouts, corr(judge, person) AS correlation
    FROM (SELECT DISTINCT release, rollout_id FROM calls)
    JOIN scored USING (rollout_id)
    WHERE judge IS NOT NULL AND person IS NOT NULL
    GROUP BY release
),
serving AS (
    SELECT release, candidate AS model FROM releases WHERE candidate IS NOT NULL
    UNION ALL
    SELECT state.release, state.stable
    FROM releases AS state
    JOIN release_changes AS first ON first.release = state.release AND first.revision = 1
    WHERE state.stable <> first.stable
)
SELECT
    release, 'rewards_silent' AS alarm,
    'no call of the last ' || floor(hours)::BIGINT::VARCHAR || ' hours of traffic has a reward' AS detail,
    'Look whether the sender of rewards still runs. Without rewards nothing is learned.' AS next_step
FROM unrewarded
WHERE hours > 24
UNION ALL
SELECT
    release, 'judge_disagrees',
    'the correlation of judge and people is ' || round(correlation, 2)::VARCHAR || ' over ' || rollouts::VARCHAR
        || ' rollouts',
    'Read some comments of the judge in `scores`, and correct its rubric.'
FROM compared
WHERE rollouts >= 20 AND correlation < 0.3
UNION ALL
SELECT
    release, 'gate_bypassed', model || ' serves without a passed report of the gate',
    'Roll it back, or take it through `lightstream gate` (with --stable, where it is the stable model already).'
FROM serving
WHERE release IN (SELECT release FROM gate_reports)
    AND NOT EXISTS (
        SELECT 1 FROM gate_reports AS report
        WHERE report.release = serving.release AND report.candidate = serving.model AND report.outcome = 'passed'
    )
