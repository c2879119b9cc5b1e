package modalsandbox

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// imageListMethod lists images at a server on this machine; see package localmodal. Modal has no
// such call.
const imageListMethod = "/overwinter.localmodal.Images/ImageListAll"

var _ driver.ImageLister = (*Driver)(nil)

// ListImages implements driver.ImageLister.
func (d *Driver) ListImages(ctx context.Context, tags map[string]string) ([]driver.ImageListing, error) {
	const op = "list images"
	if _, err := d.application(ctx); err != nil { // from here on there is a connection
		return nil, fault(op, "", err)
	}
	conn := d.conn.Load()
	if d.isolation.Load() == nil || conn == nil {
		return nil, driver.Errorf(driver.Unsupported, op, "", "Modal has no list of images")
	}
	var list []driver.ImageListing
	for after := ""; ; {
		request, err := json.Marshal(map[string]any{"tags": tags, "after": after})
		if err != nil {
			return nil, fault(op, "", err)
		}
		var reply wrapperspb.BytesValue
		if err := conn.Invoke(ctx, imageListMethod, wrapperspb.Bytes(request), &reply); err != nil {
			return nil, fault(op, "", err)
		}
		var page struct {
			Images []struct {
				ID      string
				Created time.Time
				Tags    map[string]string
				Exit    bool
			}
			Next string
		}
		if err := json.Unmarshal(reply.GetValue(), &page); err != nil {
			return nil, fault(op, "", err)
		}
		for _, im := range page.Images {
			list = append(list, driver.ImageListing{ID: im.ID, Created: im.Created, Tags: im.Tags, Exit: im.Exit})
		}
		if page.Next == "" {
			return list, nil
		}
		after = page.Next
	}
}

// keepConn captures the connection of the SDK's calls, which adds the credentials to every call.
func keepConn(note func(*grpc.ClientConn)) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		note(conn)
		return invoke(ctx, method, request, reply, conn, o...)
	}
}
