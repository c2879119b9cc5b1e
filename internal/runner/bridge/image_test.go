package bridge_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

func TestUnsupportedImagesAreOmitted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, size int) stdio.Image {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600))
		return stdio.Image{Path: filepath.Join(dir, name), MediaType: "image/png"}
	}
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	largest := file("largest", bridge.MaxImageBytes)
	got := bridge.ReadImages([]stdio.Image{
		{Path: filepath.Join(dir, "none")}, {Path: filepath.Join(dir, "pipe")}, file("over", bridge.MaxImageBytes+1), file("small", 2), largest, largest, largest,
	})
	var sizes []int
	for _, i := range got {
		data, err := base64.StdEncoding.DecodeString(i.Data)
		require.NoError(t, err)
		sizes = append(sizes, len(data))
	}
	require.Equal(t, []int{2, bridge.MaxImageBytes, bridge.MaxImageBytes}, sizes, "all of them have a bound")
	require.Equal(t, "data:image/png;base64,AAA=", got[0].URL())
}
