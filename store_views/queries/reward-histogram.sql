-- How many finished rollouts of a run have which reward, in at most twenty ranges of equal width.
-- $run: the run.
-- $mode: only train, val or test.
WITH rewarded AS (
    SELECT reward FROM trajectories_latest
    WHERE final AND run_id = $run AND isfinite(reward) AND ($mode::VARCHAR IS NULL OR mode = $mode)
), ends AS (SELECT min(reward) AS low, max(reward) AS high FROM rewarded), placed AS (
    SELECT if(high > low, least(19, floor(20 * (reward - low) / (high - low))), 0)::BIGINT AS bin, low, high, reward
    FROM rewarded CROSS JOIN ends
)
SELECT bin, min(reward) AS low, max(reward) AS high, count(*) AS count FROM placed GROUP BY bin ORDER BY bin
