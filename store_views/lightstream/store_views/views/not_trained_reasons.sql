-- Why a finished rollout was not trained on: the codes of `why_not_trained`, which stay as they are, and what to do.
-- Columns:
--   reason_code: the code; most are also keys of `not_trained`, for single calls.
--   meaning: what it means, of a rollout.
--   next_step: what to do about it.
FROM (
    VALUES
    ('attempt_failed', 'its attempt failed, and left nothing to learn from',
        'Fix the error. Where a failure should count as a reward of its own: VERL(reward_missing="fill").'),
    ('no_calls', 'it has no LLM call that is training data: its agent made none, or each was dropped',
        'Let the agent call the model at the base URL of its `llm` resource; the view `dropped` has what was dropped.'),
    ('no_reward', 'nothing says how good it was: it has no reward, which is not a reward of 0',
        'Return a reward from the agent, or call emit_reward; VERL(reward_missing="fill") counts a missing one.'),
    ('not_comparable', 'no other rollout of its group has a reward that its own can be compared with',
        'Set rollouts_per_task to at least 2, and see why the others have none.'),
    ('group_failed', 'another rollout of its group has no reward, and such groups are left out as a whole',
        'See why the other has none, or set VERL(reward_missing=...) to something other than "fail_group".'),
    ('no_signal', 'it was as good as the mean of its group (zero advantage), so it says nothing about what is better',
        'Nothing, if it happens now and then; else take tasks of which some rollouts fail, or more rollouts of a task.'),
    ('no_logprobs', 'the model server did not say how likely its tokens were',
        'Use a model server that returns log-probabilities of its tokens, such as vLLM or `lightstream policy`.'),
    ('empty', 'the prompt or the response of its calls has no token',
        'See its calls: `lightstream explain` with its id.'),
    ('misaligned', 'ids, log-probabilities and mask of its calls differ in length, or are not numbers',
        'See its calls in the view `triplets`; the model server gave them so.'),
    ('too_long', 'its calls are over the limits of the batch',
        'Raise prompt_tokens_max or response_tokens_max, or set overlong="truncate".'),
    ('stale', 'its calls were sampled by a policy older than the bound',
        'Allow older ones, or run fewer rollouts ahead of the trainer; `consumed_calls` has the staleness.'),
    ('unknown_version', 'nobody knows which policy sampled its calls, and older ones are left out',
        'The model server must say which version sampled: its model is named `<model>@<version>`.'),
    ('frozen_agent', 'its agents belong to no policy that is trained',
        'Nothing, if it is meant so; else name them in `agents` of one of VERL(policies=...).'),
    ('other_policy', 'its calls were sampled by another model than the policy that their agents belong to',
        'Let each agent call the model of its own policy: the resource of that name.'),
    ('group_skipped', 'its group was left out of the step', 'See the metrics of the step in `training_steps`.'),
    ('step_discarded', 'the step that consumed it found nothing to train on, and was discarded',
        'See why the other rollouts of the step had no weight; new rollouts of the same tasks follow.'),
    ('no_weight', 'the step that consumed it learned nothing from it, and does not say why',
        'Let the algorithm commit with `not_trained`.'),
    ('not_for_training', 'it was not made for training', 'Nothing: validation and test rollouts are not trained on.'),
    ('cancelled', 'it was cancelled', 'Enqueue it again if it is still wanted.'),
    ('not_assembled', 'its trajectory is not assembled yet',
        'Wait; if it stays so, see with `lightstream status` whether the worker runs, and how far it is behind.'),
    ('after_the_end', 'its run had done all its steps before one could consume it', 'Nothing, or give the run more steps.'),
    ('group_incomplete', 'its group is not complete', 'Wait for the other rollouts of the group; `rollouts` has them.'),
    ('not_consumed', 'its group is complete, and no training step has consumed it yet',
        'Wait for the next step; `lightstream runs` shows whether a trainer is at work.')
) AS reasons (reason_code, meaning, next_step)
