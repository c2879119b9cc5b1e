package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

func TestManifestOfUntrustedRunnerIsBounded(t *testing.T) {
	t.Parallel()
	usual := manifest.Manifest{
		AgentFiles: []manifest.File{{Path: "/root/a", Size: 1, SHA256: strings.Repeat("a", 64)}},
		Git:        &manifest.Git{Head: strings.Repeat("b", 40)},
		Tree:       &manifest.Tree{Digest: strings.Repeat("c", 64), Index: strings.Repeat("d", 64), Entries: 3, Bytes: 4},
		LastSeq:    5, Runner: "build",
	}
	require.Equal(t, usual, usual.Bounded())

	long := strings.Repeat("ü", 1<<20) // shared
	tooLong := strings.Repeat("p", transcript.MaxPath)
	forged := manifest.Manifest{
		Git: &manifest.Git{Head: long, DirtyHash: long}, Tree: &manifest.Tree{Digest: long, Index: long, Unchecked: long},
		Runner: long, Lost: []string{long},
	}
	for i := range 3 * transcript.MaxFiles {
		path := fmt.Sprintf("/%d", i)
		forged.AgentFiles = append(forged.AgentFiles, manifest.File{Path: path, SHA256: long}, manifest.File{Path: path + "\x00"},
			manifest.File{Path: path + "\xff"}, manifest.File{Path: path + tooLong})
	}
	got := forged.Bounded()
	require.Len(t, got.AgentFiles, transcript.MaxFiles)
	for _, f := range got.AgentFiles {
		require.LessOrEqual(t, len(f.SHA256), 1024)
		require.NotContains(t, f.Path, "\x00")
	}
	for _, text := range []string{got.Git.Head, got.Git.DirtyHash, got.Tree.Digest, got.Tree.Index, got.Tree.Unchecked, got.Runner} {
		require.LessOrEqual(t, len(text), 1024)
	}
	require.Empty(t, got.Lost)
}
