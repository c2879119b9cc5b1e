package modalsandbox

import (
	"context"
	"strings"

	modal "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context, tags map[string]string) ([]driver.Listing, error) {
	app, err := d.application(ctx)
	if err != nil {
		return nil, fault("list", "", err)
	}
	seen := listing{}
	ctx = context.WithValue(ctx, listingKey{}, seen)
	found, err := d.client.Sandboxes.List(ctx, &modal.SandboxListParams{
		AppID: app.AppID, Tags: tags, Environment: d.cfg.Environment,
	})
	if err != nil {
		return nil, fault("list", "", err)
	}
	var list []driver.Listing
	for sb, err := range found {
		if err != nil {
			return nil, fault("list", "", err)
		}
		l := driver.Listing{ID: sb.SandboxID}
		if info := seen[sb.SandboxID]; info != nil {
			l.Name, l.Tags = info.GetName(), map[string]string{}
			for _, t := range info.GetTags() {
				l.Tags[t.GetTagName()] = t.GetTagValue()
			}
		}
		if len(l.Tags) == 0 { // the server has them for a separate call
			l.Tags, err = sb.GetTags(ctx, nil)
			switch classify(err) {
			case driver.Gone:
				continue // it ended meanwhile
			default:
				if err != nil {
					return nil, fault("read tags", sb.SandboxID, err)
				}
			}
		}
		list = append(list, l)
	}
	return list, nil
}

// listing collects what the answers to a listing say of each sandbox. It belongs
// to the one goroutine that lists.
type listing map[string]*pb.SandboxInfo

type listingKey struct{}

// readListing reads the answers to a listing as they pass. The SDK's iterator
// keeps only the ids.
func readListing(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	seen, ok := ctx.Value(listingKey{}).(listing)
	if !ok || err != nil || !strings.HasSuffix(method, "/SandboxListV2") {
		return err
	}
	if answer, ok := reply.(*pb.SandboxListResponse); ok {
		for _, info := range answer.GetSandboxes() {
			seen[info.GetId()] = info
		}
	}
	return nil
}
