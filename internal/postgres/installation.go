package postgres

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// SandboxesDescribe notes what kind of sandboxes the workers of this installation
// use: the driver and what keeps sandboxes apart. The last word counts.
func (db *DB) SandboxesDescribe(ctx context.Context, driver, isolation string) error {
	if _, err := db.Installation(ctx); err != nil { // the row to note it in
		return err
	}
	return fault("record the description of sandboxes", db.q.InstallationDescribe(ctx, db.pool, &dbsqlc.InstallationDescribeParams{
		Driver: driver, Isolation: isolation,
	}))
}

// BundlesConfigure sets how many of the newest bundles of a session are kept, and when sessions that say nothing about it save
// one while they are awake. The last call counts.
func (db *DB) BundlesConfigure(ctx context.Context, keep int, checkpoint checkpoint.Policy) error {
	if _, err := db.Installation(ctx); err != nil { // the row to note it in
		return err
	}
	return fault("configure bundles", db.q.InstallationBundles(ctx, db.pool, &dbsqlc.InstallationBundlesParams{Keep: int32(keep), Checkpoint: string(checkpoint)}))
}

// SandboxesDescription returns what was noted; "unknown" before any worker has started.
func (db *DB) SandboxesDescription(ctx context.Context) (driver, isolation string, err error) {
	row, err := db.q.InstallationDescription(ctx, db.pool)
	switch {
	case isNoRows(err), err == nil && row.SandboxDriver == "":
		return "unknown", "unknown", nil
	case err != nil:
		return "", "", fault("read the description of sandboxes", err)
	}
	return row.SandboxDriver, row.SandboxIsolation, nil
}

// LegacyQueues reports whether the installation was made by a release whose queues had no id in
// their names, and was not found drained since.
func (db *DB) LegacyQueues(ctx context.Context) (bool, error) {
	legacy, err := db.q.InstallationLegacyQueues(ctx, db.pool)
	if isNoRows(err) {
		return false, nil
	}
	return legacy, fault("read the installation's queues", err)
}

// LegacyQueuesDrained records that no workflow is open on the queues of an earlier release. It has
// no effect on the first day.
func (db *DB) LegacyQueuesDrained(ctx context.Context) error {
	return fault("record drained queues", db.q.InstallationQueuesDrained(ctx, db.pool))
}
