package activities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runnerexec"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

const (
	// archivesAtOnce bounds the archives that a worker makes concurrently, because each has a
	// sandbox.
	archivesAtOnce = 2
	// archiveTries is the maximum number of attempts at an archive.
	archiveTries = 3
	// archiveTimeout bounds one attempt. It is less than the life of the sandbox that it reads in.
	archiveTimeout = 9 * time.Minute
	// archivesCollect is the interval at which unneeded archives are deleted.
	archivesCollect = time.Minute
	// archiveRenew is the interval at which a worker renews its lease of an archive.
	archiveRenew = 10 * time.Second
)

// ArchiveStore stores archives of bundles. Every method may be repeated.
type ArchiveStore interface {
	// ArchivesTake returns due archives, each leased to one caller for a minute.
	ArchivesTake(ctx context.Context, limit int) ([]bundle.ArchiveWork, error)
	// ArchiveRenew renews the lease of an attempt; illegal_state if another attempt has it.
	ArchiveRenew(ctx context.Context, id string, attempt int64) error
	// ArchiveWrite stores the content of an archive, and marks it ready once all of it is stored.
	ArchiveWrite(ctx context.Context, id string, attempt int64, content io.Reader) error
	// ArchiveFail records the error of a failed attempt.
	ArchiveFail(ctx context.Context, id string, attempt int64, reason string, final bool) error
	// ArchivesCollect deletes unneeded archives.
	ArchivesCollect(ctx context.Context) error
}

// Archiver makes the requested archives of bundles: it starts a sandbox from the bundle's snapshot,
// without an agent, and stores the output of the runner's command. Every worker has one; one worker
// at a time makes an archive.
type Archiver struct {
	*sandboxes
	store     ArchiveStore
	collectAt time.Time
}

// NewArchiver returns an archiver with the configuration of the activities.
func NewArchiver(c *Control, store ArchiveStore) *Archiver {
	return &Archiver{sandboxes: c.sandboxes, store: store}
}

// Pass makes the archives that are due, and deletes unneeded ones.
func (a *Archiver) Pass(ctx context.Context) error {
	var collected error
	if now := time.Now(); now.After(a.collectAt) {
		a.collectAt = now.Add(archivesCollect)
		collected = a.store.ArchivesCollect(ctx)
	}
	due, err := a.store.ArchivesTake(ctx, archivesAtOnce)
	failed := errors.Join(collected, err)
	done := make(chan error, len(due)) // so that no goroutine blocks
	for _, work := range due {
		go func() { done <- a.make(ctx, work) }()
	}
	for range due {
		failed = errors.Join(failed, <-done)
	}
	return failed
}

// make makes one attempt at an archive.
func (a *Archiver) make(ctx context.Context, work bundle.ArchiveWork) error {
	err := a.attempt(ctx, work)
	if err == nil || ctx.Err() != nil || failure.CodeOf(err) == failure.IllegalState {
		return nil //nolint:nilerr // another attempt makes it, now or later
	}
	reason := ReasonOf(err)
	last := work.Tries >= archiveTries || sandbox.CodeOf(err) == sandbox.Gone || TypeOf(err) == Refused
	a.Logger.WarnContext(ctx, "could not make the archive of a bundle", slog.String("session_id", work.Bundle.SessionID),
		slog.String("bundle_id", work.Bundle.ID), slog.Bool("final", last), slog.String("error", reason))
	return a.store.ArchiveFail(ctx, work.ID, work.Attempt, reason, last)
}

func (a *Archiver) attempt(ctx context.Context, work bundle.ArchiveWork) error {
	b := work.Bundle
	if b.SnapshotID == "" {
		return final(Refused, errors.New("the bundle has no files"))
	}
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	stop := a.renew(ctx, cancel, work)
	defer stop()
	return a.Sandbox.ReadImage(ctx, b.SnapshotID, b.SessionID, b.Generation, func(ctx context.Context, sb *sandbox.Sandbox) error {
		binary, err := a.packer(ctx, sb, b)
		if err != nil {
			return err
		}
		return a.pack(ctx, sb, binary, work)
	})
}

// packer returns the path of a runner that supports the command pack.
func (a *Archiver) packer(ctx context.Context, sb *sandbox.Sandbox, b bundle.Bundle) (string, error) {
	binary := runner.DefaultPaths().Binary
	if !a.outdated(b.Manifest.Runner) {
		return binary, nil
	}
	program, err := os.ReadFile(a.Runner.Program)
	if err != nil {
		return "", fmt.Errorf("read the runner: %w", err)
	}
	binary += ".pack"
	return binary, sb.WriteFile(ctx, binary, program, 0o755)
}

// pack stores the output of the runner's command and verifies it at the same time, since a program
// in the sandbox may have forged it.
func (a *Archiver) pack(ctx context.Context, sb *sandbox.Sandbox, binary string, work bundle.ArchiveWork) error {
	request := runner.PackRequest{Manifest: portable.Manifest{
		CreatedAt: time.Now().UTC(), Session: portable.Session{Agent: work.Agent}, Workspace: runner.DefaultWorkspace, Home: runner.DefaultHome,
	}}
	for _, f := range work.Bundle.Manifest.AgentFiles {
		request.AgentFiles = append(request.AgentFiles, f.Path)
	}
	e := runner.DefaultPaths().Pack(binary, request)
	process, err := sb.Exec(ctx, sandbox.ExecSpec{Argv: e.Argv, Timeout: archiveTimeout})
	if err != nil {
		return err
	}
	defer process.Close() // only closes the link
	if err := errors.Join(writeAll(process.Stdin, e.Stdin), process.Stdin.Close()); err != nil {
		return err
	}
	checked, content := io.Pipe()
	written := make(chan error, 1) // one result
	go func() {
		err := a.store.ArchiveWrite(ctx, work.ID, work.Attempt, checked)
		_ = checked.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // always nil
		written <- err
	}()
	_, readErr := portable.Read(io.TeeReader(process.Stdout, content), func(portable.Entry, io.Reader) error { return nil })
	if readErr == nil {
		var code int
		if code, readErr = process.Wait(ctx); readErr == nil && code != runner.ExitOK {
			readErr = fmt.Errorf("the runner's command ended with %d", code)
		}
	} else if output := a.complaint(ctx, process); output != "" {
		readErr = fmt.Errorf("%w: %s", readErr, output)
	}
	_ = content.CloseWithError(orEOF(readErr)) // always nil
	return errors.Join(<-written, readErr)
}

// complaint returns the output of a failed command.
func (a *Archiver) complaint(ctx context.Context, process *sandbox.Process) string {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if code, err := process.Wait(ctx); err != nil || code == runner.ExitOK {
		return ""
	}
	output, _ := io.ReadAll(io.LimitReader(process.Stderr, outputTail)) // a partial read is enough
	return string(output)
}

func orEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

func writeAll(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

// renew renews the lease of this attempt until stop is called. It cancels the attempt if another
// one has taken over.
func (a *Archiver) renew(ctx context.Context, cancel context.CancelFunc, work bundle.ArchiveWork) (stop func()) {
	return repeatedly(ctx, archiveRenew, func(ctx context.Context) {
		if failure.CodeOf(a.store.ArchiveRenew(ctx, work.ID, work.Attempt)) == failure.IllegalState {
			cancel()
		}
	})
}

// unpackArchive writes the archive of a bundle into a new sandbox, unless that is done. Afterwards
// the sandbox is like one with a completed clone: only the setup remains.
func (g *restores) unpackArchive(ctx context.Context, in SandboxRequest, sb *sandbox.Sandbox, bundle bundle.Bundle) error {
	if err := runnerexec.Unpack(ctx, sb, bundle.ArchiveID, g.store.ArchiveContent(ctx, bundle.ArchiveID)); err != nil {
		return fmt.Errorf("unpack the archive of the session: %w", err)
	}
	return stored(g.sandboxes.store.SandboxCloned(ctx, in.SessionID, in.Generation))
}
