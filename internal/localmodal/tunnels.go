package localmodal

import (
	"context"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// connectPort is the default port of a connect token.
const connectPort = 8080

// tunnelData returns the addresses of the sandbox's ports for the client. They are always plain
// TCP: use Tunnel.TCPSocket, not Tunnel.URL.
func tunnelData(sb *sandbox) []*pb.TunnelData {
	if sb.task == nil {
		return nil
	}
	var out []*pb.TunnelData
	for _, t := range sb.task.Tunnels() {
		out = append(out, pb.TunnelData_builder{
			ContainerPort: t.Port, Host: t.Host, Port: t.HostPort,
			UnencryptedHost: new(t.Host), UnencryptedPort: new(t.HostPort),
		}.Build())
	}
	return out
}

// SandboxGetTunnelsV2 lists a sandbox's tunnels.
func (s *Server) SandboxGetTunnelsV2(ctx context.Context, q *pb.SandboxGetTunnelsRequest) (*pb.SandboxGetTunnelsResponse, error) {
	sb, err := s.sandbox(ctx, q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	return pb.SandboxGetTunnelsResponse_builder{
		Tunnels: tunnelData(sb),
		Result:  pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build(),
	}.Build(), nil
}

// SandboxCreateConnectTokenV2 issues a token for HTTP and WebSocket to a port.
func (s *Server) SandboxCreateConnectTokenV2(ctx context.Context, q *pb.SandboxCreateConnectTokenRequest) (*pb.SandboxCreateConnectTokenResponse, error) {
	sb, err := s.sandbox(ctx, q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if sb.ended() {
		return nil, status.Errorf(codes.NotFound, "sandbox %s has ended", q.GetSandboxId())
	}
	port := q.GetPort()
	if port == 0 {
		port = connectPort
	}
	c, err := sb.task.Connect(port, q.GetUserMetadata()) //nolint:contextcheck // it outlives the call
	if err != nil {
		return nil, statusOf(err)
	}
	return pb.SandboxCreateConnectTokenResponse_builder{Url: c.URL, Token: c.Token}.Build(), nil
}
