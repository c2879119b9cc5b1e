package temporald

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/dynamicconfig"
)

func TestDynamicConfigIsTuningUnderOverrides(t *testing.T) {
	t.Parallel()
	value := func(client dynamicconfig.StaticClient, key string) any {
		values := client.GetValue(dynamicconfig.MakeKey(key))
		require.Len(t, values, 1, key)
		return values[0].Value
	}

	plain, err := dynamicConfig(nil)
	require.NoError(t, err)
	require.Len(t, plain, len(tuning))
	require.Equal(t, 2000, value(plain, "history.transferProcessorMaxPollRPS"))
	require.Equal(t, false, value(plain, "frontend.enableServerVersionCheck"))

	overridden, err := dynamicConfig(map[string]string{
		"HISTORY.transferprocessormaxpollrps":  "7",
		"history.timerProcessorMaxPollRPS":     "8",
		"limit.blobSize.error":                 "1024",
		"system.namespaceCacheRefreshInterval": "3s",
	})
	require.NoError(t, err)
	require.Len(t, overridden, len(tuning)+2)
	require.Equal(t, 7, value(overridden, "history.transferProcessorMaxPollRPS"))
	require.Equal(t, 8, value(overridden, "history.timerProcessorMaxPollRPS"))
	require.Equal(t, 1024, value(overridden, "limit.blobSize.error"))
}
