-- +goose Up

-- The state of a turn has text of its agent that is not masked. Nothing reads that of a run that is over.
UPDATE runs SET translator = NULL WHERE ended_at IS NOT NULL AND translator IS NOT NULL;
