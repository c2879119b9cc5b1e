-- +goose Up

-- The translator state of a turn contains unmasked text of its agent. The state of an ended run is
-- never read.
UPDATE runs SET translator = NULL WHERE ended_at IS NOT NULL AND translator IS NOT NULL;
