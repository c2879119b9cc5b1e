package localmodal

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netstack"
	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

const (
	maxTimeout     = 24 * time.Hour
	defaultTimeout = 5 * time.Minute
	entrypointID   = "entrypoint"
)

// SandboxCreateV2 starts a sandbox and responds when it runs. A call that the SDK repeats, with the
// same idempotency key, gets the sandbox of the first call.
func (s *Server) SandboxCreateV2(ctx context.Context, q *pb.SandboxCreateV2Request) (*pb.SandboxCreateV2Response, error) {
	env, err := s.Environment(q.GetSecretSources())
	if err != nil {
		return nil, err
	}
	sb, err := s.create(ctx, q.GetAppId(), q.GetDefinition(), tagMap(q.GetTags()), env)
	if err != nil {
		return nil, err
	}
	access, err := s.routerAccess(sb)
	if err != nil {
		return nil, err
	}
	return pb.SandboxCreateV2Response_builder{
		SandboxId: sb.record().ID, TaskId: sb.record().TaskID, Tunnels: tunnelData(sb), CommandRouterAccess: access,
	}.Build(), nil
}

func (s *Server) create(ctx context.Context, appID string, d *pb.Sandbox, tags, env map[string]string) (*sandbox, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	r, err := s.newRecord(appID, d, tags)
	if err != nil {
		return nil, err
	}
	r.IdempotencyKey = first(md.Get("x-idempotency-key"))
	net, err := networkOf(d)
	if err != nil {
		return nil, err
	}
	mounts, err := s.volumeMounts(d.GetVolumeMounts())
	if err != nil {
		return nil, err
	}
	sb, isNew, err := s.reserve(r)
	if err != nil {
		return nil, err
	}
	if !isNew {
		return sb, s.await(ctx, sb)
	}
	sb.probe, sb.idle = d.GetReadinessProbe(), time.Duration(d.GetIdleTimeoutSecs())*time.Second
	sb.env = maps.Clone(r.Root.Env)
	if sb.env == nil {
		sb.env = map[string]string{}
	}
	maps.Copy(sb.env, env)
	sb.env["MODAL_SANDBOX_ID"], sb.env["MODAL_TASK_ID"] = r.ID, r.TaskID
	// The client may disconnect; its next attempt must then find the sandbox.
	err = s.start(context.WithoutCancel(ctx), sb, d, net, mounts)
	if err != nil {
		sb.failure = statusOf(err)
		s.forget(sb)
	}
	close(sb.started)
	if err != nil {
		close(sb.done)
		return nil, sb.failure
	}
	s.background.Go(func() { sb.supervise(s.ctx) })
	return sb, nil
}

// newRecord validates a create request and returns its record.
func (s *Server) newRecord(appID string, d *pb.Sandbox, tags map[string]string) (sandboxRecord, error) {
	if _, ok := s.records.apps.Get(appID); !ok {
		return sandboxRecord{}, status.Errorf(codes.NotFound, "app %s not found", appID)
	}
	im, err := s.image(d.GetImageId())
	if err != nil {
		return sandboxRecord{}, err
	}
	if im.Archive != "" {
		return sandboxRecord{}, status.Error(codes.InvalidArgument, "an image of a directory cannot be a sandbox's root; mount it")
	}
	if err := validate(d); err != nil {
		return sandboxRecord{}, err
	}
	r := sandboxRecord{
		ID: newID("sb"), TaskID: newID("ta"), AppID: appID, Name: d.GetName(), ImageID: im.ID, Root: im.Root, Tags: tags,
		Timeout:      time.Duration(d.GetTimeoutSecs()) * time.Second,
		ExitSnapshot: d.GetExperimentalOptionsV2()["enable_exit_snapshot"] == "true",
	}
	if r.Timeout == 0 {
		r.Timeout = defaultTimeout
	}
	if d.GetWorkdir() != "" {
		r.Root.Workdir = d.GetWorkdir()
	}
	return r, nil
}

// validate refuses invalid requests, and options that this server would otherwise ignore silently.
func validate(d *pb.Sandbox) error {
	switch {
	case time.Duration(d.GetTimeoutSecs())*time.Second > maxTimeout:
		return status.Error(codes.InvalidArgument, "a sandbox's timeout cannot exceed 24 hours")
	case d.GetWorkdir() != "" && !path.IsAbs(d.GetWorkdir()):
		return status.Error(codes.InvalidArgument, "a sandbox's working directory must be absolute")
	case d.GetResources().GetGpuConfig().GetGpuType() != "":
		return status.Error(codes.Unimplemented, "the local Modal has no GPUs")
	case d.GetEnableSnapshot():
		return status.Error(codes.Unimplemented, "the local Modal has no memory snapshots")
	case len(d.GetCloudBucketMounts()) > 0, len(d.GetS3Mounts()) > 0, len(d.GetNfsMounts()) > 0:
		return status.Error(codes.Unimplemented, "the local Modal mounts volumes only: no cloud buckets and no network file systems")
	case d.GetProxyId() != "":
		return status.Error(codes.Unimplemented, "the local Modal has no proxies")
	case d.HasOutboundPolicy(), d.HasExperimentalOutboundPolicy():
		return status.Error(codes.Unimplemented, "the local Modal cannot enforce outbound policies; it has outbound allowlists")
	case d.GetIncludeOidcIdentityToken(), d.GetIncludeX509Svid():
		return status.Error(codes.Unimplemented, "the local Modal has no identity that others could verify: no OIDC token and no certificate")
	case d.GetI6PnEnabled():
		return status.Error(codes.Unimplemented, "the local Modal has no network between sandboxes (i6pn)")
	case d.GetCustomDomain() != "":
		return status.Error(codes.Unimplemented, "the local Modal serves no custom domains")
	}
	return validatePlacement(d)
}

// The clouds and regions of Modal. A sandbox always runs on this machine, but values that Modal
// refuses are refused here as well.
var (
	clouds        = []string{"auto", "aws", "gcp", "oci", "azure"}
	regionPattern = regexp.MustCompile(`^(us|eu|ap|uk|ca|me|sa|af|mx|il|jp|asia|europe|northamerica|southamerica|australia|africa)(-[a-z0-9]+)*$`)
)

func validatePlacement(d *pb.Sandbox) error {
	if cloud := d.GetCloudProviderStr(); cloud != "" && !slices.Contains(clouds, strings.ToLower(cloud)) {
		return status.Errorf(codes.InvalidArgument, "unknown cloud %q: must be one of %s", cloud, strings.Join(clouds, ", "))
	}
	for _, region := range d.GetSchedulerPlacement().GetRegions() {
		if !regionPattern.MatchString(region) {
			return status.Errorf(codes.InvalidArgument, "unknown region %q", region)
		}
	}
	return nil
}

// network describes the addresses that a sandbox may reach, and from which it may be reached.
type network struct {
	blocked bool
	allow   *netstack.Allowlist // reachable addresses; nil for the internet
	inbound []netip.Prefix      // addresses that its tunnels accept; nil for all
}

func networkOf(d *pb.Sandbox) (network, error) {
	n := network{blocked: d.GetBlockNetwork()}
	switch access := d.GetNetworkAccess(); access.GetNetworkAccessType() {
	case pb.NetworkAccess_BLOCKED:
		n.blocked = true
	case pb.NetworkAccess_ALLOWLIST:
		list, err := netstack.ParseAllowlist(access.GetAllowedCidrs(), access.GetAllowedDomains())
		if err != nil {
			return n, status.Error(codes.InvalidArgument, err.Error())
		}
		n.allow = list
	default: // open
	}
	for _, text := range d.GetInboundCidrAllowlist() {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return n, status.Errorf(codes.InvalidArgument, "Invalid CIDR (inbound): %s", text)
		}
		n.inbound = append(n.inbound, prefix.Masked())
	}
	return n, nil
}

// reserve reserves the name, or finds the sandbox of an earlier call with the same idempotency key.
func (s *Server) reserve(r sandboxRecord) (*sandbox, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, false, status.Error(codes.Unavailable, "the server is stopping")
	}
	if r.IdempotencyKey != "" {
		if sb, ok := s.byKey[r.IdempotencyKey]; ok {
			return sb, false, nil
		}
	}
	if r.Name != "" && s.running(r.AppID, r.Name) != nil {
		return nil, false, status.Errorf(codes.AlreadyExists, "a sandbox named %q is running in this app", r.Name)
	}
	// Creation times are unique, because lists use them as cursors, and coarse enough to be exact
	// as seconds in a float64.
	r.Created = time.Now().Truncate(time.Microsecond)
	if !r.Created.After(s.lastCreated) {
		r.Created = s.lastCreated.Add(time.Microsecond)
	}
	s.lastCreated = r.Created
	sb := newSandbox(s, r)
	s.sandboxes[r.ID], s.tasks[r.TaskID] = sb, sb
	if r.IdempotencyKey != "" {
		s.byKey[r.IdempotencyKey] = sb
	}
	return sb, true, nil
}

// forget reverses reserve for a sandbox that could not be started.
func (s *Server) forget(sb *sandbox) {
	r := sb.record()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, r.ID)
	delete(s.tasks, r.TaskID)
	delete(s.byKey, r.IdempotencyKey)
}

// running returns the running sandbox with that name. The caller holds s.mu.
func (s *Server) running(appID, name string) *sandbox {
	for _, sb := range s.sandboxes {
		if r := sb.record(); r.AppID == appID && r.Name == name && !sb.ended() {
			return sb
		}
	}
	return nil
}

// await waits until a sandbox has been started.
func (s *Server) await(ctx context.Context, sb *sandbox) error {
	select {
	case <-sb.started:
		return sb.failure
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (s *Server) start(ctx context.Context, sb *sandbox, d *pb.Sandbox, net network, mounts []wire.Mount) error {
	r := sb.record()
	if err := s.runtime.RequireSpace(); err != nil {
		return err
	}
	_, h, err := s.holdImage(r.ImageID)
	defer h.release()
	if err != nil { // deleted since the lookup, possibly with its layers
		return err
	}
	if missing := s.runtime.Missing(r.Root.Layers); missing != "" {
		return status.Errorf(codes.DataLoss, "image %s is damaged: layer %s is missing", r.ImageID, missing)
	}
	recorded := make(chan error, 1)
	go func() { recorded <- s.records.sandboxes.Put(r.ID, r) }()
	bx, err := s.runtime.Start(ctx, box.Spec{
		ID: r.ID, Layers: r.Root.Layers, Workdir: r.Root.Workdir, Mounts: mounts,
		BlockNetwork: net.blocked, Allow: net.allow, Limits: askedLimits(d.GetResources()),
	})
	if err = errors.Join(err, <-recorded); err == nil {
		sb.task = task.New(task.Options{Box: bx, Env: sb.env, Workdir: r.Root.Workdir, Scratch: s.scratch(), Inbound: net.inbound})
		if err = sb.populate(d); err == nil { //nolint:contextcheck // tunnels outlive the call
			return nil
		}
		err = errors.Join(err, sb.task.Close(), sb.task.Release())
	} else if bx != nil {
		bx.Kill()
	}
	if clean := errors.Join(s.runtime.Discard(r.ID), s.records.sandboxes.Delete(r.ID)); clean != nil {
		s.logger.ErrorContext(ctx, "failed sandbox could not be cleaned up", slog.String("sandbox_id", r.ID), slog.Any("error", clean))
	}
	return err
}

// askedLimits returns the limits that a create requests. A request without a maximum has no effect,
// since no resources are reserved.
func askedLimits(r *pb.Resources) box.Limits {
	return box.Limits{Memory: int64(r.GetMemoryMbMax()) << 20, CPUs: float64(r.GetMilliCpuMax()) / 1000}
}

// populate opens the sandbox's ports and starts its own process.
func (sb *sandbox) populate(d *pb.Sandbox) error {
	for _, port := range d.GetOpenPorts().GetPorts() {
		if _, err := sb.task.Expose(port.GetPort()); err != nil {
			return err
		}
	}
	if len(d.GetEntrypointArgs()) == 0 {
		return nil
	}
	entry, err := sb.task.Start(entrypointID, task.Command{
		Args: d.GetEntrypointArgs(), Background: true, Terminal: d.GetPtyInfo().GetEnabled(),
		Rows: int(d.GetPtyInfo().GetWinszRows()), Cols: int(d.GetPtyInfo().GetWinszCols()),
	})
	if box.IsExhausted(err) {
		return status.Error(codes.Unavailable, err.Error())
	}
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	sb.entry = entry
	return nil
}
