package localmodal

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Modal's protocol cannot list images, so this server has an additional service for it. Package
// modalsandbox calls it over the SDK's connection. Request and response are JSON.
const (
	imageService  = "overwinter.localmodal.Images"
	imageList     = "ImageListAll"
	imageListPage = 1000
)

type imageListRequest struct {
	Tags  map[string]string `json:"tags"`  // selects images of sandboxes with all of these tags
	After string            `json:"after"` // the last id of the previous page
}

type imageListAnswer struct {
	Images []listedImage `json:"images"`
	Next   string        `json:"next,omitempty"`
}

type listedImage struct {
	ID      string            `json:"id"`
	Created time.Time         `json:"created"`
	Tags    map[string]string `json:"tags"`
	Exit    bool              `json:"exit,omitempty"`
}

// imageLister is the server's interface for the service.
type imageLister interface {
	listImages(q imageListRequest) imageListAnswer
}

var imageServiceDesc = grpc.ServiceDesc{
	ServiceName: imageService,
	HandlerType: (*imageLister)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: imageList, Handler: handleImageList}},
}

func handleImageList(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // gRPC defines the order
	var in wrapperspb.BytesValue
	if err := decode(&in); err != nil {
		return nil, err
	}
	handle := func(_ context.Context, request any) (any, error) {
		var q imageListRequest
		if err := json.Unmarshal(request.(*wrapperspb.BytesValue).GetValue(), &q); err != nil { // decoded above
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		answer, err := json.Marshal(srv.(imageLister).listImages(q)) // registered with this type
		return wrapperspb.Bytes(answer), err
	}
	return intercept(ctx, &in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + imageService + "/" + imageList}, handle)
}

func (s *Server) listImages(q imageListRequest) imageListAnswer {
	now := time.Now()
	found := []listedImage{}
	for _, im := range s.records.images.All() {
		if im.ID > q.After && im.Tags != nil && !im.expired(now) && hasTags(im.Tags, q.Tags) {
			found = append(found, listedImage{ID: im.ID, Created: im.Created, Tags: im.Tags, Exit: im.Exit})
		}
	}
	slices.SortFunc(found, func(a, b listedImage) int { return cmp.Compare(a.ID, b.ID) })
	if len(found) <= imageListPage {
		return imageListAnswer{Images: found}
	}
	return imageListAnswer{Images: found[:imageListPage], Next: found[imageListPage-1].ID}
}

// hasTags reports whether tags contains all of want.
func hasTags(tags, want map[string]string) bool {
	for name, value := range want {
		if got, ok := tags[name]; !ok || got != value {
			return false
		}
	}
	return true
}
