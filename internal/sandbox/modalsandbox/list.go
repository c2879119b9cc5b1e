package modalsandbox

import (
	"context"
	"iter"
	"strings"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context, tags map[string]string) iter.Seq2[driver.Listing, error] {
	return func(yield func(driver.Listing, error) bool) {
		if err := d.list(ctx, tags, yield); err != nil {
			yield(driver.Listing{}, err)
		}
	}
}

func (d *Driver) list(ctx context.Context, tags map[string]string, yield func(driver.Listing, error) bool) error {
	app, err := d.application(ctx)
	if err != nil {
		return fault("list", "", err)
	}
	page := &listing{timeout: d.cfg.PageTimeout, infos: map[string]*pb.SandboxInfo{}}
	ctx = context.WithValue(ctx, listingKey{}, page)
	found, err := d.client.Sandboxes.List(ctx, &modal.SandboxListParams{
		AppID: app.AppID, Tags: tags, Environment: d.cfg.Environment,
	})
	if err != nil {
		return fault("list", "", err)
	}
	for sb, err := range found {
		if err != nil {
			return fault("list", "", err)
		}
		l := driver.Listing{ID: sb.SandboxID}
		if info := page.infos[sb.SandboxID]; info != nil {
			l.Name, l.Tags = info.GetName(), map[string]string{}
			for _, t := range info.GetTags() {
				l.Tags[t.GetTagName()] = t.GetTagValue()
			}
		}
		if len(l.Tags) == 0 { // the server returns them with a separate call
			l.Tags, err = sb.GetTags(ctx, nil)
			switch classify(err) {
			case driver.Gone:
				continue // it ended meanwhile
			default:
				if err != nil {
					return fault("read tags", sb.SandboxID, err)
				}
			}
		}
		if !yield(l, nil) {
			return nil
		}
	}
	return nil
}

// listing contains the fields of the last page by sandbox. It is used only by the goroutine that
// lists.
type listing struct {
	timeout time.Duration
	infos   map[string]*pb.SandboxInfo
}

type listingKey struct{}

// readListing intercepts the responses to a listing. The SDK's iterator keeps only the ids.
func readListing(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	page, ok := ctx.Value(listingKey{}).(*listing)
	if !ok || !strings.HasSuffix(method, "/SandboxListV2") {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	ctx, cancel := context.WithTimeout(ctx, page.timeout)
	defer cancel()
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return err
	}
	if answer, ok := reply.(*pb.SandboxListResponse); ok {
		clear(page.infos)
		for _, info := range answer.GetSandboxes() {
			page.infos[info.GetId()] = info
		}
	}
	return nil
}
