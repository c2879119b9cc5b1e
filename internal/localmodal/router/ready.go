package router

import (
	"context"
	"time"

	"github.com/google/uuid"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
)

// shortestProbeInterval prevents a busy loop if the interval is zero.
const shortestProbeInterval = 10 * time.Millisecond

// SandboxWaitUntilReady runs the sandbox's readiness probe until it succeeds.
func (r *Router) SandboxWaitUntilReady(ctx context.Context, q *pb.SandboxWaitUntilReadyTcrRequest) (*pb.SandboxWaitUntilReadyTcrResponse, error) {
	t, err := r.use(ctx, q.GetTaskId())
	if err != nil {
		return nil, err
	}
	probe, err := r.backend.Probe(ctx, q.GetTaskId())
	if err != nil {
		return nil, err
	}
	if probe == nil {
		return nil, status.Error(codes.FailedPrecondition, "the sandbox has no readiness probe")
	}
	if seconds := q.GetTimeout(); seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(float64(seconds)*float64(time.Second)))
		defer cancel()
	}
	interval := max(time.Duration(probe.GetIntervalMs())*time.Millisecond, shortestProbeInterval)
	for {
		ready, err := ask(ctx, t, probe)
		if err != nil {
			return nil, statusOf(err)
		}
		if ready {
			now := float64(time.Now().UnixNano()) / 1e9
			return pb.SandboxWaitUntilReadyTcrResponse_builder{ReadyAt: now}.Build(), nil
		}
		select {
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-t.Box.Gone():
			return nil, status.Error(codes.NotFound, "the sandbox has ended")
		case <-time.After(interval):
		}
	}
}

func ask(ctx context.Context, t *task.Task, probe *pb.Probe) (bool, error) {
	if probe.HasTcpPort() {
		return t.Reachable(ctx, probe.GetTcpPort()), nil
	}
	e, err := t.Start("probe-"+uuid.NewString(), task.Command{
		Args: probe.GetExecCommand().GetArgv(), NoStdout: true, NoStderr: true, Background: true,
	})
	if err != nil {
		return false, err
	}
	select {
	case <-e.Done():
	case <-ctx.Done():
		return false, ctx.Err()
	}
	code, signal := e.Exit()
	return code == 0 && signal == 0, nil
}
