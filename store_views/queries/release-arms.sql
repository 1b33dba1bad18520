-- Calls of each arm of a release: of the models that serve it now, since the candidate was offered, or since the last day of
-- calls where there is none.
-- $release: the release.
WITH state AS (
    SELECT stable, candidate, offered_unix_nano FROM releases WHERE release = $release
),
calls AS (
    SELECT call.*
    FROM release_calls AS call
    JOIN state ON call.release_model IN (state.stable, state.candidate) OR call.release_fallback IS NOT NULL
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
    count(reward) AS rewarded, avg(reward) AS reward, avg(cost) AS cost, avg(response_token_count) AS response_tokens,
    median(seconds) AS seconds, quantile_cont(seconds, 0.95) AS seconds_p95
FROM calls
GROUP BY release_arm
ORDER BY release_arm DESC
