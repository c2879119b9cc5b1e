package sandbox

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Tags of a sandbox.
const (
	TagInstallation = "installation"
	TagSession      = "session"
	TagGeneration   = "generation"
	TagImage        = "image"
	TagRole         = "role"
)

// RoleBuilder is the role of a sandbox that prepares an image.
const RoleBuilder = "builder"

// RoleRenewer is the role of a sandbox that copies an image.
const RoleRenewer = "renewer"

// RoleReader is the role of a sandbox in which files of an image are read.
const RoleReader = "reader"

// MaxTimeout is the maximum lifetime of a sandbox, and the default.
const MaxTimeout = 24 * time.Hour

// createAttempts bounds how often Create retries if the sandbox that has its name ends before it is
// looked up.
const createAttempts = 3

// Options of a Provider.
type Options struct {
	// Installation is a tag of every sandbox, so that two installations may share an account.
	// Required; letters, digits, "-", "_" and ".".
	Installation string
	// Logger receives problems that no error reports. Default: none.
	Logger *slog.Logger
	// PollInterval is how often a sandbox is polled while a process runs in it. Default 10 s.
	PollInterval time.Duration
}

// Provider creates and finds sandboxes. Its methods may be called concurrently.
type Provider struct {
	drv          driver.Driver
	installation string
	logger       *slog.Logger
	pollInterval time.Duration
}

// NewProvider returns a provider that uses drv, which the caller closes.
func NewProvider(drv driver.Driver, o Options) *Provider {
	p := &Provider{drv: drv, installation: o.Installation, logger: o.Logger, pollInterval: o.PollInterval}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	if p.pollInterval <= 0 {
		p.pollInterval = 10 * time.Second
	}
	return p
}

// Description describes the driver and how it isolates sandboxes.
type Description = driver.Description

// Describe returns the description for health checks. It sends no request.
func (p *Provider) Describe() Description { return p.drv.Describe() }

// Spec describes the sandbox of one generation of a session.
type Spec struct {
	Session    string
	Generation int64
	// Image is a snapshot or prepared image, or the tag of one in a registry.
	Image string
	// Command is the first process. The sandbox ends when it exits. Empty: none.
	Command []string
	Env     map[string]string
	// Workdir is absolute. Empty: the image's own.
	Workdir string
	// Timeout is the lifetime of the sandbox, rounded up to whole seconds. Default and maximum 24
	// h.
	Timeout time.Duration
}

// Create starts the sandbox of a generation or adopts the one that an earlier Create with the same
// spec started. It fails with ErrNameForeign if the name belongs to any other sandbox, and with
// Gone if the image does not exist.
func (p *Provider) Create(ctx context.Context, s Spec) (sb *Sandbox, adopted bool, err error) {
	name := session.SandboxName(s.Session, s.Generation)
	if !session.ValidID(session.SessionPrefix, s.Session) {
		return nil, false, driver.Errorf(Invalid, "create", name, "%q is not a session id", s.Session)
	}
	if s.Generation < 1 {
		return nil, false, driver.Errorf(Invalid, "create", name, "generation %d is less than 1", s.Generation)
	}
	return p.create(ctx, driver.CreateRequest{
		Name: name,
		Tags: map[string]string{
			TagSession:    s.Session,
			TagGeneration: strconv.FormatInt(s.Generation, 10),
			TagImage:      tagValue(s.Image),
		},
		Image: s.Image, Command: s.Command, Env: s.Env, Workdir: s.Workdir, Timeout: s.Timeout,
		ExitSnapshot: true, // the last chance for a session whose sandbox ended before its snapshot
	})
}

func (p *Provider) create(ctx context.Context, r driver.CreateRequest) (*Sandbox, bool, error) {
	const op = "create"
	if err := p.complete(&r); err != nil {
		return nil, false, err
	}
	var err error
	for range createAttempts {
		var id string
		id, err = p.drv.Create(ctx, r)
		if err == nil {
			return p.Open(id), false, nil
		}
		if driver.CodeOf(err) != NameTaken {
			return nil, false, fault(ctx, op, r.Name, err)
		}
		var holder driver.Listing
		holder, err = p.drv.Lookup(ctx, r.Name)
		if driver.CodeOf(err) == Gone {
			continue // it has just ended, so its name is free again
		}
		if err != nil {
			return nil, false, fault(ctx, op, r.Name, err)
		}
		if !maps.Equal(holder.Tags, r.Tags) {
			p.logger.WarnContext(ctx, "sandbox name is taken",
				slog.String("name", r.Name), slog.String("sandbox_id", holder.ID), slog.Any("tags", holder.Tags))
			return nil, false, &Error{Code: NameTaken, Op: op, ID: r.Name, Err: ErrNameForeign}
		}
		p.logger.InfoContext(ctx, "sandbox adopted", slog.String("name", r.Name), slog.String("sandbox_id", holder.ID))
		return p.Open(holder.ID), true, nil
	}
	return nil, false, driver.Errorf(Unavailable, op, r.Name, "the name is taken, but no sandbox has it")
}

// complete validates a request, applies its defaults and adds our tags.
func (p *Provider) complete(r *driver.CreateRequest) error {
	invalid := func(format string, args ...any) error {
		return driver.Errorf(Invalid, "create", r.Name, format, args...)
	}
	switch {
	case p.installation == "" || tagValue(p.installation) != p.installation:
		return invalid("installation %q is not a tag", p.installation)
	case r.Image == "":
		return invalid("no image")
	case r.Timeout < 0 || r.Timeout > MaxTimeout:
		return invalid("timeout %v is not between 0 and %v", r.Timeout, MaxTimeout)
	case r.Workdir != "" && !path.IsAbs(r.Workdir):
		return invalid("working directory %q is not absolute", r.Workdir)
	}
	if err := checkEnv(r.Env); err != nil {
		return invalid("%w", err)
	}
	r.Timeout = wholeSeconds(r.Timeout, MaxTimeout)
	r.Tags[TagInstallation] = p.installation
	return nil
}

// Open returns the sandbox with this id. It does not check that it exists.
func (p *Provider) Open(id string) *Sandbox { return &Sandbox{p: p, id: id} }

// Listing is a running sandbox of this installation.
type Listing struct {
	ID         string
	Name       string
	Tags       map[string]string
	Session    string // empty for a builder
	Generation int64
	Role       string // empty for the sandbox of a session, RoleBuilder, …
}

// List yields the running sandboxes of this installation. It fetches one page of the provider at a
// time. An error is the last value that it yields.
func (p *Provider) List(ctx context.Context) iter.Seq2[Listing, error] {
	return p.list(ctx, map[string]string{TagInstallation: p.installation})
}

// ListOf is List for the sandboxes of one session, of any role.
func (p *Provider) ListOf(ctx context.Context, session string) iter.Seq2[Listing, error] {
	return p.list(ctx, map[string]string{TagInstallation: p.installation, TagSession: session})
}

func (p *Provider) list(ctx context.Context, tags map[string]string) iter.Seq2[Listing, error] {
	return func(yield func(Listing, error) bool) {
		for f, err := range p.drv.List(ctx, tags) {
			if err != nil {
				yield(Listing{}, fault(ctx, "list", "", err))
				return
			}
			generation, _ := strconv.ParseInt(f.Tags[TagGeneration], 10, 64) // generation 0 belongs to no session
			if !yield(Listing{
				ID: f.ID, Name: f.Name, Tags: f.Tags,
				Session: f.Tags[TagSession], Generation: generation, Role: f.Tags[TagRole],
			}, nil) {
				return
			}
		}
	}
}

// ImageListing is an image of this installation.
type ImageListing struct {
	ID         string
	Created    time.Time
	Session    string // empty if it does not belong to a session
	Generation int64
	Role       string // of the sandbox that it was created from; empty for that of a session
	Exit       bool   // created when its sandbox ended
}

// ListImages returns the images that were created from this installation's sandboxes. It fails with
// Unsupported if the provider cannot list images.
func (p *Provider) ListImages(ctx context.Context) ([]ImageListing, error) {
	return p.listImages(ctx, map[string]string{TagInstallation: p.installation})
}

// ListImagesOf is ListImages for the sandboxes of one session.
func (p *Provider) ListImagesOf(ctx context.Context, session string) ([]ImageListing, error) {
	return p.listImages(ctx, map[string]string{TagInstallation: p.installation, TagSession: session})
}

func (p *Provider) listImages(ctx context.Context, tags map[string]string) ([]ImageListing, error) {
	const op = "list images"
	lister, ok := p.drv.(driver.ImageLister)
	if !ok {
		return nil, driver.Errorf(Unsupported, op, "", "the driver cannot list images")
	}
	found, err := lister.ListImages(ctx, tags)
	if err != nil {
		return nil, fault(ctx, op, "", err)
	}
	list := make([]ImageListing, 0, len(found))
	for _, f := range found {
		generation, _ := strconv.ParseInt(f.Tags[TagGeneration], 10, 64) // an invalid one becomes 0, which is not a generation
		list = append(list, ImageListing{
			ID: f.ID, Created: f.Created, Session: f.Tags[TagSession], Generation: generation, Role: f.Tags[TagRole], Exit: f.Exit,
		})
	}
	return list, nil
}

// ImageExists reports whether a sandbox can be created from the image.
func (p *Provider) ImageExists(ctx context.Context, imageID string) (bool, error) {
	err := p.drv.ImageExists(ctx, imageID)
	if driver.CodeOf(err) == Gone {
		return false, nil
	}
	return err == nil, fault(ctx, "look up image", imageID, err)
}

// DeleteImage deletes an image. An image that does not exist counts as deleted.
func (p *Provider) DeleteImage(ctx context.Context, imageID string) error {
	err := p.drv.DeleteImage(ctx, imageID)
	if driver.CodeOf(err) == Gone {
		return nil
	}
	return fault(ctx, "delete image", imageID, err)
}

// maxTagBytes is the maximum length of a tag at all providers.
const maxTagBytes = 63

// tagValue converts s to a tag: providers accept letters, digits, "-", "_" and ".".
func tagValue(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, s)
	return s[:min(len(s), maxTagBytes)]
}

// wholeSeconds rounds d up to seconds; zero becomes the default.
func wholeSeconds(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		d = byDefault
	}
	return (d + time.Second - 1).Truncate(time.Second)
}
