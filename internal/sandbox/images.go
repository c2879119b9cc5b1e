package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

const (
	// DefaultBase is the base image of recipes. A local provider does not pull it and maps every
	// name to the base that it creates from its host. `make pin-images` updates it to the current
	// image of its tag.
	DefaultBase = "debian:12@sha256:8a8cd02c5912770b4980228a54d4aff9e4f986f1eb2525d2d371dec5232cefcc"

	// builderTimeout is the lifetime of a builder, so that it ends by itself if its worker was
	// killed.
	builderTimeout = 10 * time.Minute
	// cleanupTimeout bounds the termination of a builder after its caller's context has ended.
	cleanupTimeout = time.Minute
	// recipeVersion is part of every hash: increment it if the same recipe results in another
	// image.
	recipeVersion = 1
)

// Recipe describes what to add to a base image.
type Recipe struct {
	// Name is the prefix of the image's name at the provider: lower-case letters, digits and
	// dashes, at most 32.
	Name string
	// Base is an image or a tag in a registry. Default ImagesOptions.Base.
	Base  string
	Files []RecipeFile
	// Commands run in order after the files were written; each must exit with 0.
	Commands [][]string
	Env      map[string]string // of the commands
	// CommandTimeout bounds each command. Default 5 min.
	CommandTimeout time.Duration
}

// RecipeFile is a file of a recipe.
type RecipeFile struct {
	Path    string      // absolute, in the sandbox
	Mode    fs.FileMode // permission bits; 0 means 0644
	Content []byte
	Source  string // a file on this machine with the content; exclusive with Content

	sum [sha256.Size]byte // of the content
}

// read returns the content, which must match the hash in the image's name.
func (f *RecipeFile) read() ([]byte, error) {
	if f.Source == "" {
		return f.Content, nil
	}
	content, err := os.ReadFile(f.Source)
	if err != nil {
		return nil, driver.Errorf(Invalid, "read", f.Source, "%w", err)
	}
	if sha256.Sum256(content) != f.sum {
		return nil, driver.Errorf(Unavailable, "read", f.Source, "the file was replaced meanwhile")
	}
	return content, nil
}

// Ledger records prepared images, so that they can be deleted when they are no longer used.
type Ledger interface {
	// Intend records that an image is about to be created under the name, and returns the intent's
	// id.
	Intend(ctx context.Context, name string) (intentID string, err error)
	// End ends an intent: its image is recorded, or none was created.
	End(ctx context.Context, intentID string) error
	// Use records that a sandbox is about to start from the image, and reports whether it may. It
	// returns false if the image is being deleted.
	Use(ctx context.Context, name, imageID string) (usable bool, err error)
}

// noLedger is for programs that never delete images.
type noLedger struct{}

func (noLedger) Intend(context.Context, string) (string, error)    { return "", nil }
func (noLedger) End(context.Context, string) error                 { return nil }
func (noLedger) Use(context.Context, string, string) (bool, error) { return true, nil }

// ImagesOptions are the options of an Images.
type ImagesOptions struct {
	// Ledger records prepared images. Default: none.
	Ledger Ledger
	// Base is the base image of recipes. Default DefaultBase.
	Base string
	// Logger receives each step. Default: none.
	Logger *slog.Logger
	// Built is called after each build, successful or not, with its duration. Default: none.
	Built func(took time.Duration, err error)
	// Progress receives a description of each step, for a person who waits. It must not block.
	// Default: none.
	Progress func(recipe, step string)
}

// Images prepares images, each once per content: the name of an image at the provider is the hash
// of its recipe, so every worker finds images that another one has prepared, without another store.
// If a provider has no names for images, each process prepares its own.
//
//	name known at the provider ──yes──▶ image
//	        │ no
//	builder sandbox ─▶ write files ─▶ run commands ─▶ snapshot ─▶ name ─▶ terminate builder
type Images struct {
	p        *Provider
	ledger   Ledger
	base     string
	logger   *slog.Logger
	progress func(recipe, step string)
	built    func(took time.Duration, err error)

	mu       sync.Mutex
	flights  map[string]*flight
	nameless map[string]string    // image by name, if the provider has no names
	sources  map[string]sourceSum // by path
}

// sourceSum caches the hash of a file of this machine. The runner, which has several megabytes, is
// part of the image of every session.
type sourceSum struct {
	found fs.FileInfo
	sum   [sha256.Size]byte
}

// flight is one preparation shared by all callers that wait for it.
type flight struct {
	cancel  context.CancelCauseFunc
	waiters int
	done    chan struct{} // closed when image and err are set and the builder has ended
	image   string
	err     error
}

// NewImages returns an Images that uses p.
func NewImages(p *Provider, o ImagesOptions) *Images {
	i := &Images{
		p: p, ledger: o.Ledger, base: o.Base, logger: o.Logger, progress: o.Progress, built: o.Built,
		flights: map[string]*flight{}, nameless: map[string]string{}, sources: map[string]sourceSum{},
	}
	if i.ledger == nil {
		i.ledger = noLedger{}
	}
	if i.base == "" {
		i.base = DefaultBase
	}
	if i.logger == nil {
		i.logger = slog.New(slog.DiscardHandler)
	}
	if i.progress == nil {
		i.progress = func(string, string) {}
	}
	if i.built == nil {
		i.built = func(time.Duration, error) {}
	}
	return i
}

var errNoWaiter = errors.New("no caller waits for the image any more")

// Prepare returns the image of a recipe and creates it if it does not exist. Calls for the same
// recipe share one preparation, which continues while any caller waits for it. If the last caller
// is canceled, it returns when the builder has ended.
func (i *Images) Prepare(ctx context.Context, r Recipe) (imageID string, err error) {
	name, err := i.complete(&r)
	if err != nil {
		return "", driver.Errorf(Invalid, "prepare image", r.Name, "%w", err)
	}
	f := i.join(ctx, name, r)
	select {
	case <-f.done:
		i.leave(name, f)
		return f.image, f.err
	case <-ctx.Done():
	}
	if i.leave(name, f) {
		f.cancel(errNoWaiter)
		<-f.done
	}
	return "", fault(ctx, "prepare image", name, ctx.Err())
}

// join joins the preparation in progress or starts one.
func (i *Images) join(ctx context.Context, name string, r Recipe) *flight {
	i.mu.Lock()
	defer i.mu.Unlock()
	if f := i.flights[name]; f != nil {
		f.waiters++
		return f
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f := &flight{cancel: cancel, waiters: 1, done: make(chan struct{})}
	i.flights[name] = f
	go func() {
		defer close(f.done)
		defer cancel(nil)
		f.image, f.err = i.find(ctx, name, r)
		i.forget(name, f) // later callers look the name up again
	}()
	return f
}

// leave reports whether no caller waits any more.
func (i *Images) leave(name string, f *flight) bool {
	i.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	i.mu.Unlock()
	if last {
		i.forget(name, f)
	}
	return last
}

func (i *Images) forget(name string, f *flight) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.flights[name] == f {
		delete(i.flights, name)
	}
}

// find looks the name up and builds the image if there is none.
func (i *Images) find(ctx context.Context, name string, r Recipe) (string, error) {
	image, err := i.named(ctx, name)
	if err != nil || image != "" {
		return image, err
	}
	began := time.Now()
	i.step(ctx, r.Name, "preparing image "+name)
	intent, err := i.ledger.Intend(ctx, name)
	if err != nil {
		return "", fmt.Errorf("prepare image %s: %w", name, err)
	}
	built, err := i.build(ctx, name, r)
	i.built(time.Since(began), err)
	if err != nil {
		i.settled(ctx, intent, err)
		return "", fmt.Errorf("prepare image %s: %w", name, err)
	}
	if image, err = i.publish(ctx, name, built); err != nil {
		return "", err
	}
	if usable, err := i.ledger.Use(ctx, name, image); err != nil || !usable {
		return "", errors.Join(err, driver.Errorf(Unavailable, "prepare image", name, "the image was deleted before it was used"))
	}
	i.settled(ctx, intent, nil)
	i.logger.InfoContext(ctx, "image prepared",
		slog.String("recipe", r.Name), slog.String("name", name), slog.String("image_id", image), slog.Duration("duration", time.Since(began)))
	return image, nil
}

// named returns the image with the name, or "" if there is none that may be used.
func (i *Images) named(ctx context.Context, name string) (string, error) {
	image, err := i.p.drv.ImageByName(ctx, name)
	switch driver.CodeOf(err) {
	case "":
	case Gone:
		return "", nil
	case Unsupported:
		i.mu.Lock()
		image = i.nameless[name]
		i.mu.Unlock()
		if image == "" {
			return "", nil
		}
	default:
		return "", fault(ctx, "look up image", name, err)
	}
	ok, err := i.p.ImageExists(ctx, image)
	if err != nil || !ok {
		return "", err
	}
	if ok, err = i.ledger.Use(ctx, name, image); err != nil || !ok {
		return "", err // an image that is being deleted must not be used
	}
	return image, nil
}

// settled ends an intent, unless the result of the creation is unknown and an image may exist.
func (i *Images) settled(ctx context.Context, intent string, made error) {
	if code := driver.CodeOf(made); made != nil && (code == Timeout || code == Unavailable) {
		return
	}
	if err := i.ledger.End(context.WithoutCancel(ctx), intent); err != nil {
		i.logger.WarnContext(ctx, "the intent of an image stays recorded", slog.Any("error", err))
	}
}

// publish names the image, unless another worker was faster: then it returns that worker's image.
func (i *Images) publish(ctx context.Context, name, built string) (string, error) {
	first, err := i.named(ctx, name)
	if err == nil && first != "" {
		return first, i.p.DeleteImage(ctx, built)
	}
	err = i.p.drv.NameImage(ctx, built, name)
	if driver.CodeOf(err) == Unsupported {
		i.mu.Lock()
		i.nameless[name] = built
		i.mu.Unlock()
		return built, nil
	}
	if err != nil {
		_ = i.p.DeleteImage(context.WithoutCancel(ctx), built) // it would never be found
		return "", fault(ctx, "name image", name, err)
	}
	return built, nil
}

func (i *Images) build(ctx context.Context, name string, r Recipe) (image string, err error) {
	ctx, cancel := within(ctx, builderTimeout, "prepare the image")
	defer cancel()
	builder := driver.CreateRequest{
		Name:    "builder-" + uuid.NewString(),
		Tags:    map[string]string{TagRole: RoleBuilder, TagImage: tagValue(name)},
		Image:   r.Base,
		Timeout: builderTimeout,
	}
	defer i.clear(ctx, builder.Name)
	sb, _, err := i.p.create(ctx, builder)
	if err != nil {
		return "", err
	}
	for _, f := range r.Files {
		content, err := f.read()
		if err != nil {
			return "", err
		}
		i.step(ctx, r.Name, fmt.Sprintf("writing %s (%d bytes)", f.Path, len(content)))
		if err := sb.WriteFile(ctx, f.Path, content, f.Mode); err != nil {
			return "", err
		}
	}
	for _, argv := range r.Commands {
		i.step(ctx, r.Name, "running "+oneLine(argv))
		res, err := sb.Run(ctx, RunSpec{Argv: argv, Env: r.Env, Timeout: r.CommandTimeout})
		if err != nil {
			return "", err
		}
		if res.Code != 0 {
			last := bytes.TrimSpace(append(res.Stdout, res.Stderr...))
			return "", driver.Errorf(Invalid, "run", sb.id, "%q exited with code %d: %s", argv, res.Code, last[max(0, len(last)-2048):])
		}
	}
	i.step(ctx, r.Name, "taking the snapshot")
	return sb.Snapshot(ctx, SnapshotSpec{})
}

// oneLine formats a command for people, with only the first line of a script in its arguments.
func oneLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		first, _, more := strings.Cut(strings.TrimSpace(word), "\n")
		if more {
			first += " …"
		}
		words[i] = first
	}
	return strings.Join(words, " ")
}

// CopyImage creates another image of a session's snapshot, from a sandbox that starts from it and
// does nothing.
func (p *Provider) CopyImage(ctx context.Context, image, sessionID string, generation int64, spec SnapshotSpec) (copied string, err error) {
	ctx, cancel := within(ctx, builderTimeout, "copy the image")
	defer cancel()
	request := driver.CreateRequest{
		Name: "renewer-" + uuid.NewString(),
		Tags: map[string]string{
			TagRole: RoleRenewer, TagSession: sessionID, TagGeneration: strconv.FormatInt(generation, 10), TagImage: tagValue(image),
		},
		Image: image, Timeout: builderTimeout,
	}
	defer NewImages(p, ImagesOptions{Logger: p.logger}).clear(ctx, request.Name)
	sb, _, err := p.create(ctx, request)
	if err != nil {
		return "", err
	}
	return sb.Snapshot(ctx, spec)
}

// ReadImage starts a sandbox from a session's image without a process, and calls read with it. The
// sandbox is terminated afterwards, or ends by itself after ten minutes.
func (p *Provider) ReadImage(ctx context.Context, image, sessionID string, generation int64, read func(context.Context, *Sandbox) error) error {
	ctx, cancel := within(ctx, builderTimeout, "read the image")
	defer cancel()
	request := driver.CreateRequest{
		Name: "reader-" + uuid.NewString(),
		Tags: map[string]string{
			TagRole: RoleReader, TagSession: sessionID, TagGeneration: strconv.FormatInt(generation, 10), TagImage: tagValue(image),
		},
		Image: image, Timeout: builderTimeout,
	}
	defer NewImages(p, ImagesOptions{Logger: p.logger}).clear(ctx, request.Name)
	sb, _, err := p.create(ctx, request)
	if err != nil {
		return err
	}
	return read(ctx, sb)
}

// clear terminates the builder, which it finds by name, because the response to its creation may be
// lost.
func (i *Images) clear(ctx context.Context, name string) {
	ctx, cancel := within(context.WithoutCancel(ctx), cleanupTimeout, "end the builder")
	defer cancel()
	found, err := i.p.drv.Lookup(ctx, name)
	if driver.CodeOf(err) == Gone {
		return
	}
	if err == nil {
		err = i.p.Open(found.ID).Terminate(ctx)
	}
	if err != nil { // it ends by itself; the image is valid
		i.logger.WarnContext(ctx, "builder not terminated", slog.String("name", name), slog.Any("error", err))
	}
}

func (i *Images) step(ctx context.Context, recipe, step string) {
	i.logger.DebugContext(ctx, "image step", slog.String("recipe", recipe), slog.String("step", step))
	i.progress(recipe, step)
}

var recipeName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// sourceSum returns the hash of a file. It reads the file again only if it was replaced or changed.
func (i *Images) sourceSum(path string) (sum [sha256.Size]byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return sum, err
	}
	i.mu.Lock()
	known, ok := i.sources[path]
	i.mu.Unlock()
	if ok && os.SameFile(known.found, info) && known.found.Size() == info.Size() && known.found.ModTime().Equal(info.ModTime()) {
		return known.sum, nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return sum, err
	}
	hash.Sum(sum[:0])
	i.mu.Lock()
	i.sources[path] = sourceSum{info, sum}
	i.mu.Unlock()
	return sum, nil
}

// complete validates a recipe, hashes its files and returns the name of its image.
func (i *Images) complete(r *Recipe) (name string, err error) {
	if !recipeName.MatchString(r.Name) {
		return "", fmt.Errorf("%q can not be the name of a recipe", r.Name)
	}
	if r.Base == "" {
		r.Base = i.base
	}
	if r.CommandTimeout == 0 {
		r.CommandTimeout = 5 * time.Minute
	}
	if err := checkEnv(r.Env); err != nil {
		return "", err
	}
	type file struct {
		Path string
		Mode fs.FileMode
		Hash [sha256.Size]byte
	}
	content := struct {
		Version  int
		Base     string
		Files    []file
		Commands [][]string
		Env      []string
	}{Version: recipeVersion, Base: r.Base, Commands: r.Commands}
	for _, k := range slices.Sorted(maps.Keys(r.Env)) {
		content.Env = append(content.Env, k+"="+r.Env[k])
	}
	r.Files = slices.Clone(r.Files)
	for n := range r.Files {
		f := &r.Files[n]
		if err := checkPath(f.Path); err != nil {
			return "", err
		}
		if f.Source != "" {
			if f.Content != nil {
				return "", fmt.Errorf("file %s has both content and source", f.Path)
			}
			if f.sum, err = i.sourceSum(f.Source); err != nil {
				return "", err
			}
		} else {
			f.sum = sha256.Sum256(f.Content)
		}
		if f.Mode == 0 {
			f.Mode = 0o644
		}
		content.Files = append(content.Files, file{f.Path, f.Mode, f.sum})
	}
	text, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return "overwinter-" + r.Name + ":" + hex.EncodeToString(sum[:16]), nil
}
