package receipt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/receipt"
)

func TestReceiptIsBounded(t *testing.T) {
	t.Parallel()
	short := receipt.Receipt{Kind: receipt.Partial, Missing: []string{}, Unchecked: []string{"a"}}
	require.Equal(t, short, short.Bounded())
	long := receipt.Receipt{Missing: make([]string, 5000)}
	for i := range long.Missing {
		long.Missing[i] = strings.Repeat("ü", 1<<10+1)
	}
	got := long.Bounded()
	require.Len(t, got.Missing, receipt.MaxItems+1)
	require.Equal(t, "4900 more", got.Missing[receipt.MaxItems])
	require.LessOrEqual(t, len(got.Missing[0]), receipt.MaxItem)
}
