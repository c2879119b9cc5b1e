package turn

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestAnAgentIsGivenWhatItsRestoreLacked(t *testing.T) {
	t.Parallel()
	require.Empty(t, receiptNote(nil))
	require.Empty(t, receiptNote(&session.Receipt{Kind: session.ReceiptFull}))
	require.Empty(t, receiptNote(&session.Receipt{Kind: session.ReceiptUnverified}), "nothing is known to be missing")
	require.Contains(t, receiptNote(&session.Receipt{Kind: session.ReceiptFresh}), "no memory of earlier prompts")
	partial := receiptNote(&session.Receipt{Kind: session.ReceiptPartial, Missing: []string{"workspace", "a\nfile"}})
	require.Contains(t, partial, "Missing or different:\n- workspace\n- a file\n")
	require.NotContains(t, partial, "no memory")

	many := make([]string, 500)
	for i := range many {
		many[i] = strings.Repeat("long ", 1000)
	}
	require.Less(t, len(receiptNote(&session.Receipt{Kind: session.ReceiptPartial, Missing: many})), 6000)
}
