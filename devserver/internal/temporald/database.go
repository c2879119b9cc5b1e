package temporald

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence"
	"go.temporal.io/server/common/persistence/serialization"
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/resolver"
	"go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

// schemaName is the row of schema_version under which a file's schema version is kept.
const schemaName = "temporal"

// database is a server's SQLite database: locked, with tables, namespace and search attributes.
type database struct {
	sql  *config.SQL
	lock *fileLock // nil in memory
}

// openDatabase opens or creates the database that c names. Its errors name the file.
func openDatabase(ctx context.Context, c Config) (_ *database, err error) {
	d := &database{sql: sqlConfig(c)}
	if c.DatabaseFile != "" {
		if _, err := os.Stat(filepath.Dir(c.DatabaseFile)); err != nil {
			return nil, fmt.Errorf("database %s: %w", c.DatabaseFile, err)
		}
		if d.lock, err = lockFile(c.DatabaseFile + ".lock"); err != nil {
			return nil, fmt.Errorf("database %s: %w", c.DatabaseFile, err)
		}
		defer func() {
			if err != nil {
				err = errors.Join(fmt.Errorf("database %s: %w", c.DatabaseFile, err), d.lock.release())
			}
		}()
		if err := createFile(c.DatabaseFile); err != nil {
			return nil, err
		}
		if err := d.createTables(); err != nil {
			return nil, err
		}
	}
	if err := d.ensureNamespace(ctx, c); err != nil {
		return nil, err
	}
	return d, nil
}

// sqlConfig returns the server's configuration of the database that c names.
func sqlConfig(c Config) *config.SQL {
	conf := &config.SQL{
		PluginName:   sqliteplugin.PluginName,
		MaxConns:     1,
		MaxIdleConns: 1,
	}
	if c.DatabaseFile == "" {
		conf.DatabaseName = "overwinter-" + uuid.NewString()
		conf.ConnectAttributes = map[string]string{"mode": "memory", "cache": "shared"}
		return conf
	}
	// The name becomes the path of a file: URI, in which ?, # and % are special.
	conf.DatabaseName = (&url.URL{Path: c.DatabaseFile}).EscapedPath()
	conf.ConnectAttributes = map[string]string{
		"mode":         "rwc",
		"journal_mode": "wal",
		"synchronous":  c.Sync,
		// Milliseconds to wait for another program that reads the file.
		"busy_timeout": "5000",
		// Deleted data is overwritten, so that a purged session's text does not remain in free
		// pages.
		"secure_delete": "on",
	}
	return conf
}

// createFile makes sure that the file exists and that a new one is readable only by its owner,
// because it will contain the inputs of workflows. SQLite gives the files next to it the same mode.
func createFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	return file.Close()
}

// createTables creates the schema in an empty file, and checks the schema of any other file.
func (d *database) createTables() (err error) {
	db, err := sql.NewSQLAdminDB(sqlplugin.DbKindUnknown, d.sql, resolver.NewNoopResolver(), log.NewNoopLogger(), metrics.NoopMetricsHandler)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	tables, err := db.ListTables(schemaName)
	switch {
	case err != nil:
		return fmt.Errorf("list tables: %w", err)
	case len(tables) == 0:
		return createSchema(db)
	case !slices.Contains(tables, "schema_version") || !slices.Contains(tables, "executions_visibility"):
		return errors.New("is an SQLite database, but not one of this program")
	}

	version, err := db.ReadSchemaVersion(schemaName)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if version != schemaVersion() {
		return fmt.Errorf("has schema %s, this program needs %s: move the file away or use the program that made it", version, schemaVersion())
	}
	return nil
}

// createSchema creates all tables in one transaction. The pool has one connection, so each
// statement is part of it.
func createSchema(db sqlplugin.AdminDB) error {
	if err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	err := func() error {
		if err := sqlite.SetupSchemaOnDB(db); err != nil {
			return fmt.Errorf("create tables: %w", err)
		}
		if err := db.CreateSchemaVersionTables(); err != nil {
			return fmt.Errorf("create schema version table: %w", err)
		}
		if err := db.UpdateSchemaVersion(schemaName, schemaVersion(), schemaVersion()); err != nil {
			return fmt.Errorf("write schema version: %w", err)
		}
		return nil
	}()
	if err != nil {
		return errors.Join(err, db.Exec("ROLLBACK"))
	}
	if err := db.Exec("COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// schemaVersion names the version of both halves of the schema, executions and visibility.
func schemaVersion() string { return sqlite.Version + "/" + sqlite.VisibilityVersion }

// ensureNamespace creates the namespace if it is missing and adds missing search attributes. It
// runs before the services start, so none of them holds an older copy.
func (d *database) ensureNamespace(ctx context.Context, c Config) error {
	serializer := serialization.NewSerializer()
	factory := sql.NewFactory(*d.sql, resolver.NewNoopResolver(), clusterName, log.NewNoopLogger(), metrics.NoopMetricsHandler, serializer)
	defer factory.Close()
	store, err := factory.NewMetadataStore()
	if err != nil {
		return fmt.Errorf("open namespaces: %w", err)
	}
	namespaces := persistence.NewMetadataManagerImpl(store, serializer, log.NewNoopLogger(), clusterName)

	current, err := namespaces.GetNamespace(ctx, &persistence.GetNamespaceRequest{Name: c.Namespace})
	if _, missing := errors.AsType[*serviceerror.NamespaceNotFound](err); missing {
		return createNamespace(ctx, namespaces, c)
	}
	if err != nil {
		return fmt.Errorf("get namespace %s: %w", c.Namespace, err)
	}

	aliases, changed, err := addSearchAttributes(current.Namespace.Config.CustomSearchAttributeAliases, c.SearchAttributes)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", c.Namespace, err)
	}
	if !changed {
		return nil
	}
	metadata, err := namespaces.GetMetadata(ctx)
	if err != nil {
		return fmt.Errorf("get namespace metadata: %w", err)
	}
	current.Namespace.Config.CustomSearchAttributeAliases = aliases
	current.Namespace.ConfigVersion++
	err = namespaces.UpdateNamespace(ctx, &persistence.UpdateNamespaceRequest{
		Namespace:           current.Namespace,
		IsGlobalNamespace:   current.IsGlobalNamespace,
		NotificationVersion: metadata.NotificationVersion,
	})
	if err != nil {
		return fmt.Errorf("add search attributes to namespace %s: %w", c.Namespace, err)
	}
	return nil
}

func createNamespace(ctx context.Context, namespaces persistence.MetadataManager, c Config) error {
	aliases, _, err := addSearchAttributes(nil, c.SearchAttributes)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", c.Namespace, err)
	}
	namespace, err := sqlite.NewNamespaceConfig(clusterName, c.Namespace, false, nil)
	if err != nil {
		return fmt.Errorf("describe namespace %s: %w", c.Namespace, err)
	}
	namespace.Detail.Config.CustomSearchAttributeAliases = aliases
	namespace.Detail.Config.Retention = durationpb.New(c.Retention)
	_, err = namespaces.CreateNamespace(ctx, &persistence.CreateNamespaceRequest{
		Namespace:         namespace.Detail,
		IsGlobalNamespace: namespace.IsGlobal,
	})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", c.Namespace, err)
	}
	return nil
}

// checkpointEvery is how long deleted data may remain in the WAL.
const checkpointEvery = 10 * time.Second

// checkpoints makes a checkpoint at intervals until stop is called, which waits for the last one.
// SQLite makes its own after every thousand pages, but keeps the WAL's size: what an idle server
// has deleted, or what is beyond the pages that it writes, would remain there.
func (d *database) checkpoints(ctx context.Context, logger *slog.Logger) (stop func()) {
	if d.lock == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(checkpointEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if err := d.checkpoint(); err != nil {
				logger.WarnContext(ctx, "deleted data may remain in the WAL until the next checkpoint", slog.Any("error", err))
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// close folds the WAL back into the file, so that the file alone can be copied, and releases the
// lock. The connection itself stays with the driver's pool until the process ends.
func (d *database) close() error {
	if d.lock == nil {
		return nil
	}
	return errors.Join(d.checkpoint(), d.lock.release())
}

func (d *database) checkpoint() (err error) {
	db, err := sql.NewSQLAdminDB(sqlplugin.DbKindUnknown, d.sql, resolver.NewNoopResolver(), log.NewNoopLogger(), metrics.NoopMetricsHandler)
	if err != nil {
		return fmt.Errorf("open for checkpoint: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
