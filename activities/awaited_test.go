package activities

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"github.com/overwinter-dev/overwinter/internal/contract"
)

func TestHeartbeatsNameWhatAttemptWaitsFor(t *testing.T) {
	t.Parallel()
	await(t.Context(), "nothing that is reported")()
	require.Nil(t, awaitedDetails(t.Context()))

	ctx := withAwaited(t.Context())
	require.Nil(t, awaitedDetails(ctx))
	first := await(ctx, "the first")
	second := await(ctx, "the second")
	first() // no longer the current wait
	var got contract.Awaited
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(awaitedDetails(ctx), &got))
	require.Equal(t, "the second", got.What)
	require.False(t, got.Since.IsZero())
	second()
	require.Nil(t, awaitedDetails(ctx))
}
