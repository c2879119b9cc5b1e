package localmodal

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
)

// exitSnapshotLife is how long the image of an ended sandbox is kept.
const exitSnapshotLife = 30 * 24 * time.Hour

// Exit codes of sandboxes that were ended. Modal does not have the codes for exceeded limits.
const (
	exitTimeout    = 124
	exitTerminated = 137
	exitDisk       = 153 // 128+SIGXFSZ
	exitMemory     = 152 // 128+SIGXCPU, which has no other use in a sandbox
	exitCPU        = 154 // 128+SIGVTALRM, which has no other use either
)

// sandbox is one sandbox, from the reservation of its name until long after its end.
type sandbox struct {
	server *Server
	probe  *pb.Probe
	idle   time.Duration // idle time after which the sandbox ends; zero means never
	env    map[string]string

	started chan struct{} // closed when it runs or has failed to start
	done    chan struct{} // closed when it has ended
	kept    chan struct{} // closed when its files are saved or discarded, which a full disk may delay

	// Set before started is closed.
	failure error // why it failed to start
	task    *task.Task
	entry   *task.Execution // nil without a command

	mu     sync.Mutex
	rec    sandboxRecord
	ending bool
}

func newSandbox(s *Server, r sandboxRecord) *sandbox {
	return &sandbox{server: s, rec: r, started: make(chan struct{}), done: make(chan struct{}), kept: make(chan struct{})}
}

// endedSandbox returns a sandbox of an earlier server. Its files are saved or discarded, unless it
// must still be concluded.
func endedSandbox(s *Server, r sandboxRecord) *sandbox {
	sb := newSandbox(s, r)
	close(sb.started)
	close(sb.done)
	return sb
}

// record returns the current record. Its maps must not be modified.
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

// isEnding reports whether the end of the sandbox has begun.
func (sb *sandbox) isEnding() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.ending
}

func (sb *sandbox) ended() bool {
	select {
	case <-sb.done:
		return true
	default:
		return false
	}
}

// result is nil while the sandbox runs.
func (sb *sandbox) result() *pb.GenericResult {
	if !sb.ended() {
		return nil
	}
	r := sb.record()
	return pb.GenericResult_builder{Status: r.Status, Exitcode: r.ExitCode, Exception: r.Reason}.Build()
}

// finish ends the sandbox with a result, unless it is already ending, and returns when it has
// ended.
func (sb *sandbox) finish(ctx context.Context, status pb.GenericResult_GenericStatus, code int32) {
	sb.mu.Lock()
	isFirst := !sb.ending
	sb.ending = true
	sb.mu.Unlock()
	if !isFirst {
		<-sb.done
		return
	}
	// The end is completed even if the caller disconnects.
	ctx = context.WithoutCancel(ctx)
	defer close(sb.done)
	release := sb.task.Box.HoldMounts()
	defer sb.server.background.Go(release)
	err := sb.task.Close()
	if why := sb.task.Box.Exceeded(); why != nil {
		status, code = sb.exceeded(why)
	}
	_, files := sb.server.conclude(ctx, sb, status, code)
	if err = errors.Join(err, files); err != nil {
		sb.server.logger.ErrorContext(ctx, "sandbox did not end cleanly", slog.String("sandbox_id", sb.record().ID), slog.Any("error", err))
	}
}

// exceeded records why the watchdog has ended the sandbox. The files of a sandbox that exceeded its
// disk are not kept.
func (sb *sandbox) exceeded(why *box.ExceededError) (pb.GenericResult_GenericStatus, int32) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.rec.Reason = why.Text
	if why.Resource == box.Disk {
		sb.rec.ExitSnapshot = false
		return pb.GenericResult_GENERIC_STATUS_FAILURE, exitDisk // the SDK does not return the code of a terminated sandbox
	}
	if why.Resource == box.CPU {
		return pb.GenericResult_GENERIC_STATUS_FAILURE, exitCPU
	}
	return pb.GenericResult_GENERIC_STATUS_FAILURE, exitMemory
}

// conclude saves or discards the files of a dead sandbox and records its end. A failure does not
// change the result. On a full disk it returns pending, and the files stay until there is space for
// their image.
func (s *Server) conclude(ctx context.Context, sb *sandbox, status pb.GenericResult_GenericStatus, code int32) (pending bool, err error) {
	r := sb.record()
	image, files := "", error(nil)
	if r.ExitSnapshot {
		image, files = s.claim(ctx, r)
	}
	if isFull(files) {
		sb.mu.Lock() // not on disk, so that a later server also tries
		sb.rec.Ended, sb.rec.Status, sb.rec.ExitCode = time.Now(), status, code
		sb.mu.Unlock()
		s.logger.WarnContext(ctx, "disk full; the exit image is made once there is space", slog.String("sandbox_id", r.ID), slog.Any("error", files))
		s.background.Go(func() { s.concludeLater(sb) })
		return true, nil
	}
	defer close(sb.kept)
	if image == "" {
		files = errors.Join(files, s.runtime.Discard(r.ID))
	}
	return false, errors.Join(files, sb.update(func(r *sandboxRecord) {
		r.Ended, r.Status, r.ExitCode, r.ExitImageID = time.Now(), status, code, image
	}))
}

// claimAgainAfter is the interval of retries on a full disk.
const claimAgainAfter = time.Second

// concludeLater retries after a full disk until it succeeds or the server closes.
func (s *Server) concludeLater(sb *sandbox) {
	ticker := time.NewTicker(claimAgainAfter)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
		r := sb.record()
		image, err := s.claim(s.ctx, r)
		if isFull(err) || s.ctx.Err() != nil {
			continue
		}
		if image == "" {
			err = errors.Join(err, s.runtime.Discard(r.ID))
		}
		if err = errors.Join(err, sb.update(func(r *sandboxRecord) { r.ExitImageID = image })); err != nil {
			s.logger.ErrorContext(s.ctx, "files of an ended sandbox could not be dealt with", slog.String("sandbox_id", r.ID), slog.Any("error", err))
		}
		close(sb.kept)
		return
	}
}

// claim makes an image of the files of a dead sandbox. It writes the record first: claimed files
// without a record would be lost with this process. It may be repeated after a failure or a crash.
func (s *Server) claim(ctx context.Context, r sandboxRecord) (string, error) {
	h := s.holdNothing()
	defer h.release()
	im, begun := s.exitImage(r.ID)
	if begun {
		h.add(im.Root.Layers[0])
	} else {
		im = imageRecord{
			ID: newID("im"), Created: time.Now(), Expires: time.Now().Add(exitSnapshotLife), Tags: r.Tags, Exit: true, Sandbox: r.ID,
			Root: root{Layers: append([]string{h.newLayer()}, r.Root.Layers...), Env: maps.Clone(r.Root.Env), Workdir: r.Root.Workdir},
		}
		if err := s.records.images.Put(im.ID, im); err != nil {
			return "", err
		}
	}
	layers := im.Root.Layers
	if s.runtime.Missing(layers[:1]) != "" {
		if err := s.runtime.Claim(ctx, r.ID, layers[0]); isFull(err) {
			return "", err
		} else if err != nil {
			return "", errors.Join(err, s.records.images.Delete(im.ID))
		}
	}
	if len(layers) <= box.MaxLayers {
		return im.ID, nil
	}
	merged, err := s.derive(ctx, h, r.Root, layers[0])
	if err != nil {
		return "", err
	}
	im.Root = merged.Root
	return im.ID, s.records.images.Put(im.ID, im)
}

// exitImage finds the image of an ended sandbox, which may be unfinished.
func (s *Server) exitImage(sandboxID string) (imageRecord, bool) {
	return s.records.images.Find(func(i imageRecord) bool { return i.Sandbox == sandboxID })
}

// supervise ends the sandbox at the end of its lifetime, after its idle timeout, or when it has
// died.
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

// exited is closed when the entrypoint has ended; never without an entrypoint.
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
