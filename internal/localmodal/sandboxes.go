package localmodal

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pageSize is the number of sandboxes in one response.
const pageSize = 100

// sandbox returns a sandbox that has been started, running or not.
func (s *Server) sandbox(ctx context.Context, id string) (*sandbox, error) {
	s.mu.Lock()
	sb := s.sandboxes[id]
	s.mu.Unlock()
	if sb == nil {
		return nil, status.Errorf(codes.NotFound, "sandbox %s not found", id)
	}
	return sb, s.await(ctx, sb)
}

// snapshotOfSandboxes returns all current sandboxes.
func (s *Server) snapshotOfSandboxes() []*sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*sandbox, 0, len(s.sandboxes))
	for _, sb := range s.sandboxes {
		all = append(all, sb)
	}
	return all
}

func (s *Server) routerAccess(sb *sandbox) (*pb.CommandRouterAccess, error) {
	token, err := s.signer.issue(routerSubject+sb.record().TaskID, routerTokenLife)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return pb.CommandRouterAccess_builder{Jwt: token, Url: s.routerURL()}.Build(), nil
}

// SandboxGetCommandRouterAccess returns the address and the token for access to the inside of a
// sandbox.
func (s *Server) SandboxGetCommandRouterAccess(ctx context.Context, q *pb.SandboxGetCommandRouterAccessRequest) (*pb.SandboxGetCommandRouterAccessResponse, error) {
	sb, err := s.sandbox(ctx, q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	access, err := s.routerAccess(sb)
	if err != nil {
		return nil, err
	}
	return pb.SandboxGetCommandRouterAccessResponse_builder{Jwt: access.GetJwt(), Url: access.GetUrl()}.Build(), nil
}

// TaskGetCommandRouterAccess renews such a token.
func (s *Server) TaskGetCommandRouterAccess(ctx context.Context, q *pb.TaskGetCommandRouterAccessRequest) (*pb.TaskGetCommandRouterAccessResponse, error) {
	sb, err := s.byTask(ctx, q.GetTaskId())
	if err != nil {
		return nil, err
	}
	access, err := s.routerAccess(sb)
	if err != nil {
		return nil, err
	}
	return pb.TaskGetCommandRouterAccessResponse_builder{Jwt: access.GetJwt(), Url: access.GetUrl()}.Build(), nil
}

// SandboxGetTaskIdV2 returns the task of a sandbox.
func (s *Server) SandboxGetTaskIdV2(ctx context.Context, q *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) {
	sb, err := s.sandbox(ctx, q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if result := sb.result(); result != nil {
		return pb.SandboxGetTaskIdResponse_builder{TaskResult: result}.Build(), nil
	}
	return pb.SandboxGetTaskIdResponse_builder{TaskId: new(sb.record().TaskID)}.Build(), nil
}

// endingTime is how long a query waits for the end of a sandbox that is ending, in seconds.
const endingTime = 5

// SandboxWaitV2 waits for the end, at most for the given time; without one it polls. It does not
// report a sandbox as running while its processes are being killed, unless that takes longer than
// endingTime.
func (s *Server) SandboxWaitV2(ctx context.Context, q *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	sb, err := s.sandbox(ctx, q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	timeout := q.GetTimeout()
	if sb.isEnding() {
		timeout = max(timeout, endingTime)
	}
	if err := waitDone(ctx, sb, timeout); err != nil && !errors.Is(err, errStillRunning) {
		return nil, err
	}
	result := sb.result()
	return pb.SandboxWaitResponse_builder{
		Result:   result,
		Metadata: pb.SandboxHandleMetadata_builder{AppId: sb.record().AppID, Result: result}.Build(),
	}.Build(), nil
}

var errStillRunning = errors.New("sandbox still runs")

// waitDone waits for so many seconds.
func waitDone(ctx context.Context, sb *sandbox, seconds float32) error {
	return waitFor(ctx, sb.done, seconds)
}

func waitFor(ctx context.Context, done <-chan struct{}, seconds float32) error {
	timer := time.NewTimer(time.Duration(float64(seconds) * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-timer.C:
		return errStillRunning
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// SandboxTerminateV2 kills a sandbox; it does not change one that has ended.
func (s *Server) SandboxTerminateV2(ctx context.Context, q *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	sb, err := s.sandbox(ctx, q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	before := sb.result()
	if before == nil {
		sb.finish(ctx, pb.GenericResult_GENERIC_STATUS_TERMINATED, exitTerminated)
	}
	return pb.SandboxTerminateResponse_builder{ExistingResult: before}.Build(), nil
}

// SandboxListV2 lists sandboxes newest first, before a time if one is given.
func (s *Server) SandboxListV2(_ context.Context, q *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	env := environment(q.GetEnvironmentName())
	var found []sandboxRecord
	for _, sb := range s.snapshotOfSandboxes() {
		r := sb.record()
		if s.matches(q, env, r) && (q.GetIncludeFinished() || !sb.ended()) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b sandboxRecord) int { return b.Created.Compare(a.Created) })
	found = found[:min(len(found), pageSize)]
	infos := make([]*pb.SandboxInfo, 0, len(found))
	for _, r := range found {
		infos = append(infos, pb.SandboxInfo_builder{
			Id: r.ID, AppId: r.AppID, Name: r.Name, ImageId: r.ImageID, CreatedAt: seconds(r.Created),
			Tags: tagList(r.Tags), TimeoutSecs: uint32(r.Timeout.Seconds()), TaskInfo: pb.TaskInfo_builder{Id: r.TaskID}.Build(),
		}.Build())
	}
	return pb.SandboxListResponse_builder{Sandboxes: infos}.Build(), nil
}

func (s *Server) matches(q *pb.SandboxListRequest, env string, r sandboxRecord) bool {
	if q.GetAppId() != "" && r.AppID != q.GetAppId() {
		return false
	}
	if app, ok := s.records.apps.Get(r.AppID); q.GetAppId() == "" && ok && app.Environment != env {
		return false
	}
	// Strictly before: the SDK continues from the last sandbox that it received.
	if before := q.GetBeforeTimestamp(); before > 0 && seconds(r.Created) >= before {
		return false
	}
	for name, value := range tagMap(q.GetTags()) {
		if got, ok := r.Tags[name]; !ok || got != value {
			return false
		}
	}
	return true
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// SandboxGetFromNameV2 finds the running sandbox with that name, or the last one that had it.
func (s *Server) SandboxGetFromNameV2(ctx context.Context, q *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	notFound := status.Errorf(codes.NotFound, "sandbox %q not found", q.GetSandboxName())
	app, ok := s.app(q.GetEnvironmentName(), q.GetAppName())
	if !ok {
		return nil, notFound
	}
	s.mu.Lock()
	sb := s.running(app.ID, q.GetSandboxName())
	if sb == nil && q.GetIncludeTerminated() {
		sb = s.latest(app.ID, q.GetSandboxName())
	}
	s.mu.Unlock()
	if sb == nil || s.await(ctx, sb) != nil {
		return nil, notFound
	}
	return pb.SandboxGetFromNameResponse_builder{SandboxId: sb.record().ID}.Build(), nil
}

// SandboxGetFromName is the SDK's fallback if SandboxGetFromNameV2 finds no sandbox: it finds
// sandboxes of the old backend, which this server never has.
func (s *Server) SandboxGetFromName(_ context.Context, q *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return nil, status.Errorf(codes.NotFound, "sandbox %q not found", q.GetSandboxName())
}

// latest returns the newest sandbox with that name. The caller holds s.mu.
func (s *Server) latest(appID, name string) *sandbox {
	var best *sandbox
	for _, sb := range s.sandboxes {
		r := sb.record()
		if r.AppID == appID && r.Name == name && (best == nil || r.Created.After(best.record().Created)) {
			best = sb
		}
	}
	return best
}

// SandboxSetName names a sandbox that does not have a name yet.
func (s *Server) SandboxSetName(ctx context.Context, q *pb.SandboxSetNameRequest) (*pb.SandboxSetNameResponse, error) {
	sb, err := s.sandbox(ctx, q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := sb.record()
	if sb.ended() || r.Name != "" && r.Name != q.GetName() {
		return nil, status.Error(codes.FailedPrecondition, "the sandbox has a name already, or has ended")
	}
	if other := s.running(r.AppID, q.GetName()); other != nil && other != sb {
		return nil, status.Errorf(codes.AlreadyExists, "a sandbox named %q is running in this app", q.GetName())
	}
	if err := sb.update(func(r *sandboxRecord) { r.Name = q.GetName() }); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &pb.SandboxSetNameResponse{}, nil
}
