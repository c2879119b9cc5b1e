package turn

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/receipt"
)

func TestAgentGetsReceiptOfPartialRestore(t *testing.T) {
	t.Parallel()
	require.Empty(t, receiptNote(nil))
	require.Empty(t, receiptNote(&receipt.Receipt{Kind: receipt.Full}))
	require.Empty(t, receiptNote(&receipt.Receipt{Kind: receipt.Unverified}), "nothing is known to be missing")
	require.Contains(t, receiptNote(&receipt.Receipt{Kind: receipt.Fresh}), "no memory of earlier prompts")
	partial := receiptNote(&receipt.Receipt{Kind: receipt.Partial, Missing: []string{"workspace", "a\nfile"}})
	require.Contains(t, partial, "Missing or different:\n- workspace\n- a file\n")
	require.NotContains(t, partial, "no memory")

	many := make([]string, 500)
	for i := range many {
		many[i] = strings.Repeat("long ", 1000)
	}
	require.Less(t, len(receiptNote(&receipt.Receipt{Kind: receipt.Partial, Missing: many})), 6000)
}
