package modalsandbox

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// isolationHeader is a response header of a local server; see package localmodal. Modal itself does
// not send it.
const isolationHeader = "x-overwinter-isolation"

// readIsolation reads how the server isolates sandboxes.
func readIsolation(note func(string)) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		var header metadata.MD
		err := invoke(ctx, method, request, reply, conn, append(o, grpc.Header(&header))...)
		if words := header.Get(isolationHeader); len(words) > 0 {
			note(words[0])
		}
		return err
	}
}

// quiet drops the SDK's warning, at every connection to a server on this machine, that the
// connection is not encrypted.
type quiet struct{ slog.Handler }

const plaintextWarning = "Using insecure TLS (skip certificate verification) for task command router"

// Handle passes on everything else.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == plaintextWarning {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
