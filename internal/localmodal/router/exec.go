package router

import (
	"context"
	"errors"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
)

// fileTools is the path at which the SDK expects Modal's file tools.
const fileTools = "/__modal/.bin/modal-sandbox-fs-tools"

// TaskExecStart starts a process with the client's exec id.
func (r *Router) TaskExecStart(ctx context.Context, q *pb.TaskExecStartRequest) (*pb.TaskExecStartResponse, error) {
	t, err := r.use(ctx, q.GetTaskId())
	if err != nil {
		return nil, err
	}
	env, err := r.backend.Environment(q.GetSecretSources())
	if err != nil {
		return nil, err
	}
	for name, value := range q.GetEnv() {
		env[name] = value
	}
	command := task.Command{
		Args: q.GetCommandArgs(), Env: env, Workdir: q.GetWorkdir(),
		Terminal: q.GetPtyInfo().GetEnabled(),
		Rows:     int(q.GetPtyInfo().GetWinszRows()), Cols: int(q.GetPtyInfo().GetWinszCols()),
		NoStdout: q.GetStdoutConfig() != pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_PIPE,
		NoStderr: q.GetStderrConfig() != pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_PIPE,
		Timeout:  time.Duration(q.GetTimeoutSecs()) * time.Second,
	}
	if name := q.GetPtyInfo().GetEnvTerm(); name != "" {
		env["TERM"] = name
	}
	if len(command.Args) == 2 && command.Args[0] == fileTools {
		command.FileTools = command.Args[1]
	}
	_, err = t.Start(q.GetExecId(), command)
	switch {
	case err == nil:
		return &pb.TaskExecStartResponse{}, nil
	case errors.Is(err, task.ErrClosed), errors.Is(err, box.ErrGone):
		return nil, status.Error(codes.NotFound, "the sandbox has ended")
	case box.IsExhausted(err):
		return nil, status.Error(codes.Unavailable, err.Error())
	default: // the request cannot be executed
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
}

// TaskExecWait waits for a process to end.
func (r *Router) TaskExecWait(ctx context.Context, q *pb.TaskExecWaitRequest) (*pb.TaskExecWaitResponse, error) {
	e, err := r.execution(ctx, q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case <-e.Done():
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	code, signal := exit(e)
	return pb.TaskExecWaitResponse_builder{Code: code, Signal: signal}.Build(), nil
}

// TaskExecPoll reports whether a process has ended, and how.
func (r *Router) TaskExecPoll(ctx context.Context, q *pb.TaskExecPollRequest) (*pb.TaskExecPollResponse, error) {
	e, err := r.execution(ctx, q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case <-e.Done():
	default:
		return &pb.TaskExecPollResponse{}, nil
	}
	code, signal := exit(e)
	return pb.TaskExecPollResponse_builder{Code: code, Signal: signal}.Build(), nil
}

// exit returns either the exit code, or the signal that ended the process.
func exit(e *task.Execution) (code, signal *int32) {
	c, s := e.Exit()
	if s != 0 {
		return nil, new(int32(s))
	}
	return new(int32(c)), nil
}
