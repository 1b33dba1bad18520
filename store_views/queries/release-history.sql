-- Changes of a release, the last first.
-- $release: the release.
-- $limit = 100: how many.
SELECT revision, action, stable, candidate, share, paused, "by", reason, report_id,
    changed_unix_nano::VARCHAR AS changed_unix_nano
FROM release_changes WHERE release = $release ORDER BY revision DESC LIMIT $limit
