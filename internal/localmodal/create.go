package localmodal

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

const (
	maxTimeout     = 24 * time.Hour
	defaultTimeout = 5 * time.Minute
	entrypointID   = "entrypoint"
)

// SandboxCreateV2 starts a sandbox and answers when it runs. The SDK's repetition
// of a call, known by its idempotency key, gets the sandbox of the first.
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
	// The client may give up; its next attempt must find the sandbox then.
	err = s.start(context.WithoutCancel(ctx), sb, d, mounts)
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

// newRecord checks what is asked for.
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

// validate refuses what this server would otherwise have to pass over in silence.
func validate(d *pb.Sandbox) error {
	network := d.GetNetworkAccess()
	switch {
	case time.Duration(d.GetTimeoutSecs())*time.Second > maxTimeout:
		return status.Error(codes.InvalidArgument, "a sandbox's timeout cannot exceed 24 hours")
	case d.GetWorkdir() != "" && !path.IsAbs(d.GetWorkdir()):
		return status.Error(codes.InvalidArgument, "a sandbox's working directory must be absolute")
	case network.GetNetworkAccessType() == pb.NetworkAccess_ALLOWLIST, len(d.GetInboundCidrAllowlist()) > 0:
		return status.Error(codes.Unimplemented, "the local Modal cannot enforce network allow-lists; only blocking the network as a whole")
	case d.GetResources().GetGpuConfig().GetGpuType() != "":
		return status.Error(codes.Unimplemented, "the local Modal has no GPUs")
	case d.GetEnableSnapshot():
		return status.Error(codes.Unimplemented, "the local Modal has no memory snapshots")
	case len(d.GetCloudBucketMounts()) > 0:
		return status.Error(codes.Unimplemented, "the local Modal has no cloud bucket mounts")
	case d.GetProxyId() != "":
		return status.Error(codes.Unimplemented, "the local Modal has no proxies")
	}
	return nil
}

// reserve takes the name, or finds the sandbox of an earlier call with the same
// idempotency key.
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
	// Creation times are unique, because listing pages by them, and coarse enough
	// to survive as seconds in a float64.
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

// forget undoes reserve for a sandbox that could not be started.
func (s *Server) forget(sb *sandbox) {
	r := sb.record()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, r.ID)
	delete(s.tasks, r.TaskID)
	delete(s.byKey, r.IdempotencyKey)
}

// running returns the sandbox that has the name. The caller holds s.mu.
func (s *Server) running(appID, name string) *sandbox {
	for _, sb := range s.sandboxes {
		if r := sb.record(); r.AppID == appID && r.Name == name && !sb.over() {
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

func (s *Server) start(ctx context.Context, sb *sandbox, d *pb.Sandbox, mounts []wire.Mount) error {
	r := sb.record()
	_, h, err := s.holdImage(r.ImageID)
	defer h.release()
	if err != nil { // deleted since we looked, its layers perhaps too
		return err
	}
	if missing := s.runtime.Missing(r.Root.Layers); missing != "" {
		return status.Errorf(codes.DataLoss, "image %s is damaged: layer %s is missing", r.ImageID, missing)
	}
	recorded := make(chan error, 1)
	go func() { recorded <- s.records.sandboxes.Put(r.ID, r) }()
	bx, err := s.runtime.Start(ctx, box.Spec{
		ID: r.ID, Layers: r.Root.Layers, Workdir: r.Root.Workdir, Mounts: mounts,
		BlockNetwork: d.GetNetworkAccess().GetNetworkAccessType() == pb.NetworkAccess_BLOCKED,
		Limits:       askedLimits(d.GetResources()),
	})
	if err = errors.Join(err, <-recorded); err == nil {
		sb.task = task.New(task.Options{Box: bx, Env: sb.env, Workdir: r.Root.Workdir, Scratch: s.scratch()})
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

// askedLimits are the limits that a create asks for. What it only wants to be sure of, without a maximum,
// is not reserved here.
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
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	sb.entry = entry
	return nil
}
