package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
)

var recipe = sandbox.Recipe{Name: "runner", Files: []sandbox.RecipeFile{{Path: "/bin/runner", Mode: 0o755, Content: []byte("1")}}}

// nameless is a provider without names for images.
type nameless struct{ *memsandbox.Driver }

func (nameless) NameImage(_ context.Context, id, _ string) error {
	return driver.Errorf(driver.Unsupported, "name image", id, "no names here")
}

func (nameless) ImageByName(_ context.Context, name string) (string, error) {
	return "", driver.Errorf(driver.Unsupported, "look up image", name, "no names here")
}

func TestPrepareRecordsImagesWithoutNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := sandbox.NewProvider(nameless{b.drv}, sandbox.Options{Installation: "test"})
	images := sandbox.NewImages(p, sandbox.ImagesOptions{})
	first, err := images.Prepare(t.Context(), recipe)
	require.NoError(t, err)
	again, err := images.Prepare(t.Context(), recipe)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, 1, b.drv.Calls(memsandbox.OpSnapshot))

	require.NoError(t, p.DeleteImage(t.Context(), first))
	second, err := images.Prepare(t.Context(), recipe)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
}

// TestChangedRecipeFileIsReadAgain covers the cache of hashes: the name of an image
// depends on the file's current content, and every new session requests it, so a hash computed a
// moment ago is reused if the file is unchanged.
func TestChangedRecipeFileIsReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	source := filepath.Join(t.TempDir(), "runner")
	fromFile := sandbox.Recipe{Name: "runner", Files: []sandbox.RecipeFile{{Path: "/bin/runner", Mode: 0o755, Source: source}}}
	images := sandbox.NewImages(b.provider, sandbox.ImagesOptions{})
	prepare := func() string {
		image, err := images.Prepare(t.Context(), fromFile)
		require.NoError(t, err)
		return image
	}
	require.NoError(t, os.WriteFile(source, []byte("one"), 0o600))
	first := prepare()
	require.Equal(t, first, prepare())
	for name, change := range map[string]func() error{
		"written": func() error { return os.WriteFile(source, []byte("a second one"), 0o600) },
		"replaced": func() error {
			return errors.Join(os.WriteFile(source+".new", []byte("a third one!"), 0o600), os.Rename(source+".new", source))
		},
	} {
		before := prepare()
		require.NoError(t, change())
		require.NotEqual(t, before, prepare(), name)
	}
	b.spec.Image = prepare()
	content, err := b.create(t).ReadFile(t.Context(), "/bin/runner")
	require.NoError(t, err)
	want, err := os.ReadFile(source)
	require.NoError(t, err)
	require.Equal(t, want, content)
}

// raced is a provider at which another worker names its image first.
type raced struct {
	*memsandbox.Driver
	theirs  string
	lookups int
}

func (r *raced) ImageByName(ctx context.Context, name string) (string, error) {
	if r.lookups++; r.lookups == 2 {
		if err := r.NameImage(ctx, r.theirs, name); err != nil {
			return "", err
		}
	}
	return r.Driver.ImageByName(ctx, name)
}

func TestPrepareUsesImageOfFasterWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	theirs, err := b.create(t).Snapshot(t.Context(), sandbox.SnapshotSpec{})
	require.NoError(t, err)
	p := sandbox.NewProvider(&raced{Driver: b.drv, theirs: theirs}, sandbox.Options{Installation: "test"})
	got, err := sandbox.NewImages(p, sandbox.ImagesOptions{}).Prepare(t.Context(), recipe)
	require.NoError(t, err)
	require.Equal(t, theirs, got)
	require.Equal(t, 1, b.drv.Calls(memsandbox.OpDeleteImage), "ours is deleted")
}

func TestPrepareLeavesNothingWhenItFails(t *testing.T) {
	t.Parallel()
	for _, op := range []memsandbox.Op{
		memsandbox.OpImageByName, memsandbox.OpCreate, memsandbox.OpWriteFile, memsandbox.OpSnapshot, memsandbox.OpNameImage,
	} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			images := sandbox.NewImages(b.provider, sandbox.ImagesOptions{})
			b.drv.Inject(memsandbox.Fault{Op: op, Code: driver.Throttled})
			_, err := images.Prepare(t.Context(), recipe)
			require.Equal(t, sandbox.Throttled, sandbox.CodeOf(err), "error: %v", err)
			list, err := driver.Collect(b.provider.List(t.Context()))
			require.NoError(t, err)
			require.Empty(t, list)
			if op == memsandbox.OpNameImage {
				require.Equal(t, 1, b.drv.Calls(memsandbox.OpDeleteImage))
			}
			_, err = images.Prepare(t.Context(), recipe)
			require.NoError(t, err, "the next one succeeds")
		})
	}
}

// If a builder cannot be terminated, it runs for some minutes more, but the image is valid.
func TestPrepareSurvivesFailedTerminate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.drv.Inject(memsandbox.Fault{Op: memsandbox.OpTerminate, Code: driver.Unavailable})
	_, err := sandbox.NewImages(b.provider, sandbox.ImagesOptions{}).Prepare(t.Context(), recipe)
	require.NoError(t, err)
	list, err := driver.Collect(b.provider.List(t.Context()))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, sandbox.RoleBuilder, list[0].Role)
}

func TestRecipeHashCoversEverything(t *testing.T) {
	t.Parallel()
	b := setup(t)
	images := sandbox.NewImages(b.provider, sandbox.ImagesOptions{})
	seen := map[string]string{}
	for name, change := range map[string]func(r *sandbox.Recipe){
		"AsItIs":  func(*sandbox.Recipe) {},
		"Base":    func(r *sandbox.Recipe) { r.Base = "debian:13" },
		"Content": func(r *sandbox.Recipe) { r.Files[0].Content = []byte("2") },
		"Mode":    func(r *sandbox.Recipe) { r.Files[0].Mode = 0o700 },
		"Path":    func(r *sandbox.Recipe) { r.Files[0].Path = "/bin/other" },
		"Command": func(r *sandbox.Recipe) { r.Commands = [][]string{{"true"}} },
		"Env":     func(r *sandbox.Recipe) { r.Env = map[string]string{"A": "b"} },
	} {
		r := recipe
		r.Files = append([]sandbox.RecipeFile(nil), recipe.Files...)
		change(&r)
		image, err := images.Prepare(t.Context(), r)
		require.NoError(t, err)
		require.NotContains(t, seen, image, "%s is the same as %s", name, seen[image])
		seen[image] = name
	}
}

// ledger keeps what an Images records.
type ledger struct {
	open, used int
	condemned  map[string]bool
}

func (l *ledger) Intend(context.Context, string) (string, error) {
	l.open++
	return "img_1", nil
}

func (l *ledger) End(context.Context, string) error {
	l.open--
	return nil
}

func (l *ledger) Use(_ context.Context, _, image string) (bool, error) {
	l.used++
	return !l.condemned[image], nil
}

func TestPrepareRecordsImagesAndSkipsDeletedOnes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	kept := &ledger{condemned: map[string]bool{}}
	images := sandbox.NewImages(b.provider, sandbox.ImagesOptions{Ledger: kept})
	b.drv.Inject(memsandbox.Fault{Op: memsandbox.OpSnapshot, Code: driver.Invalid})
	_, err := images.Prepare(t.Context(), recipe)
	require.Error(t, err)
	require.Zero(t, kept.open, "no image was made")
	b.drv.Inject(memsandbox.Fault{Op: memsandbox.OpSnapshot, Code: driver.Unavailable, After: true})
	_, err = images.Prepare(t.Context(), recipe)
	require.Error(t, err)
	require.Equal(t, 1, kept.open, "an image may have been made")

	first, err := images.Prepare(t.Context(), recipe)
	require.NoError(t, err)
	again, err := images.Prepare(t.Context(), recipe)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, 1, kept.open)
	require.Equal(t, 2, kept.used, "every use counts")
	kept.condemned[first] = true
	other, err := images.Prepare(t.Context(), recipe)
	require.NoError(t, err)
	require.NotEqual(t, first, other)
}
