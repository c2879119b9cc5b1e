package localmodal

import (
	"context"
	"maps"
	"slices"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// SandboxTagsSetV2 replaces a sandbox's tags.
func (s *Server) SandboxTagsSetV2(ctx context.Context, q *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	sb, err := s.sandbox(ctx, q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if err := sb.setTags(tagMap(q.GetTags())); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &emptypb.Empty{}, nil
}

// SandboxTagsGetV2 returns a sandbox's tags.
func (s *Server) SandboxTagsGetV2(ctx context.Context, q *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	sb, err := s.sandbox(ctx, q.GetSandboxId())
	if err != nil {
		return nil, err
	}
	return pb.SandboxTagsGetResponse_builder{Tags: tagList(sb.record().Tags)}.Build(), nil
}

func tagMap(tags []*pb.SandboxTag) map[string]string {
	m := map[string]string{}
	for _, t := range tags {
		m[t.GetTagName()] = t.GetTagValue()
	}
	return m
}

func tagList(tags map[string]string) []*pb.SandboxTag {
	list := make([]*pb.SandboxTag, 0, len(tags))
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, pb.SandboxTag_builder{TagName: name, TagValue: tags[name]}.Build())
	}
	return list
}
