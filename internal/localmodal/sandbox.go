package localmodal

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"

	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
)

// exitSnapshotLife is how long the image of an ended sandbox is kept.
const exitSnapshotLife = 30 * 24 * time.Hour

// Exit codes of sandboxes that did not end by themselves.
const (
	exitTimeout    = 124
	exitTerminated = 137
)

// sandbox is one sandbox, from the reservation of its name until long after its end.
type sandbox struct {
	server *Server
	probe  *pb.Probe
	idle   time.Duration // ends it after so long without use; zero means never
	env    map[string]string

	started chan struct{} // closed when it runs, or never will
	done    chan struct{} // closed when it has ended and its files are dealt with

	// Set before started is closed.
	failure error // why it never ran
	task    *task.Task
	entry   *task.Execution // nil without a command

	mu     sync.Mutex
	rec    sandboxRecord
	ending bool
}

func newSandbox(s *Server, r sandboxRecord) *sandbox {
	return &sandbox{server: s, rec: r, started: make(chan struct{}), done: make(chan struct{})}
}

// endedSandbox is one that an earlier server ran.
func endedSandbox(s *Server, r sandboxRecord) *sandbox {
	sb := newSandbox(s, r)
	close(sb.started)
	close(sb.done)
	return sb
}

// record is how things stand. Treat its maps as read-only.
func (sb *sandbox) record() sandboxRecord {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.rec
}

// update changes the record, in memory and on disk.
func (sb *sandbox) update(change func(r *sandboxRecord)) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	change(&sb.rec)
	return sb.server.records.sandboxes.Put(sb.rec.ID, sb.rec)
}

func (sb *sandbox) setTags(tags map[string]string) error {
	return sb.update(func(r *sandboxRecord) { r.Tags = maps.Clone(tags) })
}

func (sb *sandbox) over() bool {
	select {
	case <-sb.done:
		return true
	default:
		return false
	}
}

// result is nil while the sandbox runs.
func (sb *sandbox) result() *pb.GenericResult {
	if !sb.over() {
		return nil
	}
	r := sb.record()
	return pb.GenericResult_builder{Status: r.Status, Exitcode: r.ExitCode}.Build()
}

// finish ends the sandbox with a result, unless something else has already, and
// returns when it has ended either way.
func (sb *sandbox) finish(ctx context.Context, status pb.GenericResult_GenericStatus, code int32) {
	sb.mu.Lock()
	mine := !sb.ending
	sb.ending = true
	sb.mu.Unlock()
	if !mine {
		<-sb.done
		return
	}
	// Whoever asked may leave; what has begun is brought to its end.
	ctx = context.WithoutCancel(ctx)
	defer close(sb.done)
	if err := errors.Join(sb.task.Close(), sb.server.conclude(ctx, sb, status, code)); err != nil {
		sb.server.logger.ErrorContext(ctx, "sandbox did not end cleanly", slog.String("sandbox_id", sb.record().ID), slog.Any("error", err))
	}
}

// conclude deals with the files of a dead sandbox and records its end. The
// result stands even when that fails.
func (s *Server) conclude(ctx context.Context, sb *sandbox, status pb.GenericResult_GenericStatus, code int32) error {
	r := sb.record()
	image, files := "", error(nil)
	if r.ExitSnapshot {
		image, files = s.claim(ctx, r)
	}
	if image == "" {
		files = errors.Join(files, s.runtime.Discard(r.ID))
	}
	return errors.Join(files, sb.update(func(r *sandboxRecord) {
		r.Ended, r.Status, r.ExitCode, r.ExitImageID = time.Now(), status, code, image
	}))
}

// claim makes an image of what a dead sandbox left.
func (s *Server) claim(ctx context.Context, r sandboxRecord) (string, error) {
	h := s.holdNothing()
	defer h.release()
	layer := h.newLayer()
	if err := s.runtime.Claim(ctx, r.ID, layer); err != nil {
		return "", err
	}
	im, err := s.derive(ctx, h, r.Root, layer)
	if err != nil {
		return "", err
	}
	im.Expires = time.Now().Add(exitSnapshotLife)
	im.Tags, im.Exit = r.Tags, true
	return im.ID, s.records.images.Put(im.ID, im)
}

// supervise ends the sandbox when its time is over, when nobody uses it, or when
// it has died.
func (sb *sandbox) supervise(ctx context.Context) {
	life := time.NewTimer(time.Until(sb.record().Created.Add(sb.record().Timeout)))
	defer life.Stop()
	var unused <-chan time.Time
	for {
		if sb.idle > 0 {
			unused = time.After(max(sb.idle-sb.task.Idle(), time.Millisecond))
		}
		select {
		case <-sb.done:
			return
		case <-sb.exited():
			sb.finish(ctx, sb.exitStatus(), sb.exitCode())
		case <-sb.task.Box.Gone():
			sb.finish(ctx, pb.GenericResult_GENERIC_STATUS_TERMINATED, exitTerminated)
		case <-life.C:
			sb.finish(ctx, pb.GenericResult_GENERIC_STATUS_TIMEOUT, exitTimeout)
		case <-unused:
			if sb.task.Idle() >= sb.idle {
				sb.finish(ctx, pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT, exitTerminated)
			}
		}
	}
}

// exited is closed when the entrypoint has ended; without one, never.
func (sb *sandbox) exited() <-chan struct{} {
	if sb.entry == nil {
		return nil
	}
	return sb.entry.Done()
}

func (sb *sandbox) exitCode() int32 {
	code, signal := sb.entry.Exit()
	if signal != 0 {
		return 128 + int32(signal)
	}
	return int32(code)
}

func (sb *sandbox) exitStatus() pb.GenericResult_GenericStatus {
	if sb.exitCode() != 0 {
		return pb.GenericResult_GENERIC_STATUS_FAILURE
	}
	return pb.GenericResult_GENERIC_STATUS_SUCCESS
}
