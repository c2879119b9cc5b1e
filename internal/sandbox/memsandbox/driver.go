package memsandbox

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// Driver is a provider in memory. Close ends everything in it.
type Driver struct {
	mu        sync.Mutex
	sandboxes map[string]*instance
	images    map[string]files
	listings  map[string]driver.ImageListing // of images, by id
	names     map[string]string              // image id by name
	handlers  map[string]Handler
	faults    []*Fault
	calls     map[Op]int
	made      int
	closed    bool
	running   sync.WaitGroup // running processes
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.ImageLister = (*Driver)(nil)
)

// New returns a provider with no sandboxes and no commands.
func New() *Driver {
	return &Driver{
		sandboxes: map[string]*instance{}, images: map[string]files{}, listings: map[string]driver.ImageListing{}, names: map[string]string{},
		handlers: map[string]Handler{}, calls: map[Op]int{},
	}
}

// instance is a sandbox. Driver.mu guards its fields, except files, which have their own lock.
type instance struct {
	id, name   string
	tags       map[string]string
	env        map[string]string
	workdir    string
	files      *tree
	code       int // when ended
	ended      chan struct{}
	terminated bool
	life       *time.Timer
	keep       bool   // keep the files when it ends
	exit       string // image created at the end
}

// Describe implements driver.Driver.
func (d *Driver) Describe() driver.Description {
	return driver.Description{Driver: "memory", Isolation: "none"}
}

// Create implements driver.Driver. Any image that does not begin with "im-" is the tag of an empty
// image.
func (d *Driver) Create(ctx context.Context, r driver.CreateRequest) (string, error) {
	//nolint:contextcheck // a process outlives the call that starts it
	return call(ctx, d, OpCreate, r.Name, func() (string, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		image, known := d.images[r.Image]
		if !known && strings.HasPrefix(r.Image, "im-") {
			return "", driver.Errorf(driver.Gone, "create", r.Image, "no such image")
		}
		if b := d.byName(r.Name); b != nil {
			return "", driver.Errorf(driver.NameTaken, "create", r.Name, "%s has the name", b.id)
		}
		b := &instance{
			id: d.newID("sb"), name: r.Name, tags: maps.Clone(r.Tags), env: maps.Clone(r.Env), workdir: r.Workdir,
			files: &tree{files: maps.Clone(image)}, ended: make(chan struct{}), keep: r.ExitSnapshot,
		}
		if b.files.files == nil {
			b.files.files = files{}
		}
		b.life = time.AfterFunc(r.Timeout, func() { d.Kill(b.id, driver.ExitLifetime) })
		d.sandboxes[b.id] = b
		if len(r.Command) > 0 {
			p, err := d.start(b, driver.ExecRequest{Argv: r.Command, Timeout: r.Timeout})
			if err != nil {
				d.end(b, 127)
				return b.id, nil
			}
			d.running.Go(func() {
				<-p.done
				d.Kill(b.id, p.code)
			})
		}
		return b.id, nil
	})
}

// Lookup implements driver.Driver.
func (d *Driver) Lookup(ctx context.Context, name string) (driver.Listing, error) {
	return call(ctx, d, OpLookup, name, func() (driver.Listing, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		b := d.byName(name)
		if b == nil {
			return driver.Listing{}, driver.Errorf(driver.Gone, "look up", name, "no running sandbox has the name")
		}
		return b.listing(), nil
	})
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context, tags map[string]string) iter.Seq2[driver.Listing, error] {
	return func(yield func(driver.Listing, error) bool) {
		list, err := call(ctx, d, OpList, "", func() ([]driver.Listing, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			var list []driver.Listing
			for _, id := range slices.Sorted(maps.Keys(d.sandboxes)) {
				b := d.sandboxes[id]
				if !b.terminated && has(b.tags, tags) {
					list = append(list, b.listing())
				}
			}
			return list, nil
		})
		for _, l := range list {
			if !yield(l, nil) {
				return
			}
		}
		if err != nil {
			yield(driver.Listing{}, err)
		}
	}
}

func (b *instance) listing() driver.Listing {
	return driver.Listing{ID: b.id, Name: b.name, Tags: maps.Clone(b.tags)}
}

// Poll implements driver.Driver.
func (d *Driver) Poll(ctx context.Context, id string) (driver.Status, error) {
	return call(ctx, d, OpPoll, id, func() (driver.Status, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		b := d.sandboxes[id]
		if b == nil {
			return driver.Status{}, driver.Errorf(driver.Gone, "poll", id, "no such sandbox")
		}
		return driver.Status{Running: !b.terminated, ExitCode: b.code}, nil
	})
}

// Terminate implements driver.Driver.
func (d *Driver) Terminate(ctx context.Context, id string) error {
	_, err := call(ctx, d, OpTerminate, id, func() (struct{}, error) {
		if !d.Kill(id, driver.ExitTerminated) {
			return struct{}{}, driver.Errorf(driver.Gone, "terminate", id, "no such sandbox")
		}
		return struct{}{}, nil
	})
	return err
}

// Kill ends a sandbox immediately, as its provider or a crash would, and reports whether it exists.
// A sandbox that has ended keeps its exit code.
func (d *Driver) Kill(id string, code int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.sandboxes[id]
	if b == nil {
		return false
	}
	d.end(b, code)
	return true
}

// Forget makes the provider forget a sandbox, as after a long time.
func (d *Driver) Forget(id string) {
	d.Kill(id, driver.ExitTerminated)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sandboxes, id)
}

// end must be called with mu held.
func (d *Driver) end(b *instance, code int) {
	if b.terminated {
		return
	}
	b.terminated, b.code = true, code
	b.life.Stop()
	if b.keep {
		b.exit = d.keepFiles(b, true)
	}
	close(b.ended)
}

// Snapshot implements driver.Driver.
func (d *Driver) Snapshot(ctx context.Context, id string, budget time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	return call(ctx, d, OpSnapshot, id, func() (string, error) {
		b, err := d.live("snapshot", id)
		if err != nil {
			return "", err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.keepFiles(b, false), nil
	})
}

// keepFiles creates an image of a sandbox's files. It must be called with mu held.
func (d *Driver) keepFiles(b *instance, exit bool) string {
	image := d.newID("im")
	d.images[image] = b.files.copy()
	d.listings[image] = driver.ImageListing{ID: image, Created: time.Now(), Tags: maps.Clone(b.tags), Exit: exit}
	return image
}

// AgeImages makes all images older.
func (d *Driver) AgeImages(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, l := range d.listings {
		l.Created = l.Created.Add(-by)
		d.listings[id] = l
	}
}

// ListImages implements driver.ImageLister.
func (d *Driver) ListImages(ctx context.Context, tags map[string]string) ([]driver.ImageListing, error) {
	return call(ctx, d, OpListImages, "", func() ([]driver.ImageListing, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		var list []driver.ImageListing
		for _, id := range slices.Sorted(maps.Keys(d.listings)) {
			l := d.listings[id]
			if has(l.Tags, tags) {
				list = append(list, l)
			}
		}
		return list, nil
	})
}

// has reports whether tags contain all wanted tags.
func has(tags, want map[string]string) bool {
	for k, v := range want {
		if tags[k] != v {
			return false
		}
	}
	return true
}

// ExitSnapshot implements driver.Driver.
func (d *Driver) ExitSnapshot(ctx context.Context, id string, budget time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	return call(ctx, d, OpExitSnapshot, id, func() (string, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		b := d.sandboxes[id]
		switch {
		case b == nil:
			return "", driver.Errorf(driver.Gone, "exit snapshot", id, "no such sandbox")
		case !b.terminated:
			return "", driver.Errorf(driver.Timeout, "exit snapshot", id, "the sandbox runs")
		case !b.keep:
			return "", driver.Errorf(driver.Gone, "exit snapshot", id, "none was requested")
		}
		return b.exit, nil
	})
}

// ImageExists implements driver.Driver.
func (d *Driver) ImageExists(ctx context.Context, imageID string) error {
	_, err := call(ctx, d, OpImageExists, imageID, func() (struct{}, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return struct{}{}, d.image("look up", imageID)
	})
	return err
}

// DeleteImage implements driver.Driver.
func (d *Driver) DeleteImage(ctx context.Context, imageID string) error {
	_, err := call(ctx, d, OpDeleteImage, imageID, func() (struct{}, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		err := d.image("delete", imageID)
		delete(d.images, imageID)
		delete(d.listings, imageID)
		return struct{}{}, err
	})
	return err
}

// NameImage implements driver.Driver.
func (d *Driver) NameImage(ctx context.Context, imageID, name string) error {
	_, err := call(ctx, d, OpNameImage, imageID, func() (struct{}, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		err := d.image("name", imageID)
		if err == nil {
			d.names[name] = imageID
		}
		return struct{}{}, err
	})
	return err
}

// ImageByName implements driver.Driver.
func (d *Driver) ImageByName(ctx context.Context, name string) (string, error) {
	return call(ctx, d, OpImageByName, name, func() (string, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		id, named := d.names[name]
		if !named {
			return "", driver.Errorf(driver.Gone, "look up", name, "no image has the name")
		}
		return id, d.image("look up", id)
	})
}

// Close ends all sandboxes and waits for their processes.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	for _, b := range d.sandboxes {
		d.end(b, driver.ExitTerminated)
	}
	d.mu.Unlock()
	d.running.Wait()
	return nil
}

// image must be called with mu held.
func (d *Driver) image(op, id string) error {
	if _, known := d.images[id]; !known {
		return driver.Errorf(driver.Gone, op, id, "no such image")
	}
	return nil
}

// byName must be called with mu held.
func (d *Driver) byName(name string) *instance {
	for _, b := range d.sandboxes {
		if b.name == name && !b.terminated {
			return b
		}
	}
	return nil
}

// newID must be called with mu held. Ids sort by age.
func (d *Driver) newID(kind string) string {
	d.made++
	return fmt.Sprintf("%s-%08d", kind, d.made)
}

func (d *Driver) live(op, id string) (*instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.sandboxes[id]
	switch {
	case b == nil:
		return nil, driver.Errorf(driver.Gone, op, id, "no such sandbox")
	case b.terminated:
		return nil, driver.Errorf(driver.Conflict, op, id, "the sandbox has ended")
	}
	return b, nil
}
