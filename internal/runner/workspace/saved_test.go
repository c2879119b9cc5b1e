package workspace

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

func someSaved() saved {
	return saved{
		Session: "ses_1", Lineage: "l", Seq: 7, Base: "abc", Begun: true, Empty: true, Bounded: 3,
		Entries: map[string]*entry{
			"a/b.go": {
				Stat:   stat{Size: 5, Modified: 1_700_000_000_123_456_789, Changed: -4, Inode: 1 << 63, Mode: 0o644},
				SHA256: "sum", Seq: 4, Initial: true, Known: true, There: true, First: "first", FirstSize: 9,
			},
			"odd \n name": {Unsaved: workspacefile.UnsavedFull, Deleted: true, Racy: true},
		},
	}
}

func TestSavedIndexIsReadBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, want := range []saved{someSaved(), {Session: "ses_2", Entries: map[string]*entry{}}} {
		require.NoError(t, writeSaved(dir, want))
		got, err := readSaved(dir)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestIndexOfEarlierReleaseIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := someSaved()
	data, err := json.Marshal(want)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(legacyFile(dir), data, 0o600))
	got, err := readSaved(dir)
	require.NoError(t, err)
	require.Equal(t, want, got)
	want.Seq++
	require.NoError(t, writeSaved(dir, want))
	got, err = readSaved(dir)
	require.NoError(t, err)
	require.Equal(t, want, got)
	kept, err := os.ReadFile(legacyFile(dir))
	require.NoError(t, err)
	require.Equal(t, data, kept, "an earlier release may need it again")
}

func TestTruncatedIndexIsRefused(t *testing.T) {
	t.Parallel()
	data, err := encodeSaved(someSaved())
	require.NoError(t, err)
	for n := range data {
		_, err := decodeSaved(string(data[:n]))
		require.Error(t, err, "the first %d bytes", n)
	}
	_, err = decodeSaved(string(data) + "x")
	require.Error(t, err)
	for i := range data { // no byte may crash the program or make it allocate more than the file can contain
		for _, b := range []byte{0, 0x7f, 0x80, 0xff} {
			changed := append([]byte{}, data...)
			changed[i] = b
			_, _ = decodeSaved(string(changed)) // it may decode as another index
		}
	}
}

// TestLargeIndexCostsFewAllocations counts allocations, because the index is read before the first prompt after a restore is delivered.
func TestLargeIndexCostsFewAllocations(t *testing.T) { //nolint:paralleltest // counts the allocations of the whole process
	s := saved{Entries: map[string]*entry{}}
	for n := range 10_000 {
		s.Entries[fmt.Sprintf("d%d/f%d", n%100, n)] = &entry{SHA256: fmt.Sprintf("%064d", n), Known: true}
	}
	data, err := encodeSaved(s)
	require.NoError(t, err)
	text := string(data)
	require.Less(t, testing.AllocsPerRun(3, func() { _, _ = decodeSaved(text) }), 500.0)
}
