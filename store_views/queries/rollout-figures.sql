-- One rollout at a glance: reward, how it compares with its group's, policy versions, tokens and cost, and how many others
-- had the same task. `divided` is `above_mean` divided by `deviation`, of a run whose options say that its trainer does so.
-- $rollout: the rollout.
WITH finished AS (
  SELECT rollout_id, run_id, mode, coalesce(group_id, rollout_id) AS group_id, reward FROM trajectories_latest WHERE final
), own AS (SELECT run_id, mode, group_id, reward FROM finished WHERE rollout_id = $rollout),
compared AS (
  SELECT own.reward, own.reward - if(min(finished.reward) = max(finished.reward), min(finished.reward), avg(finished.reward)) AS above_mean,
    stddev_samp(finished.reward) AS deviation, any_value(mode) AS mode
  FROM finished JOIN own USING (run_id, mode, group_id) GROUP BY own.reward
), made AS (
  SELECT arg_min(made_with, version)::JSON ->> '$.options' AS options
  FROM resources WHERE run_id = (SELECT any_value(run_id) FROM own) AND made_with::VARCHAR <> '{}'
), used AS (
  SELECT sum(prompt_tokens)::BIGINT AS prompt_tokens, sum(response_tokens)::BIGINT AS response_tokens, sum(cost) AS cost,
    count(*) FILTER (cost IS NULL AND error_message IS NULL) AS calls_without_price
  FROM costs WHERE rollout_id = $rollout
), policy AS (
  SELECT min(policy_version) AS policy_first, max(policy_version) AS policy_last FROM triplets WHERE rollout_id = $rollout
)
SELECT compared.reward, compared.above_mean, compared.deviation,
  (SELECT compared.above_mean / (compared.deviation + 1e-6) FROM made WHERE compared.mode = 'train' AND options ->> '$.advantage' = 'grpo'
    AND options ->> '$.advantage_per' = 'rollout' AND options ->> '$.reward_missing' = 'exclude'
    AND options ->> '$.reward_dimensions' = '{}' AND options ->> '$.reward_model' IS NULL
    AND options ->> '$.kl_reward_coefficient' = '0.0') AS divided,
  policy.policy_first, policy.policy_last, used.prompt_tokens, used.response_tokens, used.cost, used.calls_without_price,
  (SELECT max(step) FROM consumed_raw WHERE rollout_id = $rollout AND triplet_count > 0 AND outcome = 'updated') AS step,
  (SELECT md5(input_json) FROM rollouts WHERE rollout_id = $rollout) AS task,
  (SELECT count(*) - 1 FROM rollouts WHERE input_json = (SELECT input_json FROM rollouts WHERE rollout_id = $rollout)) AS same_task
FROM used, policy LEFT JOIN compared ON true
