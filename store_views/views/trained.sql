-- Every trajectory that was learned from: a step consumed it, gave at least one of its calls a weight, and changed the
-- model's weights.
-- Columns of `consumed`.
SELECT * FROM consumed WHERE triplet_count > 0 AND outcome = 'updated'
