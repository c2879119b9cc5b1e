package api_test

import (
	"context"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// pieces is a store with one transcript.
type pieces struct {
	*apitest.Store
	content iter.Seq2[[]byte, error]
	size    int64
}

func (p *pieces) TranscriptPositions(context.Context, string) ([]transcript.Position, error) {
	return []transcript.Position{{Path: "/t", Version: 1, Size: p.size}}, nil
}

func (p *pieces) TranscriptContent(context.Context, string, transcript.Position) iter.Seq2[[]byte, error] {
	return p.content
}

func (p *pieces) TranscriptFrom(context.Context, string, transcript.Position, int64) iter.Seq2[[]byte, error] {
	return p.content
}

// open sends a request whose response is read by the test.
func (b *harness) open(path string) io.ReadCloser {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+path, nil)
	require.NoError(b.t, err)
	req.Header = b.headers.Clone()
	resp, err := b.client.Do(req)
	require.NoError(b.t, err)
	require.Equal(b.t, http.StatusOK, resp.StatusCode)
	return resp.Body
}

// TestTranscriptIsStreamed reads a response that never ends.
func TestTranscriptIsStreamed(t *testing.T) {
	t.Parallel()
	store := &pieces{size: 1 << 40}
	stopped := make(chan struct{})
	store.content = func(yield func([]byte, error) bool) {
		defer close(stopped)
		line := []byte(strings.Repeat("a line of a transcript\n", 1000))
		for yield(line, nil) {
		}
	}
	b := setup(t, func(c *api.Config) { store.Store = c.Store.(*apitest.Store); c.Store = store })
	id := b.store.Put(session.Hibernated)
	r := b.open("/api/sessions/" + id + "/transcript?path=/t")
	_, err := io.CopyN(io.Discard, r, 20<<20)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	<-stopped
}

// TestTruncatedTranscriptIsDetectable fails after a part was sent.
func TestTruncatedTranscriptIsDetectable(t *testing.T) {
	t.Parallel()
	store := &pieces{size: 2 << 20}
	store.content = func(yield func([]byte, error) bool) {
		if yield([]byte(strings.Repeat("x", 1<<20)), nil) {
			yield(nil, failure.Errorf(failure.Unavailable, "Postgres is unavailable"))
		}
	}
	b := setup(t, func(c *api.Config) { store.Store = c.Store.(*apitest.Store); c.Store = store })
	id := b.store.Put(session.Hibernated)
	r := b.open("/api/sessions/" + id + "/transcript?path=/t")
	defer r.Close()
	_, err := io.Copy(io.Discard, r)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)

	store.content = func(yield func([]byte, error) bool) {
		yield(nil, failure.Errorf(failure.Unavailable, "Postgres is unavailable"))
	}
	b.do("GET", "/api/sessions/"+id+"/transcript?path=/t", "").problem(http.StatusServiceUnavailable, "unavailable")
	b.do("GET", "/api/sessions/"+id+"/transcript", "").problem(http.StatusServiceUnavailable, "unavailable")
}

// TestSecretSplitAcrossChunksIsMasked divides a value between pieces.
func TestSecretSplitAcrossChunksIsMasked(t *testing.T) {
	t.Parallel()
	const planted = "planted-value-0123456789"
	masker := secret.NewMasker([]secret.Named{{Name: "KEY", Value: secret.NewValue(planted)}})
	b := setup(t, func(c *api.Config) { c.Masks = masks(func() (*secret.Masker, error) { return masker, nil }) })
	id := b.store.Put(session.Hibernated)
	b.store.With(id, func(r *apitest.Row) {
		r.Transcripts = []transcript.File{{Path: "/t", Data: []byte("before " + planted + " after")}}
	})
	url := "/api/sessions/" + id + "/transcript"
	require.Equal(t, "before [redacted KEY] after", string(b.do("GET", url+"?path=/t", "").body))
	require.JSONEq(t, `{"files":[{"path":"/t","version":0,"size":27,"encoding":"utf-8","content":"before [redacted KEY] after"}]}`, string(b.do("GET", url, "").body))
}
