package test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSessionsWithUncachedWorkflowsWork prompts sessions whose workflows a worker with a small
// cache may have evicted: it replays their histories.
func TestSessionsWithUncachedWorkflowsWork(t *testing.T) {
	t.Parallel()
	s := startStackEnv(t, []string{"OVERWINTER_CACHED_WORKFLOWS=10"})
	var ids []string
	eventually(t, within, "the worker has evicted workflows", func() error {
		ids = append(ids, s.create(t, object{"idleTimeout": "24h"}))
		if evicted := s.workerMetric(t, "temporal_sticky_cache_total_forced_eviction"); evicted < 5 {
			return fmt.Errorf("%v of %d were evicted", evicted, len(ids))
		}
		return nil
	})
	for _, id := range []string{ids[0], ids[len(ids)-1]} {
		s.prompt(t, id, "p1", "hello")
		require.Equal(t, "completed", s.waitPrompt(t, id, "p1", within)["status"])
	}
}

// workerMetric is the sum of a metric of the worker over all labels.
func (s *stack) workerMetric(t *testing.T, name string) (sum float64) {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.child(t, "overwinter", "worker", "--health-address")))
	require.NoError(t, err)
	argv := strings.Split(string(line), "\x00")
	at := slices.Index(argv, "--health-address")
	response, err := http.Get("http://" + argv[at+1] + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	for lines := bufio.NewReader(response.Body); ; {
		text, err := lines.ReadString('\n')
		if rest, ok := strings.CutPrefix(text, name); ok && strings.HasPrefix(rest, "{") {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndex(rest, " ")+1:]), 64)
			require.NoError(t, err)
			sum += value
		}
		if err == io.EOF {
			return sum
		}
		require.NoError(t, err)
	}
}
