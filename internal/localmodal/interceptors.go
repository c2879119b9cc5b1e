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

// IsolationHeader names the response header in which every unary call tells how
// sandboxes are kept apart. Package modalsandbox reads it.
const IsolationHeader = "x-overwinter-isolation"

func (s *Server) interceptUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	// A client that cares reads here what keeps its sandboxes apart; Modal's own
	// protocol has no word for it.
	if err := grpc.SetHeader(ctx, metadata.Pairs(IsolationHeader, string(s.Isolation()))); err != nil {
		return nil, err
	}
	var response any
	err := s.around(ctx, info.FullMethod, func() (err error) {
		response, err = handler(ctx, request)
		return err
	})
	return response, err
}

func (s *Server) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return s.around(stream.Context(), info.FullMethod, func() error { return handler(srv, stream) })
}

// around is what every call goes through: authentication, faults, one log line.
func (s *Server) around(ctx context.Context, fullMethod string, call func() error) error {
	method, started := path.Base(fullMethod), time.Now()
	err := s.authenticate(ctx, fullMethod)
	if err == nil {
		if fault, ok := s.faults.take(method); ok {
			err = fault.strike(ctx, call)
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

// authenticate wants any API token at the control plane, because there are no
// accounts here, and a token of ours at the router.
func (s *Server) authenticate(ctx context.Context, fullMethod string) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if !strings.HasPrefix(fullMethod, "/"+pb.TaskCommandRouter_ServiceDesc.ServiceName+"/") {
		if first(md.Get("x-modal-token-id")) == "" {
			return status.Error(codes.Unauthenticated, "no API token: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET to anything")
		}
		return nil
	}
	token, _ := strings.CutPrefix(first(md.Get("authorization")), "Bearer ")
	if _, err := s.signer.check(token); err != nil {
		return status.Error(codes.Unauthenticated, "no valid command router token")
	}
	return nil
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
