package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the root of the repository.
const root = "../.."

// Without a digest, moving an image's tag would change the builds without a change in this
// repository.
func TestEveryImageHasDigest(t *testing.T) {
	t.Parallel()
	found, err := references(root)
	require.NoError(t, err)
	for _, r := range found {
		require.Regexp(t, pinned, r.image, "%s: run make pin-images", r.file)
	}
	require.Len(t, found, 6)
}

// copyOf returns a copy of the files that are rewritten.
func copyOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for file := range sources {
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
	return dir
}

func TestPinningWritesDigests(t *testing.T) {
	t.Parallel()
	dir := copyOf(t)
	digest := "sha256:" + strings.Repeat("0a", 32)
	require.NoError(t, pin(t.Context(), dir, func(_ context.Context, image string) (string, error) {
		require.NotContains(t, image, "@")
		return digest, nil
	}))
	found, err := references(dir)
	require.NoError(t, err)
	require.Len(t, found, 6)
	for _, r := range found {
		require.Regexp(t, `^[a-z]+:\S+@`+digest+"$", r.image)
	}
}

func TestPinningChangesNothingWithoutAllDigests(t *testing.T) {
	t.Parallel()
	for name, digest := range map[string]func(string) (string, error){
		"the registry is unavailable": func(image string) (string, error) {
			if strings.HasPrefix(image, "golang") {
				return "", errors.New("no such host")
			}
			return "sha256:" + strings.Repeat("0a", 32), nil
		},
		"no digest": func(string) (string, error) { return "latest", nil },
	} {
		dir := copyOf(t)
		require.Error(t, pin(t.Context(), dir, func(_ context.Context, image string) (string, error) { return digest(image) }), name)
		for file := range sources {
			before, err := os.ReadFile(filepath.Join(root, file))
			require.NoError(t, err)
			after, err := os.ReadFile(filepath.Join(dir, file))
			require.NoError(t, err)
			require.Equal(t, string(before), string(after), file)
		}
	}
}
