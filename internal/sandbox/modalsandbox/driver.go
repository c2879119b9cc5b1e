package modalsandbox

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// maxHandles bounds the cached handles. An evicted handle is created again from its id.
const maxHandles = 4096

// Driver creates sandboxes at Modal.
type Driver struct {
	cfg    Config
	client *modal.Client
	// isolation is what a server on this machine has reported.
	isolation atomic.Pointer[string]
	conn      atomic.Pointer[grpc.ClientConn] // the SDK's connection to the control plane
	hostPorts atomic.Pointer[hostports.Set]   // host ports of sandboxes with a separate network, else nil

	mu      sync.Mutex
	app     *modal.App // nil until it was looked up
	handles map[string]*modal.Sandbox
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Expirer = (*Driver)(nil)
)

// New returns a driver. It connects with the first call.
func New(c Config) (*Driver, error) {
	if err := c.complete(); err != nil {
		return nil, driver.Errorf(driver.Invalid, "configure modal", "", "%w", err)
	}
	d := &Driver{cfg: c, handles: map[string]*modal.Sandbox{}}
	client, err := newClient(c, func(word string) { d.isolation.Store(&word) }, func(conn *grpc.ClientConn) { d.conn.Store(conn) }, d.hostPorts.Store)
	if err != nil {
		return nil, fault("configure modal", "", err)
	}
	d.client = client
	return d, nil
}

// Close closes the connections. Sandboxes continue to run.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, sb := range d.handles {
		_ = sb.Detach() // closes its connection
		delete(d.handles, id)
	}
	d.client.Close()
	return nil
}

// Describe implements driver.Driver.
func (d *Driver) Describe() driver.Description {
	isolation := d.cfg.Isolation
	switch known := d.isolation.Load(); {
	case isolation != "":
	case !d.cfg.local:
		isolation = "gvisor"
	case known != nil:
		isolation = *known
	default:
		isolation = "local"
	}
	return driver.Description{Driver: "modal", Isolation: isolation}
}

// application looks up the App, once.
func (d *Driver) application(ctx context.Context) (*modal.App, error) {
	d.mu.Lock()
	app := d.app
	d.mu.Unlock()
	if app != nil {
		return app, nil
	}
	app, err := d.client.Apps.FromName(ctx, d.cfg.AppName, &modal.AppFromNameParams{
		Environment: d.cfg.Environment, CreateIfMissing: true,
	})
	if err != nil {
		return nil, fmt.Errorf("look up app %s: %w", d.cfg.AppName, err)
	}
	d.mu.Lock()
	d.app = app
	d.mu.Unlock()
	return app, nil
}

// handle returns the shared handle of a sandbox.
func (d *Driver) handle(ctx context.Context, id string) (*modal.Sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if sb := d.handles[id]; sb != nil {
		return sb, nil
	}
	sb, err := d.client.Sandboxes.FromID(ctx, id, nil)
	if err == nil {
		d.keep(sb)
	}
	return sb, err
}

// keep must be called with mu held. An evicted handle may be in use by processes; its connection
// closes by itself when it is idle.
func (d *Driver) keep(sb *modal.Sandbox) {
	for id := range d.handles {
		if len(d.handles) < maxHandles {
			break
		}
		delete(d.handles, id)
	}
	d.handles[sb.SandboxID] = sb
}

// drop releases the handle of a sandbox that has ended. Calls that use it continue.
func (d *Driver) drop(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if sb := d.handles[id]; sb != nil {
		_ = sb.Detach() // closes its connection
		delete(d.handles, id)
	}
}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, r driver.CreateRequest) (string, error) {
	app, err := d.application(ctx)
	if err != nil {
		return "", fault("create", r.Name, err)
	}
	image, err := d.image(ctx, r.Image)
	if err != nil {
		return "", fault("create", r.Name, err)
	}
	sb, err := d.client.Sandboxes.Create(ctx, app, image, &modal.SandboxCreateParams{
		Name:    r.Name,
		Tags:    r.Tags,
		Command: r.Command,
		Env:     r.Env,
		Workdir: r.Workdir,
		Timeout: r.Timeout,

		ExperimentalOptions: map[string]any{"enable_exit_snapshot": r.ExitSnapshot},
	})
	if err != nil {
		return "", fault("create", r.Name, err)
	}
	d.mu.Lock()
	d.keep(sb)
	d.mu.Unlock()
	return sb.SandboxID, nil
}

// image returns an image by id, or one in a registry by tag.
func (d *Driver) image(ctx context.Context, image string) (*modal.Image, error) {
	if strings.HasPrefix(image, "im-") {
		return d.client.Images.FromID(ctx, image, nil)
	}
	return d.client.Images.FromRegistry(image, nil), nil
}

// Lookup implements driver.Driver.
func (d *Driver) Lookup(ctx context.Context, name string) (driver.Listing, error) {
	sb, err := d.client.Sandboxes.FromName(ctx, d.cfg.AppName, name, &modal.SandboxFromNameParams{Environment: d.cfg.Environment})
	if err != nil {
		return driver.Listing{}, fault("look up", name, err)
	}
	tags, err := sb.GetTags(ctx, nil)
	if err != nil {
		return driver.Listing{}, fault("read tags", sb.SandboxID, err)
	}
	return driver.Listing{ID: sb.SandboxID, Name: name, Tags: tags}, nil
}

// Poll implements driver.Driver.
func (d *Driver) Poll(ctx context.Context, id string) (driver.Status, error) {
	sb, err := d.handle(ctx, id)
	if err != nil {
		return driver.Status{}, fault("poll", id, err)
	}
	code, err := sb.Poll(ctx, nil)
	if err != nil {
		if classify(err) == driver.Gone {
			d.drop(id)
		}
		return driver.Status{}, fault("poll", id, err)
	}
	if code == nil {
		return driver.Status{Running: true}, nil
	}
	d.drop(id)
	status := driver.Status{ExitCode: *code}
	if d.cfg.local {
		status.Limit, status.Reason, err = d.limit(ctx, id, *code)
	}
	return status, fault("poll", id, err)
}

// limit returns which limit a sandbox of the local Modal exceeded, and a description of the reason.
// The SDK does not return the text of a result.
func (d *Driver) limit(ctx context.Context, id string, code int) (limit, reason string, err error) {
	switch code {
	case driver.ExitDisk:
		limit = "disk"
	case driver.ExitMemory:
		limit = "memory"
	case driver.ExitCPU:
		limit = "cpu"
	default:
		return "", "", nil
	}
	conn := d.conn.Load()
	if conn == nil {
		return "", "", driver.Errorf(driver.Unavailable, "poll", id, "there is no connection yet")
	}
	answer, err := pb.NewModalClientClient(conn).SandboxWaitV2(ctx, pb.SandboxWaitRequest_builder{SandboxId: id}.Build())
	if err != nil {
		return "", "", err
	}
	if reason = answer.GetResult().GetException(); reason == "" {
		return "", "", nil // its first process exited with that code
	}
	return limit, reason, nil
}

// Terminate implements driver.Driver.
func (d *Driver) Terminate(ctx context.Context, id string) error {
	sb, err := d.handle(ctx, id)
	if err != nil {
		return fault("terminate", id, err)
	}
	if _, err := sb.Terminate(ctx, &modal.SandboxTerminateParams{Wait: true}); err != nil {
		return fault("terminate", id, err)
	}
	d.drop(id)
	return nil
}

// Snapshot implements driver.Driver.
func (d *Driver) Snapshot(ctx context.Context, id string, budget time.Duration) (string, error) {
	return d.SnapshotFor(ctx, id, budget, modal.NoExpiryTTL)
}

// SnapshotFor implements driver.Expirer.
func (d *Driver) SnapshotFor(ctx context.Context, id string, budget, lifetime time.Duration) (string, error) {
	sb, err := d.handle(ctx, id)
	if err != nil {
		return "", fault("snapshot", id, err)
	}
	image, err := sb.SnapshotFilesystem(ctx, &modal.SandboxSnapshotFilesystemParams{Timeout: budget, TTL: lifetime})
	if err != nil {
		return "", insideFault("snapshot", id, err)
	}
	return image.ImageID, nil
}

// ExitSnapshot implements driver.Driver.
func (d *Driver) ExitSnapshot(ctx context.Context, id string, budget time.Duration) (string, error) {
	sb, err := d.handle(ctx, id)
	if err != nil {
		return "", fault("exit snapshot", id, err)
	}
	image, err := sb.ExperimentalGetExitSnapshot(ctx, &modal.SandboxExperimentalGetExitSnapshotParams{Timeout: &budget})
	if is[modal.InvalidError](err) { // the sandbox was created without requesting one
		return "", driver.Errorf(driver.Gone, "exit snapshot", id, "%w", err)
	}
	if err != nil {
		return "", fault("exit snapshot", id, err)
	}
	return image.ImageID, nil
}

// ImageExists implements driver.Driver.
func (d *Driver) ImageExists(ctx context.Context, imageID string) error {
	_, err := d.client.Images.FromID(ctx, imageID, nil)
	return fault("look up image", imageID, err)
}

// DeleteImage implements driver.Driver.
func (d *Driver) DeleteImage(ctx context.Context, imageID string) error {
	return fault("delete image", imageID, d.client.Images.Delete(ctx, imageID, nil))
}

// NameImage implements driver.Driver.
func (d *Driver) NameImage(ctx context.Context, imageID, name string) error {
	image, err := d.client.Images.FromID(ctx, imageID, nil)
	if err == nil {
		err = image.Publish(ctx, name, &modal.ImagePublishParams{Environment: d.cfg.Environment})
	}
	return fault("name image", imageID, err)
}

// ImageByName implements driver.Driver.
func (d *Driver) ImageByName(ctx context.Context, name string) (string, error) {
	image, err := d.client.Images.FromName(ctx, name, &modal.ImageFromNameParams{Environment: d.cfg.Environment})
	if err != nil {
		return "", fault("look up image", name, err)
	}
	return image.ImageID, nil
}
