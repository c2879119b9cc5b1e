package postgres

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// SandboxesDescribe records the driver and the isolation of the sandboxes of this installation's
// workers. The last call wins.
func (db *DB) SandboxesDescribe(ctx context.Context, driver, isolation string) error {
	if _, err := db.Installation(ctx); err != nil { // the row to note it in
		return err
	}
	return fault("record the description of sandboxes", db.q.InstallationDescribe(ctx, db.pool, &dbsqlc.InstallationDescribeParams{
		Driver: driver, Isolation: isolation,
	}))
}

// BundlesConfigure sets how many of the newest bundles of a session are kept, and when awake
// sessions without their own setting save one. The last call wins.
func (db *DB) BundlesConfigure(ctx context.Context, keep int, checkpoint checkpoint.Policy) error {
	if _, err := db.Installation(ctx); err != nil { // the row to note it in
		return err
	}
	return fault("configure bundles", db.q.InstallationBundles(ctx, db.pool, &dbsqlc.InstallationBundlesParams{Keep: int32(keep), Checkpoint: string(checkpoint)}))
}

// SandboxesDescription returns what SandboxesDescribe recorded; "unknown" before any worker has
// started.
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

// LegacyQueues reports whether the installation was made by a release whose queue names had no
// installation id, and these queues have not been found drained since.
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
