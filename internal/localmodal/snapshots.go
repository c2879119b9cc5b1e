package localmodal

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/router"
	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
)

// The server implements router.Backend.
var _ router.Backend = (*Server)(nil)

func (s *Server) byTask(ctx context.Context, id string) (*sandbox, error) {
	s.mu.Lock()
	sb := s.tasks[id]
	s.mu.Unlock()
	if sb == nil {
		return nil, status.Errorf(codes.NotFound, "task %s not found", id)
	}
	return sb, s.await(ctx, sb)
}

// Task returns a running task.
func (s *Server) Task(ctx context.Context, id string) (*task.Task, error) {
	sb, err := s.byTask(ctx, id)
	if err != nil {
		return nil, err
	}
	if sb.ended() {
		return nil, status.Errorf(codes.NotFound, "task %s has ended", id)
	}
	return sb.task, nil
}

// EndedTask is Task that also returns tasks that have ended under this server.
func (s *Server) EndedTask(ctx context.Context, id string) (*task.Task, error) {
	sb, err := s.byTask(ctx, id)
	if err != nil {
		return nil, err
	}
	if sb.task == nil {
		return nil, status.Errorf(codes.NotFound, "task %s has ended", id)
	}
	return sb.task, nil
}

// Entrypoint returns the process with which the sandbox was created.
func (s *Server) Entrypoint(ctx context.Context, taskID string) (*task.Execution, error) {
	sb, err := s.byTask(ctx, taskID)
	if err != nil {
		return nil, err
	}
	return sb.entry, nil
}

// Probe returns the sandbox's readiness probe.
func (s *Server) Probe(ctx context.Context, taskID string) (*pb.Probe, error) {
	sb, err := s.byTask(ctx, taskID)
	if err != nil {
		return nil, err
	}
	return sb.probe, nil
}

// Snapshot makes an image of a sandbox, once per key. If the client disconnects, the call is
// aborted, and its next attempt starts from scratch.
func (s *Server) Snapshot(ctx context.Context, q router.SnapshotRequest) (string, error) {
	t, err := s.Task(ctx, q.TaskID)
	if err != nil {
		return "", err
	}
	defer s.snapshotKeys.lock(q.Key)()
	if q.Key != "" {
		if im, ok := s.records.images.Find(func(i imageRecord) bool { return i.Key == q.Key }); ok {
			return im.ID, nil
		}
	}
	sb, err := s.byTask(ctx, q.TaskID)
	if err != nil {
		return "", err
	}
	im, err := s.snapshot(ctx, sb, t, q)
	if err != nil {
		s.collect(ctx) // there may be a new layer without an image
		return "", statusOf(err)
	}
	return im.ID, nil
}

func (s *Server) snapshot(ctx context.Context, sb *sandbox, t *task.Task, q router.SnapshotRequest) (im imageRecord, err error) {
	h, err := s.holdRoot(sb)
	defer h.release()
	if err != nil {
		return imageRecord{}, err
	}
	r := sb.record()
	if q.Directory == "" {
		im, err = s.snapshotRoot(ctx, h, r, t)
	} else {
		im, err = s.snapshotDirectory(h, t, q.Directory)
	}
	if err != nil {
		return imageRecord{}, err
	}
	im.Key, im.Tags = q.Key, r.Tags
	if q.TTL > 0 {
		im.Expires = time.Now().Add(q.TTL)
	}
	return im, s.records.images.Put(im.ID, im)
}

func (s *Server) snapshotRoot(ctx context.Context, h *hold, r sandboxRecord, t *task.Task) (imageRecord, error) {
	layer := h.newLayer()
	stats, err := t.Box.Snapshot(ctx, layer)
	if err != nil {
		return imageRecord{}, err
	}
	s.logger.InfoContext(ctx, "snapshot taken", slog.String("sandbox_id", r.ID), slog.String("layer", layer),
		slog.Any("files_copied", stats.Copied), slog.Any("files_linked", stats.Linked),
		slog.Any("bytes_copied", stats.Bytes), slog.Any("frozen", stats.Frozen))
	return s.derive(ctx, h, r.Root, layer)
}

// archivePath returns the path of the tar file of a directory's image.
func (s *Server) archivePath(name string) string { return filepath.Join(s.dataDir, "archives", name) }

func (s *Server) snapshotDirectory(h *hold, t *task.Task, dir string) (imageRecord, error) {
	im := imageRecord{ID: newID("im"), Created: time.Now()}
	im.Archive = im.ID + ".tar"
	writing := "writing-" + im.ID
	h.add(im.Archive, writing)
	f, err := os.OpenFile(s.archivePath(writing), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return imageRecord{}, err
	}
	err = t.Box.Archive(dir, false, f)
	if err != nil && !errors.Is(err, box.ErrGone) {
		err = status.Error(codes.NotFound, err.Error()) // the client can correct the path
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.archivePath(im.Archive))
	}
	if err != nil {
		return imageRecord{}, errors.Join(err, os.Remove(f.Name()))
	}
	return im, nil
}

// removeArchives deletes the archives that are not in use.
func (s *Server) removeArchives(used map[string]bool) error {
	entries, err := os.ReadDir(s.archivePath(""))
	if err != nil {
		return err
	}
	var failures []error
	for _, e := range entries {
		if used[e.Name()] {
			continue
		}
		if err := os.Remove(s.archivePath(e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// Mount mounts an image, or an empty directory, over a directory of a sandbox.
func (s *Server) Mount(ctx context.Context, taskID, dir, imageID string) error {
	t, err := s.Task(ctx, taskID)
	if err != nil {
		return err
	}
	t.Touch()
	if imageID == "" {
		return t.Box.Mount(dir, nil)
	}
	im, h, err := s.holdImage(imageID)
	defer h.release()
	if err != nil {
		return err
	}
	f, err := s.openArchive(ctx, im)
	if err != nil {
		return err
	}
	return errors.Join(t.Box.Mount(dir, f), f.Close())
}

// openArchive returns an image as a tar file. An image of a whole root is started once and read as
// a sandbox would see it.
func (s *Server) openArchive(ctx context.Context, im imageRecord) (*os.File, error) {
	if im.Archive != "" {
		return os.Open(s.archivePath(im.Archive))
	}
	id := newID("read")
	b, err := s.runtime.Start(ctx, box.Spec{ID: id, Layers: im.Root.Layers, Bare: true})
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(s.scratch(), "root-*")
	if err == nil {
		err = os.Remove(f.Name())
		err = errors.Join(err, b.Archive("/", true, f))
		if err == nil {
			_, err = f.Seek(0, 0)
		}
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	b.Kill()
	return f, errors.Join(err, s.runtime.Discard(id))
}

// SandboxGetExitSnapshotV2 returns the image of an ended sandbox.
func (s *Server) SandboxGetExitSnapshotV2(ctx context.Context, q *pb.SandboxGetExitSnapshotRequest) (*pb.SandboxGetExitSnapshotResponse, error) {
	sb, err := s.sandbox(ctx, q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if !sb.record().ExitSnapshot {
		return nil, status.Error(codes.InvalidArgument, "exit snapshots were not enabled for this sandbox")
	}
	err = waitFor(ctx, sb.kept, q.GetTimeout())
	if errors.Is(err, errStillRunning) {
		return pb.SandboxGetExitSnapshotResponse_builder{Pending: &pb.SandboxGetExitSnapshotResponse_Pending{}}.Build(), nil
	}
	if err != nil {
		return nil, err
	}
	id := sb.record().ExitImageID
	if _, err := s.image(id); err != nil {
		return pb.SandboxGetExitSnapshotResponse_builder{Error: pb.SandboxGetExitSnapshotResponse_Error_builder{ //nolint:nilerr // the response contains the error
			ErrorCode: pb.SandboxGetExitSnapshotResponse_ERROR_CODE_FILESYSTEM_INCONSISTENT,
			Message:   "the sandbox's files are not there any more",
		}.Build()}.Build(), nil
	}
	return pb.SandboxGetExitSnapshotResponse_builder{
		Success: pb.SandboxGetExitSnapshotResponse_Success_builder{ImageId: id}.Build(),
	}.Build(), nil
}
