-- The checks of a report of the gate: of the newest one of a release, or of a given one.
-- $release: the release.
-- $report: the report's id; by default the newest.
SELECT
    report.report_id, report.stable, report.candidate, report.outcome, report.notes, report.by, report.error_rate,
    report.created_unix_nano::VARCHAR AS created_unix_nano,
    checked.task_set, checked.figure, checked.kind, checked.tasks, checked.stable_mean, checked.candidate_mean,
    checked.limit AS bound, checked.probability, checked.passed
FROM gate_reports AS report
LEFT JOIN (
    SELECT report_id, unnest(checks, recursive := true) FROM gate_reports
) AS checked USING (report_id)
WHERE report.release = $release AND CASE
    WHEN $report::VARCHAR IS NULL THEN report.report_id = (
        SELECT arg_max(report_id, log_offset) FROM gate_reports WHERE release = $release
    )
    ELSE report.report_id = $report
END
ORDER BY checked.task_set, checked.kind, checked.figure
