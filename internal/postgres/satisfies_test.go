package postgres_test

import (
	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres"
)

// The callers declare the interfaces that they need; only this file imports both sides.
var (
	_ activities.Store = (*postgres.DB)(nil)
	_ api.Store        = (*postgres.DB)(nil)
	_ eventlog.Store   = (*postgres.DB)(nil)
	_ eventlog.Source  = (*postgres.DB)(nil)
	_ activities.Log   = (*eventlog.Appender)(nil)

	_ activities.Changes = (*eventlog.Follower)(nil)
)
