package localmodal

import (
	"context"
	"log/slog"
	"path"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// isolationHeader is the response header of every unary call that contains the isolation level.
// Package modalsandbox reads it.
const isolationHeader = "x-overwinter-isolation"

func (s *Server) interceptUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	// Clients read the isolation level from this header, since Modal's protocol has no field for
	// it.
	header := metadata.Pairs(isolationHeader, string(s.Isolation()))
	if s.runtime.OwnsNetwork() {
		header.Set(networkHeader, s.runtime.HostPorts().String())
	}
	if err := grpc.SetHeader(ctx, header); err != nil {
		return nil, err
	}
	var response any
	err := s.around(ctx, info.FullMethod, func(scope string) (err error) {
		if scope != "" && taskOf(request) != scope {
			return errForeignTask
		}
		response, err = handler(ctx, request)
		return err
	})
	return response, err
}

func (s *Server) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return s.around(stream.Context(), info.FullMethod, func(scope string) error {
		if scope != "" {
			stream = &scopedStream{ServerStream: stream, scope: scope}
		}
		return handler(srv, stream)
	})
}

// scopedStream refuses messages for tasks other than that of the caller's token.
type scopedStream struct {
	grpc.ServerStream
	scope string
	begun bool
}

// RecvMsg checks the first message, which names the task; later ones carry data.
func (s *scopedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if !s.begun && taskOf(m) != s.scope {
		return errForeignTask
	}
	s.begun = true
	return nil
}

var errForeignTask = status.Error(codes.PermissionDenied, "this command router token is for another task")

// taskOf returns the task of a request to the router, empty if it names none.
func taskOf(request any) string {
	switch q := request.(type) {
	case interface{ GetTaskId() string }:
		return q.GetTaskId()
	case *pb.TaskExecStdinWriteStreamRequest:
		return q.GetStart().GetTaskId()
	default:
		return ""
	}
}

// around wraps every call with authentication, injected faults, and one log line.
func (s *Server) around(ctx context.Context, fullMethod string, handle func(scope string) error) error {
	method, started := path.Base(fullMethod), time.Now()
	scope, err := s.authenticate(ctx, fullMethod)
	call := func() error { return handle(scope) }
	if err == nil {
		if fault, ok := s.faults.take(method); ok {
			err = fault.apply(ctx, call)
		} else {
			err = call()
		}
	}
	level := slog.LevelDebug
	if code := status.Code(err); code == codes.Internal || code == codes.Unknown {
		level = slog.LevelWarn
	}
	s.logger.Log(ctx, level, "call", slog.String("method", method), slog.Duration("duration", time.Since(started)), slog.Any("error", err))
	return err
}

// authenticate checks the installation's token for calls of the control plane, and a token issued
// for one task for calls of the router. Scope is that task.
func (s *Server) authenticate(ctx context.Context, fullMethod string) (scope string, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if !strings.HasPrefix(fullMethod, "/"+pb.TaskCommandRouter_ServiceDesc.ServiceName+"/") {
		if !s.token.Matches(first(md.Get("x-modal-token-id")), first(md.Get("x-modal-token-secret"))) {
			return "", status.Error(codes.Unauthenticated,
				"invalid token: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET to those in the file \"token\" of the local Modal's data directory")
		}
		return "", nil
	}
	token, _ := strings.CutPrefix(first(md.Get("authorization")), "Bearer ")
	task, ok := "", false
	if subject, err := s.signer.check(token); err == nil {
		task, ok = strings.CutPrefix(subject, routerSubject)
	}
	if !ok || task == "" {
		return "", status.Error(codes.Unauthenticated, "no valid command router token")
	}
	return task, nil
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
