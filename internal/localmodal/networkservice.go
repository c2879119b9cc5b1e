package localmodal

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netstack"
)

// networkHeader is the response header of every unary call that declares, with the allowed host
// ports, that each sandbox has its own network. A server whose sandboxes share the machine's
// network does not send it.
const networkHeader = "x-overwinter-host-ports"

// Modal's protocol has no messages for refused connections, so this server has an additional
// service for them. Package modalsandbox calls it over the SDK's connection. Request and response
// are JSON.
const (
	networkService  = "overwinter.localmodal.Network"
	networkRefusals = "NetworkRefusals"
)

type refusalsRequest struct {
	SandboxID string `json:"sandboxId"`
	After     int64  `json:"after"` // the number to continue from; 0 at first
}

type refusalsAnswer struct {
	Refusals []refusal `json:"refusals"`
	Last     int64     `json:"last"` // the number to continue from
}

type refusal struct {
	Time     time.Time `json:"time"`
	Host     string    `json:"host,omitempty"`
	IP       string    `json:"ip,omitempty"`
	Port     uint16    `json:"port,omitempty"`
	Protocol string    `json:"protocol"`
	Verdict  string    `json:"verdict"`
	Count    int       `json:"count"`
}

// refuser is the server's interface for the service.
type refuser interface {
	refusals(ctx context.Context, q refusalsRequest) (refusalsAnswer, error)
}

var networkServiceDesc = grpc.ServiceDesc{
	ServiceName: networkService,
	HandlerType: (*refuser)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: networkRefusals, Handler: handleRefusals}},
}

func handleRefusals(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // gRPC defines the order
	var in wrapperspb.BytesValue
	if err := decode(&in); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, request any) (any, error) {
		var q refusalsRequest
		if err := json.Unmarshal(request.(*wrapperspb.BytesValue).GetValue(), &q); err != nil { // decoded above
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		found, err := srv.(refuser).refusals(ctx, q) // registered with this type
		if err != nil {
			return nil, err
		}
		answer, err := json.Marshal(found)
		return wrapperspb.Bytes(answer), err
	}
	return intercept(ctx, &in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + networkService + "/" + networkRefusals}, handle)
}

func (s *Server) refusals(ctx context.Context, q refusalsRequest) (refusalsAnswer, error) {
	sb, err := s.sandbox(ctx, q.SandboxID)
	if err != nil {
		return refusalsAnswer{}, err
	}
	if sb.task == nil {
		return refusalsAnswer{}, status.Errorf(codes.NotFound, "sandbox %s ended before this server started", q.SandboxID)
	}
	found, last, err := sb.task.Box.Refusals(q.After)
	if lack, ok := errors.AsType[*box.LackError](err); ok {
		return refusalsAnswer{}, status.Error(codes.Unimplemented, lack.Error())
	}
	if err != nil {
		return refusalsAnswer{}, err
	}
	answer := refusalsAnswer{Last: last, Refusals: make([]refusal, 0, len(found))}
	for _, f := range found {
		answer.Refusals = append(answer.Refusals, shownRefusal(f))
	}
	return answer, nil
}

func shownRefusal(f netstack.Refusal) refusal {
	shown := refusal{Time: f.Time, Host: f.Host, Port: f.Port, Protocol: string(f.Protocol), Verdict: string(f.Verdict), Count: f.Count}
	if f.IP.IsValid() {
		shown.IP = f.IP.String()
	}
	return shown
}
