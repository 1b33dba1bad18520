-- Every LLM call has exactly one fate: made = in_triplets + dropped + pending, each counted separately.
-- Columns:
--   made: how many LLM calls there were.
--   in_triplets: how many became triplets.
--   dropped: how many were dropped.
--   pending: how many belong to attempts that are open or not yet assembled.
--   unaccounted: how many have no fate: an error of ours, so 0.
--   counted_twice: how many have more than one fate: an error of ours, so 0.
--   unread: how many records wait for a newer version of Lightstream, and may hold more calls.
--   balanced: true where the numbers add up and nothing is unread.
SELECT
    *,
    made = in_triplets + dropped + pending AND unaccounted = 0 AND counted_twice = 0 AND unread = 0 AS balanced
FROM (
    SELECT
        (SELECT count(*) FROM recorded_calls) AS made,
        (SELECT count(*) FROM triplets) AS in_triplets,
        (SELECT count(*) FROM dropped WHERE is_llm_call) AS dropped,
        (SELECT count(*) FROM call_spans WHERE fate = 'pending') AS pending,
        (SELECT count(*) FROM call_spans WHERE fate = 'unaccounted') AS unaccounted,
        (SELECT count(*) FROM call_spans WHERE fates > 1) AS counted_twice,
        (SELECT count(*) FROM unread_records) AS unread
)
