-- Calls of each arm of a release: of the models that serve it now, since the candidate was offered, or since the last day of
-- calls where there is none. Rewards, cost and tokens are of calls that the arm's own model answered.
-- $release: the release.
WITH state AS (
    SELECT stable, candidate, offered_unix_nano FROM releases WHERE release = $release
),
calls AS (
    SELECT call.*, call.release_fallback IS NULL AS is_own
    FROM release_calls AS call
    JOIN state ON CASE
        WHEN state.candidate IS NULL THEN call.release_arm = 'stable' AND call.release_model = state.stable
        ELSE call.release_model IN (state.stable, state.candidate) OR call.release_fallback IS NOT NULL
    END
    WHERE call.release = $release AND call.start_unix_nano >= coalesce(
        state.offered_unix_nano,
        (SELECT max(start_unix_nano) - 86_400_000_000_000 FROM spans WHERE release = $release)
    )
)
SELECT
    release_arm AS arm,
    count(DISTINCT span_id) AS calls,
    count(DISTINCT release_key) AS keys,
    count(DISTINCT span_id) FILTER (release_fallback IS NOT NULL) AS fallbacks,
    count(DISTINCT span_id) FILTER (error_message IS NOT NULL AND error_message <> '') AS errors,
    count(reward) FILTER (is_own) AS rewarded, avg(reward) FILTER (is_own) AS reward,
    avg(cost) FILTER (is_own) AS cost, avg(response_token_count) FILTER (is_own) AS response_tokens,
    median(seconds) AS seconds, quantile_cont(seconds, 0.95) AS seconds_p95
FROM calls
GROUP BY release_arm
ORDER BY release_arm DESC
