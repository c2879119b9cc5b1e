-- +goose Up

-- Every image that the installation creates has a row before the image exists: snapshots and base
-- images have an intent, an exit image has the row of its sandbox. unneeded_at marks images to
-- delete, so that finding them does not read the others. The mark is a hint: a snapshot is marked
-- for deletion only after another check under its lock.
ALTER TABLE snapshots ADD COLUMN IF NOT EXISTS kept_until timestamptz; -- needed until then, regardless of bundles
ALTER TABLE snapshots
    ALTER COLUMN session_id DROP NOT NULL, -- null: found at the provider, of an unknown session
    ADD COLUMN bundled         boolean     NOT NULL DEFAULT false, -- a bundle was made of it
    ADD COLUMN base_id         text, -- the base image below it; null when it is not known
    ADD COLUMN unneeded_at     timestamptz,
    ADD COLUMN delete_attempts integer     NOT NULL DEFAULT 0,
    ADD COLUMN delete_after    timestamptz NOT NULL DEFAULT now();

CREATE INDEX snapshots_unneeded ON snapshots (delete_after, id) WHERE unneeded_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX snapshots_unbundled ON snapshots (created_at) WHERE NOT bundled AND unneeded_at IS NULL AND deleted_at IS NULL;
CREATE INDEX snapshots_session ON snapshots (session_id) WHERE deleted_at IS NULL;
CREATE INDEX snapshots_base ON snapshots (base_id) WHERE deleted_at IS NULL;
CREATE INDEX snapshots_page ON snapshots (id) WHERE unneeded_at IS NULL AND deleted_at IS NULL;
CREATE INDEX bundles_proved ON bundles (session_id, no) WHERE proved_at IS NOT NULL;

-- Images being created. A stale row means that an image may exist whose id was lost with the worker
-- or the response.
CREATE TABLE image_intents (
    id         text        NOT NULL,
    session_id text        NOT NULL, -- empty for a base image
    generation bigint      NOT NULL,
    source     text        NOT NULL, -- the sandbox, or the name of the base image
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT image_intents_pkey PRIMARY KEY (id)
);
CREATE INDEX image_intents_age ON image_intents (created_at);

-- Ended sandboxes for which the provider keeps, or is still making, an image of their files. The
-- row is deleted when the image is recorded or known not to exist.
CREATE TABLE exit_images (
    sandbox_id text        NOT NULL,
    session_id text        NOT NULL,
    generation bigint      NOT NULL,
    ended_at   timestamptz NOT NULL DEFAULT now(),
    attempts   integer     NOT NULL DEFAULT 0,
    next_at    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT exit_images_pkey PRIMARY KEY (sandbox_id)
);
CREATE INDEX exit_images_next ON exit_images (next_at);

-- Sandboxes that ended before this table existed. The provider keeps their images for 30 days.
INSERT INTO exit_images (sandbox_id, session_id, generation, ended_at)
SELECT DISTINCT ON (sandbox_id) sandbox_id, session_id, generation, ended_at FROM sandboxes
WHERE ended_at > now() - interval '31 days' AND sandbox_id <> ''
ORDER BY sandbox_id, ended_at DESC;

-- The newest saved generation of each session that has not ended. The files of sandboxes of later
-- generations may still be rescued.
CREATE VIEW saved_generations AS
SELECT s.id AS session_id,
    coalesce((SELECT max(b.generation) FROM bundles b WHERE b.session_id = s.id AND NOT b.checkpoint), 0)::bigint AS generation
FROM sessions s
WHERE s.status <> 'terminated';

-- Images from which sandboxes without a snapshot start.
CREATE TABLE base_images (
    id              text        NOT NULL,
    name            text        NOT NULL, -- recipe and hash
    used_at         timestamptz NOT NULL DEFAULT now(), -- a sandbox was about to start from it
    condemned_at    timestamptz,
    delete_attempts integer     NOT NULL DEFAULT 0,
    delete_after    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT base_images_pkey PRIMARY KEY (id)
);
CREATE INDEX sandboxes_image ON sandboxes (image_id) WHERE ended_at IS NULL;

UPDATE snapshots n SET bundled = true WHERE EXISTS (SELECT FROM bundles b WHERE b.snapshot_id = n.id);

-- A sandbox starts from a base image or from a snapshot, which in turn was taken of a sandbox.
WITH RECURSIVE lineage AS (
    SELECT n.id, b.image_id, 1 AS depth FROM snapshots n
    JOIN sandboxes b ON b.session_id = n.session_id AND b.generation = n.generation
    WHERE n.deleted_at IS NULL
    UNION ALL
    SELECT l.id, b.image_id, l.depth + 1 FROM lineage l
    JOIN snapshots n ON n.id = l.image_id
    JOIN sandboxes b ON b.session_id = n.session_id AND b.generation = n.generation
    WHERE l.depth < 10000
)
UPDATE snapshots n SET base_id = l.image_id FROM lineage l
WHERE l.id = n.id AND NOT EXISTS (SELECT FROM snapshots p WHERE p.id = l.image_id);

-- Bundles that need their snapshot: for each session that has not ended, the bundle of the newest
-- verified restore and at most three newer ones. A session without a verified restore keeps its
-- three newest bundles.
DROP VIEW snapshot_uses;
CREATE VIEW snapshot_uses AS
SELECT
    n.id,
    coalesce(s.status <> 'terminated' AND (coalesce(n.kept_until > clock_timestamp(), false) OR EXISTS (
        SELECT FROM bundles b
        WHERE b.snapshot_id = n.id AND (
            b.id = s.head_bundle_id
            OR b.no = (SELECT max(p.no) FROM bundles p WHERE p.session_id = b.session_id AND p.proved_at IS NOT NULL)
            OR b.no > greatest(
                (SELECT max(p.no) FROM bundles p WHERE p.session_id = b.session_id AND p.proved_at IS NOT NULL),
                (SELECT p.no FROM bundles p WHERE p.session_id = b.session_id ORDER BY p.no DESC OFFSET 3 LIMIT 1),
                0)
        )
    )), false)::boolean AS needed,
    coalesce(s.status = 'terminated', true)::boolean AS session_over
FROM snapshots n
LEFT JOIN sessions s ON s.id = n.session_id;

UPDATE snapshots n SET unneeded_at = now()
FROM snapshot_uses u
WHERE u.id = n.id AND n.deleted_at IS NULL AND (n.condemned_at IS NOT NULL OR u.session_over OR n.bundled AND NOT u.needed);
