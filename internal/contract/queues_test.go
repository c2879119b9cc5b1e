package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/contract"
)

func TestQueuesHaveInstallationInTheirNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, contract.Queues{Control: "overwinter-control-0a", Turns: "overwinter-turns-0a"}, contract.QueuesOf("0a"))
	require.Equal(t, contract.Queues{Control: "overwinter-control", Turns: "overwinter-turns"}, contract.QueuesOf(""), "as recorded workflows have them")
	require.Equal(t, "overwinter-reconcile", contract.ScheduleOf(""))
	require.NotEqual(t, contract.ScheduleOf("0a"), contract.ScheduleOf("0b"))
	for _, id := range []string{"", "0a"} {
		require.Equal(t, contract.QueuesOf(id), contract.QueuesAt(contract.QueuesOf(id).Control))
	}
	require.Equal(t, contract.QueuesOf(""), contract.QueuesAt("elsewhere"))
	require.Equal(t, contract.QueuesOf(""), contract.QueuesAt("overwinter-controls"))
}
