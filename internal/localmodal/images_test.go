package localmodal_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

func TestImageIsBuiltFromCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	commands := []string{
		"RUN mkdir -p /built && echo $SECRET > /built/f", `ENV A="1 2" B=3`, "ENV C old form", "WORKDIR /work", "RUN pwd > where && env > env",
	}
	secret, err := b.client.Secrets.FromMap(b.ctx, map[string]string{"SECRET": "s3"}, nil)
	require.NoError(t, err)
	build := func() *modal.Image {
		im, err := b.image.DockerfileCommands(commands, &modal.ImageDockerfileCommandsParams{Secrets: []*modal.Secret{secret}}).Build(b.ctx, b.app, nil)
		require.NoError(t, err)
		return im
	}
	im := build()
	sb := b.createFrom(im, nil)
	require.Equal(t, "s3\n/work\n/work\n1 2,3,old form,\n", b.sh(sb, "cat /built/f /work/where; pwd; echo $A,$B,$C,$SECRET"))
	require.Equal(t, im.ImageID, build().ImageID, "the same commands are not run again")

	// The image's settings also apply to images restored from it.
	require.Equal(t, "1 2 /work\n", b.sh(b.createFrom(b.snapshot(sb), nil), "echo $A $PWD"))
}

func TestConcurrentBuildsShareOneImage(t *testing.T) {
	t.Parallel()
	b := alone(t)
	ids := make([]string, 8)
	var g errgroup.Group
	for i := range ids {
		g.Go(func() error {
			im, err := b.client.Images.FromRegistry("debian:12", nil).DockerfileCommands([]string{"RUN echo built > /root/f"}, nil).Build(b.ctx, b.app, nil)
			if err == nil {
				ids[i] = im.ImageID
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	forced, err := b.image.DockerfileCommands([]string{"RUN echo built > /root/f"}, &modal.ImageDockerfileCommandsParams{ForceBuild: true}).Build(b.ctx, b.app, nil)
	require.NoError(t, err)
	require.NotEqual(t, ids[0], forced.ImageID)
	for range 8 {
		again, err := b.image.DockerfileCommands([]string{"RUN echo built > /root/f"}, nil).Build(b.ctx, b.app, nil)
		require.NoError(t, err)
		require.Equal(t, forced.ImageID, again.ImageID, "the newest is found")
	}
}

func TestFailedBuildReportsReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var failed modal.RemoteError
	_, err := b.image.DockerfileCommands([]string{"RUN echo shown; exit 3"}, nil).Build(b.ctx, b.app, nil)
	require.ErrorAs(t, err, &failed)
	require.ErrorContains(t, err, "shown")
	_, err = b.image.DockerfileCommands([]string{"USER nobody"}, nil).Build(b.ctx, b.app, nil)
	require.ErrorContains(t, err, "USER")
}

// TestDamagedImageHasItsOwnCode: the code prevents clients from retrying forever.
func TestDamagedImageHasItsOwnCode(t *testing.T) {
	t.Parallel()
	dir := memorytest.Dir(t)
	t.Cleanup(func() { require.NoError(t, localmodaltest.Unlock(dir)) })
	b := connect(t, localmodaltest.Start(t, options(t, dir)))
	list := func() (names []string) {
		entries, err := os.ReadDir(filepath.Join(dir, "layers"))
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	sb := b.create(nil)
	b.sh(sb, "echo kept > /root/f")
	before := list()
	im := b.snapshot(sb)
	for _, layer := range list() {
		if !slices.Contains(before, layer) {
			require.NoError(t, os.Rename(filepath.Join(dir, "layers", layer), filepath.Join(dir, "lost")))
		}
	}
	_, err := b.client.Sandboxes.Create(b.ctx, b.app, im, nil)
	require.Equal(t, codes.DataLoss, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "is damaged")
}

func TestNamedThings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var notFound modal.NotFoundError
	_, err := b.client.Apps.FromName(b.ctx, "nope", nil)
	require.ErrorAs(t, err, &notFound)
	_, err = b.client.Secrets.FromName(b.ctx, "nope", nil)
	require.ErrorAs(t, err, &notFound)
	_, err = b.client.Volumes.FromName(b.ctx, "nope", nil)
	require.ErrorAs(t, err, &notFound)
	_, err = b.client.Images.FromName(b.ctx, "nope:1", nil)
	require.ErrorAs(t, err, &notFound)
	_, err = b.client.Images.FromID(b.ctx, "im-nope", nil)
	require.ErrorAs(t, err, &notFound)
}

func TestSecretsAndVolumes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.server.PutSecret("", "named", map[string]string{"NAMED": "n"}))
	named, err := b.client.Secrets.FromName(b.ctx, "named", &modal.SecretFromNameParams{RequiredKeys: []string{"NAMED"}})
	require.NoError(t, err)
	_, err = b.client.Secrets.FromName(b.ctx, "named", &modal.SecretFromNameParams{RequiredKeys: []string{"OTHER"}})
	require.ErrorContains(t, err, "Secret is missing key(s): OTHER")
	given, err := b.client.Secrets.FromMap(b.ctx, map[string]string{"GIVEN": "g"}, nil)
	require.NoError(t, err)
	volume, err := b.client.Volumes.FromName(b.ctx, "data", &modal.VolumeFromNameParams{CreateIfMissing: true})
	require.NoError(t, err)

	sb := b.create(&modal.SandboxCreateParams{
		Secrets: []*modal.Secret{named, given}, Volumes: map[string]*modal.Volume{"/data": volume},
	})
	require.Equal(t, "n g\n", b.sh(sb, "echo $NAMED $GIVEN; echo x > /data/f"))
	reader := b.create(&modal.SandboxCreateParams{
		Volumes: map[string]*modal.Volume{"/elsewhere": volume.WithMountOptions(&modal.VolumeMountOptionsParams{ReadOnly: new(true)})},
	})
	require.Equal(t, "x\n", b.sh(reader, "cat /elsewhere/f"))
	require.NotZero(t, b.exec(reader, nil, "", "touch", "/elsewhere/g").code)
	require.Empty(t, b.sh(b.createFrom(b.snapshot(sb), nil), "ls -A /data"), "a volume is not part of a snapshot")
}
