package session_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

func TestAManifestOfAnUntrustedRunnerIsBounded(t *testing.T) {
	t.Parallel()
	usual := session.Manifest{
		AgentFiles: []session.ManifestFile{{Path: "/root/a", Size: 1, SHA256: strings.Repeat("a", 64)}},
		Git:        &session.ManifestGit{Head: strings.Repeat("b", 40)},
		Tree:       &session.ManifestTree{Digest: strings.Repeat("c", 64), Index: strings.Repeat("d", 64), Entries: 3, Bytes: 4},
		LastSeq:    5, Runner: "build",
	}
	require.Equal(t, usual, usual.Bounded())

	long := strings.Repeat("ü", 1<<20) // shared
	tooLong := strings.Repeat("p", transcript.MaxPath)
	forged := session.Manifest{
		Git: &session.ManifestGit{Head: long, DirtyHash: long}, Tree: &session.ManifestTree{Digest: long, Index: long, Unchecked: long},
		Runner: long, Lost: []string{long},
	}
	for i := range 3 * transcript.MaxFiles {
		path := fmt.Sprintf("/%d", i)
		forged.AgentFiles = append(forged.AgentFiles, session.ManifestFile{Path: path, SHA256: long}, session.ManifestFile{Path: path + "\x00"},
			session.ManifestFile{Path: path + "\xff"}, session.ManifestFile{Path: path + tooLong})
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

func TestAReceiptIsBounded(t *testing.T) {
	t.Parallel()
	short := session.Receipt{Kind: session.ReceiptPartial, Missing: []string{}, Unchecked: []string{"a"}}
	require.Equal(t, short, short.Bounded())
	long := session.Receipt{Missing: make([]string, 5000)}
	for i := range long.Missing {
		long.Missing[i] = strings.Repeat("ü", 1<<10+1)
	}
	got := long.Bounded()
	require.Len(t, got.Missing, session.MaxReceiptItems+1)
	require.Equal(t, "4900 more", got.Missing[session.MaxReceiptItems])
	require.LessOrEqual(t, len(got.Missing[0]), session.MaxReceiptItem)
}
