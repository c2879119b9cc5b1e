-- +goose Up

-- The latest report of each kind by a session's agent.
CREATE TABLE session_reports (
    session_id text        NOT NULL,
    kind       text        NOT NULL, -- git_state, pull_request
    data       text        NOT NULL, -- as in its event; for a pull request, merged with its earlier reports
    run_id     text        NOT NULL, -- of the newest report
    first_at   timestamptz NOT NULL, -- of a pull request, when it was created
    at         timestamptz NOT NULL,
    CONSTRAINT session_reports_pkey PRIMARY KEY (session_id, kind),
    CONSTRAINT session_reports_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
);

-- Images shown by a session's agent. Their bytes are attachments.
CREATE TABLE screenshots (
    session_id text        NOT NULL,
    seq        bigint      NOT NULL, -- of the event
    data       text        NOT NULL, -- as in the event
    run_id     text        NOT NULL,
    at         timestamptz NOT NULL,
    CONSTRAINT screenshots_pkey PRIMARY KEY (session_id, seq),
    CONSTRAINT screenshots_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
);
