package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func imageNames(t *testing.T, b *bench) {
	name := "conformance:" + session.NewID("")
	_, err := b.Driver.ImageByName(b.ctx(t), name)
	if b.lacks(ImageNames) {
		requireCode(t, driver.Unsupported, err)
		requireCode(t, driver.Unsupported, b.Driver.NameImage(b.ctx(t), "im-x", name))
		return
	}
	requireCode(t, driver.Gone, err)
	requireCode(t, driver.Gone, b.Driver.NameImage(b.ctx(t), "im-01ARZ3NDEKTSV4RRFFQ69G5FAV", name))

	sb := b.sandbox(t)
	for range 2 { // a name moves
		image := b.snapshot(t, sb)
		require.NoError(t, b.Driver.NameImage(b.ctx(t), image, name))
		got, err := b.Second.ImageByName(b.ctx(t), name)
		require.NoError(t, err)
		require.Equal(t, image, got)
	}
}

// recipe returns a recipe with unique content, so that no other test has prepared it.
func (b *bench) recipe(t *testing.T) sandbox.Recipe {
	source := filepath.Join(t.TempDir(), "tool")
	require.NoError(t, os.WriteFile(source, []byte("from this machine"), 0o600))
	return sandbox.Recipe{
		Name: "conformance",
		Base: b.Image,
		Files: []sandbox.RecipeFile{
			{Path: "/srv/unique", Content: []byte(session.NewID(""))},
			{Path: "/srv/bin/tool", Mode: 0o755, Source: source},
		},
		Commands: [][]string{b.Commands.Put("/srv/made", "by a command")},
	}
}

func (b *bench) requireNoSandbox(t *testing.T) {
	t.Helper()
	list, err := driver.Collect(b.provider.List(b.ctx(t)))
	require.NoError(t, err)
	require.Empty(t, list)
}

func preparesOnce(t *testing.T, b *bench) {
	recipe := b.recipe(t)
	var steps atomic.Int32
	images := sandbox.NewImages(b.provider, sandbox.ImagesOptions{Progress: func(name, step string) {
		steps.Add(1)
		if name != recipe.Name || step == "" {
			t.Errorf("progress %q %q", name, step)
		}
	}})
	image, err := images.Prepare(b.ctx(t), recipe)
	require.NoError(t, err)
	b.deleteAfter(t, image)
	require.NotZero(t, steps.Load())
	b.requireNoSandbox(t)

	spec := b.spec()
	spec.Image = image
	sb := b.create(t, spec)
	require.Equal(t, "from this machine", b.read(t, sb, "/srv/bin/tool"))
	require.Equal(t, "755", string(b.run(t, sb, b.Commands.Mode("/srv/bin/tool")).Stdout))
	require.Equal(t, "by a command", b.read(t, sb, "/srv/made"))

	steps.Store(0)
	again, err := images.Prepare(b.ctx(t), recipe)
	require.NoError(t, err)
	require.Equal(t, image, again)
	require.Zero(t, steps.Load(), "it was built again")

	recipe.Files[0].Content = []byte(session.NewID(""))
	other, err := images.Prepare(b.ctx(t), recipe)
	require.NoError(t, err)
	b.deleteAfter(t, other)
	require.NotEqual(t, image, other)
	if b.lacks(ImageNames) {
		return
	}

	steps.Store(0)
	elsewhere := sandbox.NewImages(b.second, sandbox.ImagesOptions{Progress: func(string, string) { steps.Add(1) }})
	same, err := elsewhere.Prepare(b.ctx(t), recipe)
	require.NoError(t, err)
	require.Equal(t, other, same)
	require.Zero(t, steps.Load(), "another worker built it again")

	// An image that was deleted at the provider is prepared again.
	require.NoError(t, b.provider.DeleteImage(b.ctx(t), other))
	rebuilt, err := elsewhere.Prepare(b.ctx(t), recipe)
	require.NoError(t, err)
	b.deleteAfter(t, rebuilt)
	require.NotEqual(t, other, rebuilt)
}

func preparesShared(t *testing.T, b *bench) {
	var built atomic.Int32
	images := sandbox.NewImages(b.provider, sandbox.ImagesOptions{Progress: func(_, step string) {
		if strings.HasPrefix(step, "preparing") {
			built.Add(1)
		}
	}})
	recipe := b.recipe(t)
	got := make([]string, 8)
	g, ctx := errgroup.WithContext(b.ctx(t))
	for i := range got {
		g.Go(func() (err error) {
			got[i], err = images.Prepare(ctx, recipe)
			return err
		})
	}
	require.NoError(t, g.Wait())
	b.deleteAfter(t, got[0])
	for _, image := range got {
		require.Equal(t, got[0], image)
	}
	require.Equal(t, int32(1), built.Load())
}

func preparesFails(t *testing.T, b *bench) {
	images := sandbox.NewImages(b.provider, sandbox.ImagesOptions{})
	recipe := b.recipe(t)
	recipe.Commands = [][]string{b.Commands.Print("", "the reason"), b.Commands.Exit(9)}
	_, err := images.Prepare(b.ctx(t), recipe)
	requireCode(t, sandbox.Invalid, err)
	require.ErrorContains(t, err, "code 9")
	b.requireNoSandbox(t)

	// A caller that stops waiting does not affect the others.
	began := make(chan struct{}, 16)
	images = sandbox.NewImages(b.provider, sandbox.ImagesOptions{Progress: func(_, step string) {
		if strings.HasPrefix(step, "running") {
			began <- struct{}{}
		}
	}})
	recipe = b.recipe(t)
	recipe.Commands = [][]string{b.Commands.Sleep(time.Hour)}
	ctx, cancel := context.WithCancel(b.ctx(t))
	failed := make(chan error, 1)
	go func() {
		_, err := images.Prepare(ctx, recipe)
		failed <- err
	}()
	<-began
	list, err := driver.Collect(b.second.List(b.ctx(t)))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, sandbox.RoleBuilder, list[0].Role)
	require.Empty(t, list[0].Session)
	cancel()
	select {
	case err := <-failed:
		require.ErrorIs(t, err, context.Canceled)
	case <-b.ctx(t).Done():
		t.Fatal("the caller that cancelled is still waiting")
	}
	b.requireNoSandbox(t)

	for _, r := range []sandbox.Recipe{
		{},
		{Name: "Upper"},
		{Name: "x", Files: []sandbox.RecipeFile{{Path: "relative"}}},
		{Name: "x", Files: []sandbox.RecipeFile{{Path: "/f", Source: "/does/not/exist"}}},
		{Name: "x", Files: []sandbox.RecipeFile{{Path: "/f", Source: os.Args[0], Content: []byte("x")}}},
	} {
		_, err := images.Prepare(b.ctx(t), r)
		requireCode(t, sandbox.Invalid, err)
	}
}
