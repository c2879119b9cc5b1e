package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// hits counts, outside every sandbox, how often the commands of a prompt ran.
type hits struct {
	server *httptest.Server
	mu     sync.Mutex
	counts map[string]int
	refuse map[string]bool // names that get 503
}

func newHits(t *testing.T) *hits {
	t.Helper()
	h := &hits{counts: map[string]int{}, refuse: map[string]bool{}}
	h.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		h.mu.Lock()
		defer h.mu.Unlock()
		h.counts[name]++
		if h.refuse[name] {
			http.Error(w, "refused", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "counted")
	}))
	t.Cleanup(h.server.Close)
	return h
}

// line returns a line of a demo script that counts once.
func (h *hits) line(name string) string { return "$ " + h.command(name) }

// command returns the shell command that counts once. It fails if the name is refused. If it cannot
// connect, for example while the local Modal that provides the network is frozen, nothing has been
// counted, and the command retries.
func (h *hits) command(name string) string {
	return fmt.Sprintf(`sh -c 'for i in $(seq 60); do curl -sfS --max-time 240 %s/%s; s=$?; case $s in 6|7) sleep 1;; *) exit $s;; esac; done; exit 7'`,
		insideURL(h.server.URL), name)
}

// insideURL returns the sandbox's form of a URL of this machine's loopback interface.
func insideURL(url string) string {
	return strings.Replace(url, "127.0.0.1", "host.overwinter.internal", 1)
}

func (h *hits) count(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[name]
}

// answer sets whether a name is refused.
func (h *hits) answer(name string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse[name] = !ok
}

// wait waits until a name has been counted.
func (h *hits) wait(t *testing.T, name string, within time.Duration) {
	t.Helper()
	eventually(t, within, name+" is counted", func() error {
		if h.count(name) == 0 {
			return fmt.Errorf("no hit")
		}
		return nil
	})
}
