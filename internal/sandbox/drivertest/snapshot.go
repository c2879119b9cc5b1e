package drivertest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func snapshotRestore(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.write(t, sb, "/work/kept", "kept")
	b.write(t, sb, "/work/changed", "before")
	b.write(t, sb, "/work/removed", "to be removed")
	b.run(t, sb, b.Commands.Remove("/work/removed"))
	image := b.snapshot(t, sb)
	b.write(t, sb, "/work/changed", "after")
	b.write(t, sb, "/work/late", "late")

	ok, err := b.second.ImageExists(b.ctx(t), image)
	require.NoError(t, err)
	require.True(t, ok)

	spec := b.spec()
	spec.Image = image
	restored := b.create(t, spec)
	require.Equal(t, "kept", b.read(t, restored, "/work/kept"))
	require.Equal(t, "before", b.read(t, restored, "/work/changed"))
	for _, path := range []string{"/work/removed", "/work/late"} {
		_, err := restored.ReadFile(b.ctx(t), path)
		requireCode(t, sandbox.NoFile, err)
	}

	// From here on the two are independent.
	b.write(t, restored, "/work/changed", "restored")
	b.run(t, restored, b.Commands.Remove("/work/kept"))
	require.Equal(t, "after", b.read(t, sb, "/work/changed"))
	require.Equal(t, "kept", b.read(t, sb, "/work/kept"))
	require.NoError(t, sb.Terminate(b.ctx(t)))
	require.Equal(t, "restored", b.read(t, restored, "/work/changed"))

	// And the image is unchanged.
	spec = b.spec()
	spec.Image = image
	third := b.create(t, spec)
	require.Equal(t, "before", b.read(t, third, "/work/changed"))
	require.Equal(t, "kept", b.read(t, third, "/work/kept"))
}

func snapshotOfRestored(t *testing.T, b *bench) {
	image, want := b.Image, ""
	for i := range 4 { // a session that hibernates repeatedly
		spec := b.spec()
		spec.Image = image
		sb := b.create(t, spec)
		if i > 0 {
			require.Equal(t, want, b.read(t, sb, "/work/log"))
		}
		want += strconv.Itoa(i)
		b.write(t, sb, "/work/log", want)
		b.write(t, sb, "/work/of/"+strconv.Itoa(i), "x")
		image = b.snapshot(t, sb)
		require.NoError(t, sb.Terminate(b.ctx(t)))
	}
	spec := b.spec()
	spec.Image = image
	sb := b.create(t, spec)
	require.Equal(t, "0123", b.read(t, sb, "/work/log"))
	for i := range 4 {
		require.Equal(t, "x", b.read(t, sb, "/work/of/"+strconv.Itoa(i)))
	}
}

// Two files are written in lockstep, so they may differ by at most one.
func snapshotConsistent(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.write(t, sb, "/work/a", "0\n")
	b.write(t, sb, "/work/b", "0\n")
	ctx, cancel := context.WithCancel(b.ctx(t))
	defer cancel()
	p, err := sb.Exec(ctx, sandbox.ExecSpec{Argv: b.Commands.Tick("/work/a", "/work/b")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	number := func(sb *sandbox.Sandbox, path string) (n int, ok bool) {
		text := strings.TrimSpace(b.read(t, sb, path))
		if text == "" { // between truncation and writing
			return 0, false
		}
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n, true
	}
	require.Eventually(t, func() bool {
		n, ok := number(sb, "/work/b")
		return ok && n > 10
	}, b.WaitLimit, 10*time.Millisecond)
	for range 3 {
		spec := b.spec()
		spec.Image = b.snapshot(t, sb)
		restored := b.create(t, spec)
		one, ok1 := number(restored, "/work/a")
		two, ok2 := number(restored, "/work/b")
		if ok1 && ok2 {
			require.Contains(t, []int{0, 1}, one-two, "a is %d, b is %d", one, two)
		}
	}
}

func snapshotDead(t *testing.T, b *bench) {
	spec := b.spec()
	spec.Command = b.Commands.Exit(0)
	sb := b.create(t, spec)
	b.ends(t, sb)
	_, err := sb.Snapshot(b.ctx(t), sandbox.SnapshotSpec{})
	requireCode(t, sandbox.Gone, err)
}

func imageDeleted(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.write(t, sb, "/work/f", "x")
	image := b.snapshot(t, sb)
	spec := b.spec()
	spec.Image = image
	restored := b.create(t, spec)

	require.NoError(t, b.provider.DeleteImage(b.ctx(t), image))
	require.NoError(t, b.provider.DeleteImage(b.ctx(t), image))
	ok, err := b.second.ImageExists(b.ctx(t), image)
	require.NoError(t, err)
	require.False(t, ok)
	spec.Generation++
	_, _, err = b.provider.Create(b.ctx(t), spec)
	requireCode(t, sandbox.Gone, err)
	// Sandboxes created from it keep their files.
	require.Equal(t, "x", b.read(t, restored, "/work/f"))
}

func imagesListed(t *testing.T, b *bench) {
	if b.lacks(ImageLists) {
		_, err := b.provider.ListImages(b.ctx(t))
		requireCode(t, sandbox.Unsupported, err)
		return
	}
	began := time.Now().Add(-time.Minute) // clocks may differ
	spec := b.spec()
	sb := b.create(t, spec)
	image := b.snapshot(t, sb)
	require.NoError(t, sb.Terminate(b.ctx(t)))
	listed := func(p *sandbox.Provider) map[string]sandbox.ImageListing {
		t.Helper()
		found, err := p.ListImages(b.ctx(t))
		require.NoError(t, err)
		images := map[string]sandbox.ImageListing{}
		for _, image := range found {
			require.True(t, image.Created.After(began), "%v", image)
			images[image.ID] = image
			image.ID, image.Created = "", time.Time{}
			require.Equal(t, sandbox.ImageListing{Session: spec.Session, Generation: spec.Generation, Exit: image.Exit}, image)
		}
		return images
	}
	images := listed(b.second)
	require.False(t, images[image].Exit)
	require.Contains(t, images, image)
	if !b.lacks(ExitSnapshots) {
		exit, err := sb.ExitSnapshot(b.ctx(t))
		require.NoError(t, err)
		b.deleteAfter(t, exit)
		require.True(t, listed(b.second)[exit].Exit)
	}
	require.Empty(t, listed(b.foreign))
	require.NoError(t, b.provider.DeleteImage(b.ctx(t), image))
	require.NotContains(t, listed(b.second), image)
}

func exitSnapshot(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.write(t, sb, "/work/f", "the final text")
	if b.lacks(ExitSnapshots) {
		require.NoError(t, sb.Terminate(b.ctx(t)))
		_, err := sb.ExitSnapshot(b.ctx(t))
		requireCode(t, sandbox.Unsupported, err)
		return
	}
	_, err := sb.ExitSnapshot(b.ctx(t))
	requireCode(t, sandbox.Conflict, err)

	require.NoError(t, sb.Terminate(b.ctx(t)))
	image, err := sb.ExitSnapshot(b.ctx(t))
	require.NoError(t, err)
	b.deleteAfter(t, image)
	again, err := b.second.Open(sb.ID()).ExitSnapshot(b.ctx(t))
	require.NoError(t, err)
	require.Equal(t, image, again)

	spec := b.spec()
	spec.Image = image
	require.Equal(t, "the final text", b.read(t, b.create(t, spec), "/work/f"))

	// Nothing is stored that was not requested.
	id, err := b.Driver.Create(b.ctx(t), driver.CreateRequest{
		Name: session.NewID(""), Tags: map[string]string{"conformance": "1"}, Image: b.Image, Timeout: 10 * time.Minute,
	})
	require.NoError(t, err)
	require.NoError(t, b.provider.Open(id).Terminate(b.ctx(t)))
	_, err = b.provider.Open(id).ExitSnapshot(b.ctx(t))
	requireCode(t, sandbox.Gone, err)
}
