-- +goose Up

-- How many rows a session has differs by orders of magnitude, and the average says nothing about the
-- session of a statement. In a database of many sessions with one prompt each, a lookup by the session
-- alone would seem as good as one by the whole key, and would then read the whole history of a long
-- session. So the planner assumes fifty rows per session. Statements are planned again after an
-- analysis.
ALTER TABLE prompts ALTER COLUMN session_id SET (n_distinct = -0.02);
ALTER TABLE runs ALTER COLUMN session_id SET (n_distinct = -0.02);
ALTER TABLE blocks ALTER COLUMN session_id SET (n_distinct = -0.02);
ALTER TABLE questions ALTER COLUMN session_id SET (n_distinct = -0.02);
ALTER TABLE transcripts ALTER COLUMN session_id SET (n_distinct = -0.02);
ALTER TABLE session_commands ALTER COLUMN session_id SET (n_distinct = -0.02);
ALTER TABLE session_transitions ALTER COLUMN session_id SET (n_distinct = -0.02);
ALTER TABLE bundles ALTER COLUMN session_id SET (n_distinct = -0.02);
ALTER TABLE event_log ALTER COLUMN session_no SET (n_distinct = -0.02);
ANALYZE prompts, runs, blocks, questions, transcripts, session_commands, session_transitions, bundles, event_log;
