package activities_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// TestSandboxLostDuringRestoreConsumesGeneration checks that the loss is not a failure of the
// session, which loses nothing. The next generation is restored from the same bundle.
func TestSandboxLostDuringRestoreConsumesGeneration(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	first := b.create(t)
	_, err := b.save(first)
	require.NoError(t, err)
	b.terminate(t, first)

	b.driver.set(func(f *faulty) {
		f.exec = func(r driver.ExecRequest) error {
			if !slices.Contains(r.Argv, "verify") {
				return nil
			}
			listed, err := driver.Collect(b.provider.List(b.ctx))
			if err != nil {
				return err
			}
			for _, l := range listed {
				if err := b.provider.Open(l.ID).Terminate(b.ctx); err != nil {
					return err
				}
			}
			return nil
		}
	})
	_, err = b.restore(2)
	require.Equal(t, activities.GenerationUnusable, activities.TypeOf(err), "%v", err)
	open, err := b.db.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Empty(t, open)

	b.driver.repair()
	ready, err := b.restore(3)
	require.NoError(t, err)
	require.EqualValues(t, 3, ready.Generation)
	require.Equal(t, receipt.Full, ready.Receipt.Kind, "%+v", ready.Receipt)
}
