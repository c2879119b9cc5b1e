package store

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

type record struct{ Value string }

func TestRecordsSurvive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := Open[record](dir)
	require.NoError(t, err)
	require.NoError(t, c.Put("main/name:tag", record{"one"}))
	require.NoError(t, c.Put("main/name:tag", record{"two"}))
	require.NoError(t, c.Put("gone", record{"x"}))
	require.NoError(t, c.Delete("gone"))
	require.NoError(t, c.Delete("never was"))
	// A file that a kill leaves during a write.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "writing-123"), []byte(`{"Val`), 0o600))

	again, err := Open[record](dir)
	require.NoError(t, err)
	require.Equal(t, []record{{"two"}}, again.All())
	got, ok := again.Get("main/name:tag")
	require.True(t, ok)
	require.Equal(t, record{"two"}, got)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestDamagedRecordIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), []byte("nonsense"), 0o600))
	_, err := Open[record](dir)
	require.ErrorContains(t, err, "a.json")
}

func TestMemoryAndDiskAgreeAfterManyWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := Open[record](dir)
	require.NoError(t, err)
	var writers sync.WaitGroup
	for i := range 16 {
		writers.Go(func() {
			if err := c.Put("one", record{fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	again, err := Open[record](dir)
	require.NoError(t, err)
	require.Equal(t, c.All(), again.All())
}
