-- Every prompt of a search (`APO`) that was measured: what it was made of, and its score.
-- Columns of `rollouts`, and:
--   prompt: its name in the search; `v0` is the one that was given.
--   parent: the prompt that it was made of.
--   critique: what the model found wrong with that one.
--   template: its text.
--   score: its mean reward, of the measurement on most tasks.
--   tasks: how many tasks those were.
--   measurements: on how many batches of tasks it was measured.
WITH told AS (
    SELECT
        rollouts.run_id, name,
        attributes ->> '$."lightstream.apo.prompt"' AS prompt,
        attributes ->> '$."lightstream.apo.parent"' AS parent,
        attributes ->> '$."lightstream.apo.template"' AS template,
        attributes ->> '$."gen_ai.completion.0.content"' AS answer,
        (attributes ->> '$."lightstream.apo.score"')::DOUBLE AS score,
        (attributes ->> '$."lightstream.apo.tasks"')::INTEGER AS tasks
    FROM (
        SELECT rollout_id, name, attributes::JSON AS attributes
        FROM spans_raw
        WHERE name IN ('lightstream.apo.critique', 'lightstream.apo.score')
        -- Once where one was repeated, as `spans`, which looks for that among all spans.
        QUALIFY row_number() OVER (
            PARTITION BY rollout_id, log_partition, attempt_id, trace_id, span_id ORDER BY log_offset
        ) = 1
    ) AS span
    JOIN rollouts USING (rollout_id)
)
SELECT
    run_id, prompt,
    any_value(parent) AS parent,
    any_value(answer) FILTER (name = 'lightstream.apo.critique') AS critique,
    any_value(template) AS template,
    arg_max(score, tasks) AS score,
    max(tasks) AS tasks,
    count(score) AS measurements
FROM told
GROUP BY run_id, prompt
HAVING count(score) > 0
