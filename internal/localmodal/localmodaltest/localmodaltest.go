// Package localmodaltest provides tests with their own local Modals and with clients of the
// unmodified SDK. One process may use any number of each.
//
// The test binary's TestMain must call localmodal.ReexecMain before anything else.
package localmodaltest

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/access"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// Start runs a server until the test ends. Its data directory is temporary
// unless o names one.
func Start(t testing.TB, o localmodal.Options) *localmodal.Server {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = memorytest.Dir(t)
		t.Cleanup(func() {
			if err := Unlock(o.DataDir); err != nil {
				t.Errorf("local Modal: unlock data directory: %v", err)
			}
		})
	}
	s, err := localmodal.New(o)
	require.NoError(t, err)
	Run(t, s)
	return s
}

// Unlock lets an ordinary user delete directories that a sandbox has locked.
func Unlock(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return err
	})
}

// Run runs a server until the test ends, or until the returned function is called.
func Run(t testing.TB, s *localmodal.Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("local Modal: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// Client returns an SDK client for the server at url.
func Client(t testing.TB, url string, token access.Token) *modal.Client {
	t.Helper()
	p := &modal.ClientParams{TokenID: token.ID, TokenSecret: token.Secret}
	config := allocate(&p.Config)
	require.NoError(t, configure(config, url))
	c, err := modal.NewClientWithOptions(p)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// The SDK reads its server's address from the environment or a file, both of which are global to
// the process, or from ClientParams.Config, whose type is unexported. Type inference does not need
// its name.
func allocate[T any](p **T) *T {
	*p = new(T)
	return *p
}

func configure[M ~map[string]V, V any](config *M, url string) error {
	b, err := json.Marshal(map[string]any{"local": map[string]any{"ServerURL": url, "Active": true}})
	if err != nil {
		return err
	}
	return json.Unmarshal(b, config)
}
