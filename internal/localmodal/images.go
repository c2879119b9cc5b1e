package localmodal

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
)

// image returns an image that has not expired, or codes.NotFound.
func (s *Server) image(id string) (imageRecord, error) {
	im, ok := s.records.images.Get(id)
	if !ok || im.expired(time.Now()) {
		return imageRecord{}, status.Errorf(codes.NotFound, "image %s not found", id)
	}
	return im, nil
}

// ImageGetOrCreate builds an image, unless the same recipe has been built before.
// Every registry image is the base made from this machine.
func (s *Server) ImageGetOrCreate(ctx context.Context, q *pb.ImageGetOrCreateRequest) (*pb.ImageGetOrCreateResponse, error) {
	definition := q.GetImage()
	parent, h := imageRecord{Root: root{Layers: []string{box.BaseLayer}}}, s.holdNothing()
	defer func() { h.release() }()
	if bases := definition.GetBaseImages(); len(bases) > 0 {
		var err error
		if parent, h, err = s.holdImage(bases[0].GetImageId()); err != nil {
			return nil, err
		}
		if parent.Archive != "" {
			return nil, status.Error(codes.InvalidArgument, "an image of a directory cannot be built upon")
		}
	}
	env, err := s.secretsEnv(definition.GetSecretIds())
	if err != nil {
		return nil, err
	}
	recipe := recipeOf(parent.ID, definition.GetDockerfileCommands(), env)
	defer s.recipes.lock(recipe)() // concurrent requests for the same recipe get the same image
	known, ok := s.records.images.Find(func(i imageRecord) bool { return i.Recipe == recipe })
	if ok && !q.GetForceBuild() && !q.GetIgnoreCache() {
		return built(known.ID), nil
	}
	im, err := s.build(ctx, h, parent, definition.GetDockerfileCommands(), env)
	var failed *buildError
	if errors.As(err, &failed) {
		return pb.ImageGetOrCreateResponse_builder{
			ImageId: newID("im"),
			Result: pb.GenericResult_builder{
				Status: pb.GenericResult_GENERIC_STATUS_FAILURE, Exception: failed.Error(),
			}.Build(),
		}.Build(), nil
	}
	if err != nil {
		return nil, statusOf(err)
	}
	if ok { // later requests find the new image
		known.Recipe = ""
		if err := s.records.images.Put(known.ID, known); err != nil {
			return nil, statusOf(err)
		}
	}
	im.Recipe = recipe
	if err := s.records.images.Put(im.ID, im); err != nil {
		return nil, statusOf(err)
	}
	return built(im.ID), nil
}

func built(id string) *pb.ImageGetOrCreateResponse {
	return pb.ImageGetOrCreateResponse_builder{
		ImageId:  id,
		Result:   pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build(),
		Metadata: pb.ImageMetadata_builder{}.Build(),
	}.Build()
}

// ImageFromId reports whether an image exists.
func (s *Server) ImageFromId(_ context.Context, q *pb.ImageFromIdRequest) (*pb.ImageFromIdResponse, error) {
	im, err := s.image(q.GetImageId())
	if err != nil {
		return nil, err
	}
	return pb.ImageFromIdResponse_builder{ImageId: im.ID}.Build(), nil
}

// ImageDelete deletes an image. Sandboxes that use it keep running.
func (s *Server) ImageDelete(ctx context.Context, q *pb.ImageDeleteRequest) (*emptypb.Empty, error) {
	im, err := s.image(q.GetImageId())
	if err != nil {
		return nil, err
	}
	if err := s.records.images.Delete(im.ID); err != nil {
		return nil, statusOf(err)
	}
	s.collect(ctx)
	return &emptypb.Empty{}, nil
}

// ImagePublish gives an image a name, which another image may lose.
func (s *Server) ImagePublish(_ context.Context, q *pb.ImagePublishRequest) (*pb.ImagePublishResponse, error) {
	im, err := s.image(q.GetImageId())
	if err != nil {
		return nil, err
	}
	tag := tagRecord{Name: q.GetTag(), Environment: environment(q.GetEnvironmentName()), ImageID: im.ID}
	if err := s.records.tags.Put(tagKey(tag.Environment, tag.Name), tag); err != nil {
		return nil, statusOf(err)
	}
	return &pb.ImagePublishResponse{}, nil
}

// ImageGetByTag finds an image by its published name.
func (s *Server) ImageGetByTag(_ context.Context, q *pb.ImageGetByTagRequest) (*pb.ImageGetByTagResponse, error) {
	tag, ok := s.records.tags.Get(tagKey(environment(q.GetEnvironmentName()), q.GetTag()))
	if !ok {
		return nil, status.Errorf(codes.NotFound, "image %q not found", q.GetTag())
	}
	im, err := s.image(tag.ImageID)
	if err != nil {
		return nil, err
	}
	return pb.ImageGetByTagResponse_builder{ImageId: im.ID}.Build(), nil
}

func tagKey(env, name string) string { return env + "/" + name }

// collect deletes unused data: expired images, and layers and archives that no image and no sandbox
// uses.
func (s *Server) collect(ctx context.Context) {
	s.layers.mu.Lock()
	defer s.layers.mu.Unlock()
	if err := s.collectLocked(); err != nil {
		s.logger.LogAttrs(ctx, slog.LevelWarn, "unused images could not all be deleted", slog.Any("error", err))
	}
}

func (s *Server) collectLocked() error {
	var failures []error
	used, archives, now := map[string]bool{}, map[string]bool{}, time.Now()
	for _, im := range s.records.images.All() {
		if im.expired(now) {
			failures = append(failures, s.records.images.Delete(im.ID))
			continue
		}
		for _, l := range im.Root.Layers {
			used[l] = true
		}
		archives[im.Archive] = true
	}
	for name := range s.layers.held {
		used[name], archives[name] = true, true
	}
	for _, sb := range s.snapshotOfSandboxes() {
		if r := sb.record(); !r.ended() {
			for _, l := range r.Root.Layers {
				used[l] = true
			}
		}
	}
	layers, err := s.runtime.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		if !used[l] {
			failures = append(failures, s.runtime.RemoveLayer(l))
		}
	}
	failures = append(failures, s.removeArchives(archives))
	return errors.Join(failures...)
}

// derive returns the record of an image whose root is layer on top of r. The caller holds all these
// layers until the record is stored.
func (s *Server) derive(ctx context.Context, h *hold, r root, layer string) (imageRecord, error) {
	layers := append([]string{layer}, r.Layers...)
	if len(layers) > box.MaxLayers {
		merged := h.newLayer()
		if err := s.runtime.Merge(ctx, layers[:len(layers)-1], merged); err != nil {
			return imageRecord{}, err
		}
		layers = []string{merged, layers[len(layers)-1]}
	}
	return imageRecord{
		ID:   newID("im"),
		Root: root{Layers: slices.Clip(layers), Env: maps.Clone(r.Env), Workdir: r.Workdir},

		Created: time.Now(),
	}, nil
}
