package localmodal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal/access"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/router"
	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
	"github.com/overwinter-dev/overwinter/internal/privatedir"
	"github.com/overwinter-dev/overwinter/internal/rawio"
)

const (
	// maxMessage is Modal's limit on messages.
	maxMessage = 100 << 20
	// window bounds the data that a client may send before the server reads it, on a connection and
	// in each of its calls; the message that is being read may be longer. Without a fixed window, gRPC
	// measures the connection with a ping for each message that arrives at an idle connection.
	window = 1 << 20
	// sweepInterval is the interval between deletions of expired data.
	sweepInterval = time.Minute
	// stopParallel is the number of sandboxes that are ended concurrently at a stop.
	stopParallel = 8
	// drainInterval is the interval at which a stopping server checks whether sandboxes are
	// running.
	drainInterval = 100 * time.Millisecond
)

// Options configure a Server.
type Options struct {
	// Address is the address to listen on. It must be a loopback address: the SDK uses plaintext
	// only for these. Default 127.0.0.1:0.
	Address string
	// DataDir is the directory of all persistent data. Required; only one server may use it at a
	// time.
	DataDir string
	// Token is the credential that clients must send. Default: the one in DataDir, which is created
	// at the first start.
	Token access.Token
	// Logger receives the log. Default: discarded.
	Logger *slog.Logger
	// Isolation is the level to use; New fails if it does not work. Default box.Auto: namespaces,
	// and in a container the best level that works.
	Isolation box.Isolation
	// Limits are the limits of each sandbox; a create may request narrower ones.
	Limits box.Limits
	// Container is the kind of container that the server runs in. Default: detected.
	Container string
	// Copies makes the roots of sandboxes copies even where they could be overlays.
	Copies bool
	// Network is the network of sandboxes. Default box.DefaultNetwork.
	Network box.Network
	// HostPorts are the ports of this machine's loopback interface that sandboxes can reach as
	// host.overwinter.internal. Default: none.
	HostPorts hostports.Set
	// DrainTimeout is how long a stopping server continues to serve while sandboxes run, so that
	// clients can save and end them. Default 0: it ends them immediately.
	DrainTimeout time.Duration
	// InitPath is the program that sandboxes run as their init; its main must call
	// ReexecMain first. Default: this program.
	InitPath string
}

// Server is a Modal-compatible API on this machine.
type Server struct {
	pb.UnimplementedModalClientServer

	logger   *slog.Logger
	drainFor time.Duration
	dataDir  string
	lock     *os.File
	records  *records
	runtime  *box.Runtime
	token    access.Token // of clients
	signer   signer
	listener net.Listener
	grpc     *grpc.Server
	faults   faults

	ctx        context.Context //nolint:containedctx // done when the server closes
	cancel     context.CancelFunc
	background sync.WaitGroup
	closing    sync.Once
	closeErr   error

	naming       sync.Mutex // serializes find-or-create by name
	snapshotKeys keyedLocks
	recipes      keyedLocks // of images; serializes find-or-build
	layers       layerUse

	mu             sync.Mutex
	stopping       bool
	sandboxes      map[string]*sandbox // by id
	tasks          map[string]*sandbox // by task id
	byKey          map[string]*sandbox // by idempotency key
	lastCreated    time.Time
	unnamedSecrets map[string]map[string]string
}

// New prepares a server: it locks the data directory, checks whether this machine can isolate
// sandboxes (otherwise it returns a *box.UnsupportedError with the reason), recovers the state of
// an earlier server, and listens. The caller must call Run or Close.
func New(o Options) (*Server, error) {
	address, err := loopback(o.Address)
	if err != nil {
		return nil, err
	}
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil || o.DataDir == "" {
		return nil, errors.Join(errors.New("the data directory is not set"), err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		logger: logger, drainFor: o.DrainTimeout, dataDir: dir, lock: lock, signer: newSigner(), ctx: ctx, cancel: cancel,
		sandboxes: map[string]*sandbox{}, tasks: map[string]*sandbox{}, byKey: map[string]*sandbox{},
		unnamedSecrets: map[string]map[string]string{},
	}
	if err := s.open(o, address); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// loopback validates that only this machine can reach an address.
func loopback(address string) (string, error) {
	if address == "" {
		return "127.0.0.1:0", nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("address %q: %w", address, err)
	}
	// Not every loopback address: the SDK uses plaintext only for these hosts.
	if host != "127.0.0.1" && host != "::1" && host != "localhost" {
		return "", fmt.Errorf("address %q is refused: the local Modal speaks plaintext and listens on 127.0.0.1, ::1 or localhost only", address)
	}
	return net.JoinHostPort(host, port), nil
}

func (s *Server) open(o Options, address string) error {
	for _, d := range []string{"archives", "scratch", "volumes"} {
		if err := privatedir.Make(filepath.Join(s.dataDir, d), 0o700); err != nil {
			return fmt.Errorf("make data directory: %w", err)
		}
	}
	var err error
	if s.token = o.Token; s.token == (access.Token{}) {
		s.token, err = access.Load(s.dataDir)
	} else {
		err = s.token.Validate()
	}
	if err != nil {
		return err
	}
	if s.records, err = openRecords(filepath.Join(s.dataDir, "records")); err != nil {
		return err
	}
	s.runtime, err = box.Open(s.ctx, box.Options{
		Dir: s.dataDir, Isolation: o.Isolation, Container: o.Container, Copies: o.Copies, InitPath: o.InitPath, Logger: s.logger,
		Network: o.Network, HostPorts: o.HostPorts, Limits: o.Limits,
	})
	if err != nil {
		return err
	}
	for _, v := range s.records.volumes.All() {
		if err := s.runtime.Adopt(s.volumePath(v.ID)); err != nil {
			return err
		}
	}
	if err := s.recover(s.ctx); err != nil {
		return err
	}
	s.collect(s.ctx)
	if s.listener, err = (&net.ListenConfig{}).Listen(s.ctx, "tcp", address); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(s.interceptUnary), grpc.ChainStreamInterceptor(s.interceptStream),
		grpc.StaticConnWindowSize(window), grpc.StaticStreamWindowSize(window), allowPings(),
	)
	pb.RegisterModalClientServer(s.grpc, s)
	s.grpc.RegisterService(&imageServiceDesc, s)
	s.grpc.RegisterService(&networkServiceDesc, s)
	pb.RegisterTaskCommandRouterServer(s.grpc, router.New(s))
	return nil
}

// allowPings allows keepalive pings of clients. The SDK sends one every 30 s; by default a gRPC
// server treats this as abuse and closes the connection, with all its calls, after some minutes.
func allowPings() grpc.ServerOption {
	return grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true})
}

// URL returns the value of MODAL_SERVER_URL with which the SDK uses this server.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Token returns the credential that clients of this server must send.
func (s *Server) Token() access.Token { return s.token }

// routerURL returns the URL of the same listener: the SDK requires https here, but uses plaintext
// nevertheless, because the server's host is a loopback address.
func (s *Server) routerURL() string { return "https://" + s.listener.Addr().String() }

// Unlimited returns why the kernel does not bound the memory and the CPUs of sandboxes; nil if it
// does.
func (s *Server) Unlimited() error { return s.runtime.Unlimited() }

// Isolation returns the isolation level of sandboxes.
func (s *Server) Isolation() box.Isolation { return s.runtime.Isolation() }

// Lacks returns the abilities that sandboxes lack compared with those of the best level.
func (s *Server) Lacks() []box.Lack { return s.runtime.Lacks() }

// Inject makes the next calls of a method fail. For tests.
func (s *Server) Inject(f Fault) { s.faults.add(f) }

func (s *Server) scratch() string { return filepath.Join(s.dataDir, "scratch") }

// Run serves until ctx is done and, for Options.DrainTimeout, while sandboxes run. Then it ends every sandbox as if it had
// been terminated and closes the server.
func (s *Server) Run(ctx context.Context) error {
	s.background.Go(func() { s.sweep() })
	s.announce(ctx)
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(rawio.NewListener(s.listener)) }()
	var err error
	select {
	case <-ctx.Done():
		s.drain()
	case err = <-served:
		served <- nil
	}
	err = errors.Join(err, s.Close())
	<-served //nolint:errcheck // returns because it was stopped
	return err
}

// drain waits until clients have ended their sandboxes, or for DrainTimeout.
func (s *Server) drain() {
	timeout := time.NewTimer(s.drainFor)
	defer timeout.Stop()
	ticker := time.NewTicker(drainInterval)
	defer ticker.Stop()
	running := func(sb *sandbox) bool { return !sb.ended() }
	for slices.ContainsFunc(s.snapshotOfSandboxes(), running) {
		select {
		case <-ticker.C:
		case <-timeout.C:
			return
		}
	}
}

// announce logs the properties of this server and the abilities that its level lacks.
func (s *Server) announce(ctx context.Context) {
	for _, refusal := range s.runtime.Better() {
		s.logger.WarnContext(ctx, "no better isolation is available here", slog.String("refused", refusal.String()))
	}
	if err := s.runtime.Unlimited(); err != nil {
		s.logger.WarnContext(ctx, "the memory and CPU time of sandboxes are watched, not bounded by the kernel: no control groups", slog.Any("error", err))
	}
	cannot := []string{}
	for _, l := range s.Lacks() {
		cannot = append(cannot, l.String())
	}
	files := "overlay"
	if s.runtime.Copies() {
		files = "copies"
	}
	s.logger.InfoContext(ctx, "local Modal is serving", slog.String("url", s.URL()), slog.String("isolation", string(s.Isolation())),
		slog.String("files", files), slog.String("container", s.runtime.Container()), slog.Any("cannot", cannot), slog.String("data_dir", s.dataDir))
}

// Close ends every sandbox and releases all resources. It may be called more than once.
func (s *Server) Close() error {
	s.closing.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Server) close() error {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	if s.grpc != nil {
		s.grpc.Stop()
	}
	var failures []error
	if s.listener != nil {
		if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
			failures = append(failures, err)
		}
	}
	s.endAll()
	s.cancel()
	s.background.Wait()
	for _, sb := range s.snapshotOfSandboxes() {
		if sb.task != nil {
			failures = append(failures, sb.task.Release())
		}
	}
	if s.runtime != nil {
		failures = append(failures, s.runtime.Close())
	}
	return errors.Join(append(failures, unlockDir(s.lock))...)
}

func (s *Server) endAll() {
	var g errgroup.Group
	g.SetLimit(stopParallel)
	for _, sb := range s.snapshotOfSandboxes() {
		g.Go(func() error {
			<-sb.started // soon, because calls that could start it have ended
			if sb.failure == nil && sb.task != nil {
				sb.finish(s.ctx, pb.GenericResult_GENERIC_STATUS_TERMINATED, exitTerminated)
			}
			return nil
		})
	}
	_ = g.Wait() // nothing in it fails
}

// sweep deletes expired data.
func (s *Server) sweep() {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.collect(s.ctx)
		for _, sb := range s.snapshotOfSandboxes() {
			if !sb.ended() || sb.task == nil || time.Since(sb.record().Ended) < task.Retention {
				continue
			}
			if err := sb.task.Release(); err != nil {
				s.logger.WarnContext(s.ctx, "output of an ended sandbox could not be freed", slog.Any("error", err))
			}
		}
	}
}
