package router

import (
	"context"
	"errors"
	"io"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
)

// TaskExecStdioRead sends a process's output from an offset to its end.
func (r *Router) TaskExecStdioRead(q *pb.TaskExecStdioReadRequest, st grpc.ServerStreamingServer[pb.TaskExecStdioReadResponse]) error {
	e, err := r.execution(st.Context(), q.GetTaskId(), q.GetExecId())
	if err != nil {
		return err
	}
	output := e.Stdout
	if q.GetFileDescriptor() == pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR {
		output = e.Stderr
	}
	if output == nil {
		return nil
	}
	return statusOf(output.Follow(st.Context(), q.GetOffset(), func(_ uint64, p []byte) error {
		return st.Send(pb.TaskExecStdioReadResponse_builder{Data: p}.Build())
	}))
}

// SandboxStdioReadV2 is TaskExecStdioRead for the sandbox's own process.
func (r *Router) SandboxStdioReadV2(q *pb.SandboxStdioReadV2Request, st grpc.ServerStreamingServer[pb.SandboxStdioReadV2Response]) error {
	e, err := r.backend.Entrypoint(st.Context(), q.GetTaskId())
	if err != nil || e == nil {
		return err
	}
	output := e.Stdout
	if q.GetFileDescriptor() == pb.SandboxStdioFileDescriptor_SANDBOX_STDIO_FILE_DESCRIPTOR_STDERR {
		output = e.Stderr
	}
	return statusOf(output.Follow(st.Context(), q.GetOffset(), func(offset uint64, p []byte) error {
		return st.Send(pb.SandboxStdioReadV2Response_builder{Data: p, StartingOffset: offset}.Build())
	}))
}

// TaskExecStdinWrite writes input to a process.
func (r *Router) TaskExecStdinWrite(ctx context.Context, q *pb.TaskExecStdinWriteRequest) (*pb.TaskExecStdinWriteResponse, error) {
	e, err := r.execution(ctx, q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	if err := e.Write(ctx, q.GetOffset(), q.GetData(), q.GetEof()); err != nil {
		return nil, statusOf(err)
	}
	return &pb.TaskExecStdinWriteResponse{}, nil
}

// SandboxStdinWriteV2 is TaskExecStdinWrite for the sandbox's own process; without one, input is
// discarded.
func (r *Router) SandboxStdinWriteV2(ctx context.Context, q *pb.SandboxStdinWriteV2Request) (*pb.SandboxStdinWriteV2Response, error) {
	e, err := r.backend.Entrypoint(ctx, q.GetTaskId())
	if err != nil {
		return nil, err
	}
	if e != nil {
		if err := e.Write(ctx, q.GetOffset(), q.GetData(), q.GetEof()); err != nil {
			return nil, statusOf(err)
		}
	}
	return &pb.SandboxStdinWriteV2Response{}, nil
}

// TaskExecStdinStatus reports how much input has been written.
func (r *Router) TaskExecStdinStatus(ctx context.Context, q *pb.TaskExecStdinStatusRequest) (*pb.TaskExecStdinStatusResponse, error) {
	e, err := r.execution(ctx, q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	written, closed := e.Written()
	return pb.TaskExecStdinStatusResponse_builder{NumBytesWritten: written, Closed: closed}.Build(), nil
}

// TaskExecStdinWriteStream receives a whole input: start, data…, end. After an interrupted stream
// stdin stays open, so that the client can continue with another stream.
func (r *Router) TaskExecStdinWriteStream(st grpc.ClientStreamingServer[pb.TaskExecStdinWriteStreamRequest, pb.TaskExecStdinWriteStreamResponse]) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return status.Error(codes.InvalidArgument, "the first message must be start")
	}
	e, err := r.execution(st.Context(), start.GetTaskId(), start.GetExecId())
	if err != nil {
		return err
	}
	if err := receiveInput(st, e, start.GetOffset()); err != nil {
		return statusOf(err)
	}
	return st.SendAndClose(&pb.TaskExecStdinWriteStreamResponse{})
}

func receiveInput(st grpc.ClientStreamingServer[pb.TaskExecStdinWriteStreamRequest, pb.TaskExecStdinWriteStreamResponse], e *task.Execution, offset uint64) error {
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Aborted, "the stream ended without an end message")
		}
		if err != nil {
			return err
		}
		if m.HasEnd() {
			return e.Write(st.Context(), offset, nil, true)
		}
		if err := e.Write(st.Context(), offset, m.GetData(), false); err != nil {
			return err
		}
		offset += uint64(len(m.GetData()))
	}
}
