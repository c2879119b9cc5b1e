package localmodal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// A volume is a directory of this machine, mounted into every sandbox that requests it: changes are
// immediately visible to the others. Commit and reload are no-ops.

func (s *Server) volumePath(id string) string { return filepath.Join(s.dataDir, "volumes", id) }

// VolumeGetOrCreate finds a volume by name, or creates it if requested.
func (s *Server) VolumeGetOrCreate(_ context.Context, q *pb.VolumeGetOrCreateRequest) (*pb.VolumeGetOrCreateResponse, error) {
	s.naming.Lock()
	defer s.naming.Unlock()
	name, env := q.GetDeploymentName(), environment(q.GetEnvironmentName())
	kind := q.GetObjectCreationType()
	ephemeral := kind == pb.ObjectCreationType_OBJECT_CREATION_TYPE_EPHEMERAL
	if !ephemeral {
		known, ok := s.records.volumes.Find(func(v volumeRecord) bool { return v.Name == name && v.Environment == env })
		if ok {
			return pb.VolumeGetOrCreateResponse_builder{VolumeId: known.ID}.Build(), nil
		}
		if kind != pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING {
			return nil, status.Errorf(codes.NotFound, "volume %q not found", name)
		}
	}
	v := volumeRecord{ID: newID("vo"), Name: name, Environment: env}
	err := os.MkdirAll(s.volumePath(v.ID), 0o755) // visible to sandboxes; its parent is private
	if err == nil {
		err = s.runtime.Adopt(s.volumePath(v.ID))
	}
	if err == nil {
		err = s.records.volumes.Put(v.ID, v)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return pb.VolumeGetOrCreateResponse_builder{VolumeId: v.ID}.Build(), nil
}

// VolumeHeartbeat keeps an ephemeral volume alive, which requires no action here.
func (s *Server) VolumeHeartbeat(context.Context, *pb.VolumeHeartbeatRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// VolumeDelete removes a volume with its files.
func (s *Server) VolumeDelete(_ context.Context, q *pb.VolumeDeleteRequest) (*emptypb.Empty, error) {
	if _, ok := s.records.volumes.Get(q.GetVolumeId()); !ok {
		return nil, status.Errorf(codes.NotFound, "volume %s not found", q.GetVolumeId())
	}
	if err := errors.Join(s.records.volumes.Delete(q.GetVolumeId()), os.RemoveAll(s.volumePath(q.GetVolumeId()))); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &emptypb.Empty{}, nil
}

func (s *Server) volumeMounts(mounts []*pb.VolumeMount) ([]wire.Mount, error) {
	var out []wire.Mount
	for _, m := range mounts {
		if _, ok := s.records.volumes.Get(m.GetVolumeId()); !ok {
			return nil, status.Errorf(codes.NotFound, "volume %s not found", m.GetVolumeId())
		}
		sub := filepath.Join("/", m.GetSubPath()) // cannot leave the volume
		if err := s.makeBelow(s.volumePath(m.GetVolumeId()), sub); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "volume %s: %v", m.GetVolumeId(), err)
		}
		out = append(out, wire.Mount{
			Source: s.volumePath(m.GetVolumeId()), Sub: strings.TrimPrefix(sub, "/"), Target: m.GetMountPath(), ReadOnly: m.GetReadOnly(),
		})
	}
	return out, nil
}

// makeBelow creates a directory inside root. It refuses symbolic links, with which sandboxes could
// redirect it outside the root.
func (s *Server) makeBelow(root, sub string) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	return errors.Join(s.makeIn(r, sub), r.Close())
}

func (s *Server) makeIn(r *os.Root, sub string) error {
	path := "."
	for part := range strings.SplitSeq(strings.Trim(sub, "/"), "/") {
		if part == "" {
			continue
		}
		path = filepath.Join(path, part)
		err := r.Mkdir(path, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if uid, gid := s.runtime.Owner(); err == nil && uid >= 0 {
			err = r.Lchown(path, uid, gid)
		}
		if err != nil {
			return err
		}
	}
	info, err := r.Stat(path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", sub)
	}
	return err
}
