package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	temporal "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/localmodal/access"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// bare performs only the operations that no implementation can avoid, on the parts of a system.
type bare struct {
	postgres *pgx.Conn
	settings string // of Postgres: those that determine the cost of a commit
	commits  int

	temporal temporal.Client
	worker   worker.Worker
	workflow temporal.WorkflowRun
	started  chan time.Time // start of the activity of a signal

	modal   *modalsandbox.Driver
	sandbox string // for execs
}

// floors are the durations of bare operations, one sample of each per round.
type floors struct {
	commit   samples // a row
	signal   samples // until Temporal has accepted it
	activity samples // signal until the activity that it starts runs
	exec     samples // call until the first byte of the process arrives
	line     samples // written by a process until it arrives
	create   samples
	restore  samples // create from a snapshot
	snapshot samples
	end      samples // terminate
}

const bareQueue = "bench"

// openBare connects to the parts of a system.
func openBare(ctx context.Context, s *stack) (_ *bare, err error) {
	b := &bare{started: make(chan time.Time, 1)} // one signal at a time
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close(context.WithoutCancel(ctx)))
		}
	}()
	if err := b.openPostgres(ctx, s); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if err := b.openTemporal(ctx, s); err != nil {
		return nil, fmt.Errorf("temporal: %w", err)
	}
	token, err := access.Load(filepath.Join(s.parent, "data", "modal"))
	if err != nil {
		return nil, err
	}
	b.modal, err = modalsandbox.New(modalsandbox.Config{ServerURL: s.modal, TokenID: token.ID, TokenSecret: secret.NewValue(token.Secret)})
	if err != nil {
		return nil, fmt.Errorf("modal: %w", err)
	}
	if b.sandbox, err = b.create(ctx, sandbox.DefaultBase); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *bare) openPostgres(ctx context.Context, s *stack) error {
	url, err := s.databaseURL()
	if err != nil {
		return err
	}
	if b.postgres, err = pgx.Connect(ctx, url); err != nil {
		return err
	}
	if _, err := b.postgres.Exec(ctx, "CREATE TABLE IF NOT EXISTS bench (id bigint PRIMARY KEY, at timestamptz NOT NULL, data text NOT NULL)"); err != nil {
		return err
	}
	var settings []string
	for _, name := range []string{"server_version", "synchronous_commit", "fsync", "wal_sync_method"} {
		var value string
		if err := b.postgres.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		settings = append(settings, name+" "+value)
	}
	b.settings = strings.Join(settings, ", ")
	return nil
}

func (b *bare) openTemporal(ctx context.Context, s *stack) (err error) {
	b.temporal, err = temporal.DialContext(ctx, temporal.Options{
		HostPort: s.temporal, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return err
	}
	b.worker = worker.New(b.temporal, bareQueue, worker.Options{})
	note := func(context.Context) error { b.started <- time.Now(); return nil }
	b.worker.RegisterActivity(&noteActivity{note})
	b.worker.RegisterWorkflow(runNotes)
	if err := b.worker.Start(); err != nil {
		return err
	}
	b.workflow, err = b.temporal.ExecuteWorkflow(ctx, temporal.StartWorkflowOptions{TaskQueue: bareQueue, ID: session.NewID("bench-")}, runNotes)
	return err
}

// noteActivity is an activity that reports its time.
type noteActivity struct{ note func(context.Context) error }

// Note returns at once.
func (n *noteActivity) Note(ctx context.Context) error { return n.note(ctx) }

// runNotes runs an activity for every signal.
func runNotes(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second})
	for {
		workflow.GetSignalChannel(ctx, "note").Receive(ctx, nil)
		var n *noteActivity
		if err := workflow.ExecuteActivity(ctx, n.Note).Get(ctx, nil); err != nil {
			return err
		}
	}
}

// close closes the connections. The data stays in the system, which is stopped next.
func (b *bare) close(ctx context.Context) error {
	var errs []error
	if b.modal != nil {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if b.sandbox != "" {
			errs = append(errs, b.modal.Terminate(ctx, b.sandbox))
		}
		errs = append(errs, b.modal.Close())
	}
	if b.worker != nil {
		b.worker.Stop()
	}
	if b.temporal != nil {
		b.temporal.Close()
	}
	if b.postgres != nil {
		errs = append(errs, b.postgres.Close(ctx))
	}
	return errors.Join(errs...)
}

// round takes one sample of each floor of prompts.
func (b *bare) round(ctx context.Context, f *floors) error {
	began := time.Now()
	b.commits++
	if _, err := b.postgres.Exec(ctx, "INSERT INTO bench VALUES ($1, now(), 'a row')", b.commits); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	f.commit.add(time.Since(began))

	began = time.Now()
	if err := b.temporal.SignalWorkflow(ctx, b.workflow.GetID(), "", "note", nil); err != nil {
		return fmt.Errorf("signal: %w", err)
	}
	f.signal.add(time.Since(began))
	select {
	case at := <-b.started:
		f.activity.add(at.Sub(began))
	case <-ctx.Done():
		return ctx.Err()
	}
	return b.exec(ctx, f)
}

// exec samples a process that prints a line at once, and another line after it has read one.
func (b *bare) exec(ctx context.Context, f *floors) error {
	began := time.Now()
	process, err := b.modal.Exec(ctx, b.sandbox, driver.ExecRequest{
		Argv: []string{"/bin/sh", "-c", "echo ready; read line; date +%s%N"}, Timeout: time.Minute,
	})
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	buffer := make([]byte, 64)
	if _, err := io.ReadAtLeast(process.Stdout(), buffer, len("ready\n")); err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	f.exec.add(time.Since(began))
	if _, err := io.WriteString(process.Stdin(), "go\n"); err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	n, err := process.Stdout().Read(buffer)
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	arrived := time.Now()
	var nanoseconds int64
	if _, err := fmt.Sscan(string(buffer[:n]), &nanoseconds); err != nil {
		return fmt.Errorf("exec said %q: %w", buffer[:n], err)
	}
	f.line.add(arrived.Sub(time.Unix(0, nanoseconds)))
	if err := process.Stdin().Close(); err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	_, err = process.Wait(ctx)
	return errors.Join(err, process.Stdout().Close(), process.Stderr().Close())
}

// transactions returns the number of transactions of the system's database. Backends report theirs
// with a delay of up to a second.
func (b *bare) transactions(ctx context.Context) (int64, error) {
	select {
	case <-time.After(1500 * time.Millisecond):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	var n int64
	err := b.postgres.QueryRow(ctx, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
	return n, err
}

// create starts a sandbox that does not belong to the system.
func (b *bare) create(ctx context.Context, image string) (string, error) {
	id, err := b.modal.Create(ctx, driver.CreateRequest{
		Name: session.NewID("bench-"), Tags: map[string]string{"bench": "1"}, Image: image, Timeout: time.Hour,
	})
	if err != nil {
		return "", fmt.Errorf("create from %s: %w", image, err)
	}
	return id, nil
}

// life samples the lifetime of two sandboxes: one of the base image, and one of the image from
// which a hibernated session is restored.
func (b *bare) life(ctx context.Context, sleeper string, f *floors) error {
	began := time.Now()
	fresh, err := b.create(ctx, sandbox.DefaultBase)
	if err != nil {
		return err
	}
	f.create.add(time.Since(began))
	if err := b.modal.Terminate(ctx, fresh); err != nil {
		return err
	}

	var image string
	err = b.postgres.QueryRow(ctx, "SELECT snapshot_id FROM bundles WHERE session_id = $1 ORDER BY no DESC LIMIT 1", sleeper).Scan(&image)
	if err != nil {
		return fmt.Errorf("image of %s: %w", sleeper, err)
	}
	began = time.Now()
	id, err := b.create(ctx, image)
	if err != nil {
		return err
	}
	f.restore.add(time.Since(began))
	if err := b.modal.WriteFile(ctx, id, "/workspace/kept.txt", []byte("some text\n"), 0o644); err != nil {
		return err
	}
	began = time.Now()
	snapshot, err := b.modal.Snapshot(ctx, id, time.Minute)
	if err != nil {
		return err
	}
	f.snapshot.add(time.Since(began))
	began = time.Now()
	if err := b.modal.Terminate(ctx, id); err != nil {
		return err
	}
	f.end.add(time.Since(began))
	return b.modal.DeleteImage(ctx, snapshot)
}
