-- Every group with a final trajectory: rewards of rollouts of one task, beside each other.
-- Columns of `trajectories_latest`, and:
--   trajectories: how many of its rollouts ended in a final trajectory.
--   rewarded: how many of these have a reward.
--   reward_mean, reward_min, reward_max: of these rewards.
--   reward_std: their standard deviation, of those that are finite.
--   is_flat: true where several rewards are all the same, so that comparing them teaches nothing.
--   closed_unix_nano: when the last of its attempts was closed.
SELECT
    run_id, mode, group_id, any_value(group_size) AS group_size, count(*) AS trajectories, count(reward) AS rewarded,
    avg(reward) AS reward_mean, min(reward) AS reward_min, max(reward) AS reward_max, stddev_pop(reward) FILTER (isfinite(reward)) AS reward_std,
    coalesce(count(reward) > 1 AND min(reward) = max(reward), false) AS is_flat,
    max(closed_unix_nano) AS closed_unix_nano
FROM trajectories_latest
WHERE final AND group_id IS NOT NULL
GROUP BY run_id, mode, group_id
