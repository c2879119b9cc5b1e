-- +goose Up

-- Every turn changes the rows of its session in these tables. With Postgres's own thresholds of 50
-- changed rows, a server with few sessions vacuums and analyzes them whenever it looks for work, and
-- each time every connection plans its statements again. Large tables are vacuumed and analyzed by
-- their share of changed rows, as before. No plan depends on the tables of long values (toast), which
-- are vacuumed as before.
--
-- Tables with many rows per session are first analyzed after a few thousand turns at most: until then
-- a statement that was planned for an empty table may read all rows of a session (see 00192).
ALTER TABLE prompts SET (autovacuum_analyze_threshold = 5000, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = 50000,
    toast.autovacuum_vacuum_threshold = 50, toast.autovacuum_vacuum_insert_threshold = 1000);
ALTER TABLE blocks SET (autovacuum_analyze_threshold = 5000, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = 50000,
    toast.autovacuum_vacuum_threshold = 50, toast.autovacuum_vacuum_insert_threshold = 1000);
ALTER TABLE transcripts SET (autovacuum_analyze_threshold = 5000, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = 50000,
    toast.autovacuum_vacuum_threshold = 50, toast.autovacuum_vacuum_insert_threshold = 1000);
ALTER TABLE runs SET (autovacuum_analyze_threshold = 10000, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = 50000,
    toast.autovacuum_vacuum_threshold = 50, toast.autovacuum_vacuum_insert_threshold = 1000);
ALTER TABLE sessions SET (autovacuum_analyze_threshold = 50000, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = 50000,
    toast.autovacuum_vacuum_threshold = 50, toast.autovacuum_vacuum_insert_threshold = 1000);
ALTER TABLE session_activity SET (autovacuum_analyze_threshold = 50000, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = 50000);
ALTER TABLE transcript_positions SET (autovacuum_analyze_threshold = 50000, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = 50000);
ALTER TABLE transcript_totals SET (autovacuum_analyze_threshold = 50000, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = 50000);
ALTER TABLE lifecycle_events SET (autovacuum_analyze_threshold = 50000, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = 50000);
ALTER TABLE lifecycle_head SET (autovacuum_analyze_threshold = 50000, autovacuum_vacuum_threshold = 20000);
ALTER TABLE event_log SET (autovacuum_analyze_threshold = 100000);
