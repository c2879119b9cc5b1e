package router

import (
	"context"
	"errors"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
)

// Backend is the server's interface for the router. Errors are gRPC statuses.
type Backend interface {
	// Task returns a running task, or codes.NotFound.
	Task(ctx context.Context, id string) (*task.Task, error)
	// EndedTask is like Task, but also returns an ended task while its output is kept.
	EndedTask(ctx context.Context, id string) (*task.Task, error)
	// Environment resolves secrets to variables.
	Environment(sources []*pb.SecretSource) (map[string]string, error)
	// Entrypoint returns the sandbox's own process, nil if it has none.
	Entrypoint(ctx context.Context, taskID string) (*task.Execution, error)
	// Probe returns the sandbox's readiness probe, nil if none is defined.
	Probe(ctx context.Context, taskID string) (*pb.Probe, error)
	// Snapshot makes an image of the root, or of the directory if that is not empty. It is
	// idempotent for a key. A ttl of zero means forever.
	Snapshot(ctx context.Context, r SnapshotRequest) (imageID string, err error)
	// Mount mounts an image over a directory; an empty image id means an empty directory.
	Mount(ctx context.Context, taskID, directory, imageID string) error
}

// SnapshotRequest describes a snapshot.
type SnapshotRequest struct {
	TaskID    string
	Key       string
	Directory string
	TTL       time.Duration
}

// Router implements the service on a Backend.
type Router struct {
	pb.UnimplementedTaskCommandRouterServer
	backend Backend
}

// New returns a router.
func New(b Backend) *Router { return &Router{backend: b} }

// use returns a running task and counts the call as a use of it.
func (r *Router) use(ctx context.Context, id string) (*task.Task, error) {
	t, err := r.backend.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	t.Touch()
	return t, nil
}

func (r *Router) execution(ctx context.Context, taskID, id string) (*task.Execution, error) {
	t, err := r.backend.EndedTask(ctx, taskID)
	if err != nil {
		return nil, err
	}
	t.Touch()
	e, ok := t.Execution(id)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "exec %s not found", id)
	}
	return e, nil
}

// statusOf converts errors of lower layers to statuses that the SDK understands.
func statusOf(err error) error {
	var gap *task.OffsetError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, task.ErrClosed):
		return status.Error(codes.NotFound, "the sandbox has ended")
	case errors.Is(err, task.ErrStdinClosed):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.As(err, &gap):
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}
