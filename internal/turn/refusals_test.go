package turn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPositionOfRecordedRefusals(t *testing.T) {
	t.Parallel()
	watch := func(change func(*refusalWatch)) *refusalWatch {
		w := &refusalWatch{begun: true, after: 5, count: maxRefusals - 1}
		change(w)
		return w
	}
	require.Nil(t, watch(func(w *refusalWatch) { w.begun = false }).recordedTo(), "no query has succeeded")
	require.Nil(t, watch(func(w *refusalWatch) { w.count++ }).recordedTo(), "the others were not recorded")
	require.Nil(t, watch(func(w *refusalWatch) { w.unsure = true }).recordedTo(), "the refusals after it may be recorded")

	w := watch(func(*refusalWatch) {})
	to := w.recordedTo()
	require.EqualValues(t, 5, *to)
	w.after = 6
	require.EqualValues(t, 5, *to, "it does not keep the watch in memory")
}
