-- Releases that somebody should look at, with the reason and the next step.
SELECT release, alarm, detail, next_step FROM release_alarms ORDER BY release, alarm, detail
