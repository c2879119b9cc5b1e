package activities_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// modalPages is a server for Modal's SDK with many sandboxes, numbered from 1. It stores only
// which of them have ended. It lists the newest first, modalPage at a time.
type modalPages struct {
	pb.UnimplementedModalClientServer
	sandboxes    int
	installation string

	// onPage is called before a page is served, with its number from 1 and the number of earlier
	// requests for it.
	onPage func(ctx context.Context, page, before int) error
	// onEnd is called before a sandbox is ended.
	onEnd func(ctx context.Context, n int) error

	mu    sync.Mutex
	ended map[int]bool
	asked map[int]int // pages
	calls map[string]int
}

const modalPage = 100

func manySession(n int) string { return fmt.Sprintf("ses_%032d", n) }
func manySandbox(n int) string { return fmt.Sprintf("sb-many%d", n) }

// serveModalPages returns a provider whose driver speaks to the server with Modal's SDK.
func serveModalPages(t *testing.T, m *modalPages) *sandbox.Provider {
	t.Helper()
	m.ended, m.asked, m.calls = map[int]bool{}, map[int]int{}, map[string]int{}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		m.mu.Lock()
		m.calls[info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]]++
		m.mu.Unlock()
		return handle(ctx, req)
	}))
	pb.RegisterModalClientServer(server, m)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	drv, err := modalsandbox.New(modalsandbox.Config{
		ServerURL: "http://" + listener.Addr().String(), TokenID: "ak", TokenSecret: secret.NewValue("as"), PageTimeout: callTimeout,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, drv.Close())
		server.Stop()
		require.NoError(t, <-served)
	})
	return sandbox.NewProvider(drv, sandbox.Options{Installation: m.installation})
}

func (m *modalPages) ClientHello(context.Context, *emptypb.Empty) (*pb.ClientHelloResponse, error) {
	return &pb.ClientHelloResponse{}, nil
}

func (m *modalPages) AuthTokenGet(context.Context, *pb.AuthTokenGetRequest) (*pb.AuthTokenGetResponse, error) {
	const token = "eyJhbGciOiJub25lIn0.eyJleHAiOjQxMDI0NDQ4MDB9." // expires in the year 2100
	return pb.AuthTokenGetResponse_builder{Token: token}.Build(), nil
}

func (m *modalPages) AppGetOrCreate(context.Context, *pb.AppGetOrCreateRequest) (*pb.AppGetOrCreateResponse, error) {
	return pb.AppGetOrCreateResponse_builder{AppId: "ap-1"}.Build(), nil
}

func (m *modalPages) SandboxListV2(ctx context.Context, q *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	newest := m.sandboxes
	if before := q.GetBeforeTimestamp(); before > 0 {
		newest = int(before) - 1
	}
	page := (m.sandboxes-newest)/modalPage + 1
	m.mu.Lock()
	before := m.asked[page]
	m.asked[page]++
	m.mu.Unlock()
	if m.onPage != nil {
		if err := m.onPage(ctx, page, before); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var infos []*pb.SandboxInfo
	tag := func(name, value string) *pb.SandboxTag {
		return pb.SandboxTag_builder{TagName: name, TagValue: value}.Build()
	}
	for n := newest; n > 0 && len(infos) < modalPage; n-- {
		if !m.ended[n] {
			infos = append(infos, pb.SandboxInfo_builder{
				Id: manySandbox(n), AppId: "ap-1", Name: session.SandboxName(manySession(n), 1), CreatedAt: float64(n), ImageId: "im-1", TimeoutSecs: 86400,
				Tags: []*pb.SandboxTag{
					tag(sandbox.TagInstallation, m.installation), tag(sandbox.TagSession, manySession(n)),
					tag(sandbox.TagGeneration, "1"), tag(sandbox.TagImage, "im-1"),
				},
			}.Build())
		}
	}
	return pb.SandboxListResponse_builder{Sandboxes: infos}.Build(), nil
}

func (m *modalPages) number(id string) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "sb-many"))
	if err != nil || n < 1 || n > m.sandboxes {
		return 0, status.Error(codes.NotFound, "no such sandbox")
	}
	return n, nil
}

func (m *modalPages) SandboxTerminateV2(ctx context.Context, q *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	n, err := m.number(q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if m.onEnd != nil {
		if err := m.onEnd(ctx, n); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[n] = true
	return &pb.SandboxTerminateResponse{}, nil
}

func (m *modalPages) SandboxWaitV2(_ context.Context, q *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	n, err := m.number(q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended[n] {
		return &pb.SandboxWaitResponse{}, nil
	}
	result := pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_TERMINATED}.Build()
	return pb.SandboxWaitResponse_builder{Result: result}.Build(), nil
}

// took returns the calls since the last call of took, and resets them.
func (m *modalPages) took() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.calls
	m.calls = map[string]int{}
	return calls
}

func (m *modalPages) hasEnded() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.ended)
}

// insertMany inserts sessions from 1 to n, each with a sandbox that is ready.
func (b *harness) insertMany(t *testing.T, n int) {
	t.Helper()
	b.sql(t, `
		INSERT INTO sessions (id, status, agent, lazy, created_at, last_activity_at, idle_timeout_ns, metadata, options, generation, running_since)
		SELECT 'ses_' || lpad(n::text, 32, '0'), 'running', 'demo', true, now(), now(), 1, '{}', '{}', 1, now() FROM generate_series(1, $1::int) n`, n)
	b.sql(t, `
		INSERT INTO sandboxes (session_id, generation, sandbox_id, image_id, status, reserved_at, ready_at)
		SELECT id, 1, 'sb-many' || ltrim(substr(id, 5), '0'), 'im-1', 'ready', now() - interval '1 hour', now() FROM sessions WHERE generation = 1`)
	b.sql(t, `ANALYZE sessions`)
	b.sql(t, `ANALYZE sandboxes`)
}

// callTimeout bounds each call of the reconciler to the provider in these tests.
const callTimeout = 3 * time.Second
