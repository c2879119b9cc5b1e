package session_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

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
