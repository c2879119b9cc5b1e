-- name: ReportsFind :many
-- ReportsFind returns the reports of one kind of several sessions.
SELECT * FROM session_reports WHERE session_id = ANY(@session_ids::text[]) AND kind = @kind;

-- name: ReportsPut :exec
INSERT INTO session_reports (session_id, kind, data, run_id, first_at, at)
SELECT unnest(@session_ids::text[]), unnest(@kinds::text[]), unnest(@datas::text[]), unnest(@run_ids::text[]), unnest(@first_ats::timestamptz[]), unnest(@ats::timestamptz[])
ON CONFLICT (session_id, kind) DO UPDATE SET data = excluded.data, run_id = excluded.run_id, first_at = excluded.first_at, at = excluded.at;

-- name: ReportsGet :many
SELECT * FROM session_reports WHERE session_id = @session_id;

-- name: ScreenshotsPut :exec
INSERT INTO screenshots (session_id, seq, data, run_id, at)
SELECT unnest(@session_ids::text[]), unnest(@seqs::bigint[]), unnest(@datas::text[]), unnest(@run_ids::text[]), unnest(@ats::timestamptz[]);

-- name: ScreenshotList :many
SELECT seq, data, run_id, at FROM screenshots WHERE session_id = @session_id AND seq < @before ORDER BY seq DESC LIMIT @max_items;
