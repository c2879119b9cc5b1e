package router

import (
	"context"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TaskSnapshotFilesystem makes an image of the sandbox's root.
func (r *Router) TaskSnapshotFilesystem(ctx context.Context, q *pb.TaskSnapshotFilesystemRequest) (*pb.TaskSnapshotFilesystemResponse, error) {
	ttl, err := lifetime(q.GetTtlSeconds())
	if err != nil {
		return nil, err
	}
	id, err := r.backend.Snapshot(ctx, SnapshotRequest{TaskID: q.GetTaskId(), Key: q.GetSnapshotId(), TTL: ttl})
	if err != nil {
		return nil, statusOf(err)
	}
	return pb.TaskSnapshotFilesystemResponse_builder{ImageId: id}.Build(), nil
}

// TaskSnapshotDirectory makes an image of one directory.
func (r *Router) TaskSnapshotDirectory(ctx context.Context, q *pb.TaskSnapshotDirectoryRequest) (*pb.TaskSnapshotDirectoryResponse, error) {
	ttl, err := lifetime(q.GetTtlSeconds())
	if err != nil {
		return nil, err
	}
	if len(q.GetPath()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "path is empty")
	}
	id, err := r.backend.Snapshot(ctx, SnapshotRequest{
		TaskID: q.GetTaskId(), Key: q.GetSnapshotId(), TTL: ttl, Directory: string(q.GetPath()),
	})
	if err != nil {
		return nil, statusOf(err)
	}
	return pb.TaskSnapshotDirectoryResponse_builder{ImageId: id}.Build(), nil
}

// lifetime converts the client's ttl: seconds, or -1 for forever.
func lifetime(seconds int64) (time.Duration, error) {
	switch {
	case seconds == -1:
		return 0, nil
	case seconds > 0:
		return time.Duration(seconds) * time.Second, nil
	default:
		return 0, status.Error(codes.InvalidArgument, "ttl_seconds must be positive, or -1 for no expiry")
	}
}

// TaskMountDirectory mounts an image over a directory of the sandbox.
func (r *Router) TaskMountDirectory(ctx context.Context, q *pb.TaskMountDirectoryRequest) (*emptypb.Empty, error) {
	if err := r.backend.Mount(ctx, q.GetTaskId(), string(q.GetPath()), q.GetImageId()); err != nil {
		return nil, statusOf(err)
	}
	return &emptypb.Empty{}, nil
}

// TaskUnmountDirectory reverses TaskMountDirectory.
func (r *Router) TaskUnmountDirectory(ctx context.Context, q *pb.TaskUnmountDirectoryRequest) (*emptypb.Empty, error) {
	t, err := r.use(ctx, q.GetTaskId())
	if err != nil {
		return nil, err
	}
	if err := t.Box.Unmount(string(q.GetPath())); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &emptypb.Empty{}, nil
}

// TaskReloadVolumes does nothing: volumes are directories of this machine.
func (r *Router) TaskReloadVolumes(ctx context.Context, q *pb.TaskReloadVolumesRequest) (*pb.TaskReloadVolumesResponse, error) {
	if _, err := r.use(ctx, q.GetTaskId()); err != nil {
		return nil, err
	}
	return &pb.TaskReloadVolumesResponse{}, nil
}
