package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// part is a piece of a file in a page.
type part struct {
	Path, Encoding, Content string
	Version, Offset, Size   int64
}

func (p part) bytes(t *testing.T) []byte {
	t.Helper()
	if p.Encoding == "utf-8" {
		return []byte(p.Content)
	}
	data, err := base64.StdEncoding.DecodeString(p.Content)
	require.NoError(t, err)
	return data
}

// pagesOf reads all pages of transcripts, and calls after with each page's pieces.
func (b *harness) pagesOf(t *testing.T, target string, after func([]part)) {
	t.Helper()
	for cursor := ""; ; {
		a := b.do("GET", target+"&cursor="+url.QueryEscape(cursor), "")
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
		var page struct {
			Files      []part
			NextCursor *string
		}
		require.NoError(t, json.Unmarshal(a.body, &page))
		after(page.Files)
		if page.NextCursor == nil {
			return
		}
		require.NotEqual(t, cursor, *page.NextCursor)
		cursor = *page.NextCursor
	}
}

// The pieces of all pages make up the files, regardless of the content at their borders.
func TestTranscriptsHavePages(t *testing.T) {
	t.Parallel()
	const planted = "planted-value-0123456789"
	masker := secret.NewMasker([]secret.Named{{Name: "KEY", Value: secret.NewValue(planted)}})
	for _, m := range []*secret.Masker{nil, masker} {
		b := setup(t, func(c *api.Config) {
			if m != nil {
				c.Masks = masks(func() (*secret.Masker, error) { return m, nil })
			}
		})
		id := b.store.Put(session.Hibernated)
		var large bytes.Buffer
		for i := 0; large.Len() < 3<<20; i++ {
			fmt.Fprintf(&large, "line %d \"ü🐻<\" %s\n", i, planted)
		}
		files := []transcript.File{
			{Path: "/b/large.jsonl", Version: 3, Data: large.Bytes()},
			{Path: "/a.jsonl", Data: []byte("one\n" + planted)},
			{Path: "/b", Data: nil},
			{Path: "/binary", Data: bytes.Repeat([]byte{0xff, 0, 'x'}, 1<<19)},
			{Path: "/c", Data: []byte("the end")},
		}
		b.store.With(id, func(r *apitest.Row) { r.Transcripts = files })
		path := "/api/sessions/" + id + "/transcript"
		for _, limit := range []int{1, 2, 100} {
			got, pages, order := map[string][]byte{}, 0, []string{}
			b.pagesOf(t, fmt.Sprintf("%s?limit=%d", path, limit), func(parts []part) {
				pages++
				total := int64(0)
				require.LessOrEqual(t, len(parts), limit)
				for _, p := range parts {
					if p.Offset == 0 {
						require.NotContains(t, got, p.Path)
						order = append(order, p.Path)
					}
					data := p.bytes(t)
					require.Len(t, data, int(p.Size))
					require.True(t, p.Encoding == "base64" || utf8.Valid(data))
					got[p.Path] = append(got[p.Path], data...)
					total += p.Size
				}
				require.Less(t, total, int64(1<<20+128<<10))
			})
			require.Equal(t, []string{"/a.jsonl", "/b", "/b/large.jsonl", "/binary", "/c"}, order)
			for _, f := range files {
				require.True(t, bytes.Equal(m.Bytes(f.Data), got[f.Path]), "%s, limit %d", f.Path, limit)
			}
			require.GreaterOrEqual(t, pages, 4)
		}
		// A single file, and invalid requests for pages.
		var one []byte
		b.pagesOf(t, path+"?limit=100&path=/b/large.jsonl", func(parts []part) {
			require.Len(t, parts, 1)
			require.EqualValues(t, 3, parts[0].Version)
			one = append(one, parts[0].bytes(t)...)
		})
		require.True(t, bytes.Equal(m.Bytes(large.Bytes()), one))
		b.do("GET", path+"?limit=1&path=/none", "").problem(http.StatusNotFound, "not_found")
		for query, field := range map[string]string{
			"limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "cursor=x": "cursor", "cursor=e30": "cursor", "cursor=" + strings.Repeat("x", 4097): "cursor",
		} {
			require.Equal(t, field, b.do("GET", path+"?"+query, "").problem(http.StatusBadRequest, "invalid_request").Errors[0].Field, query)
		}
	}
}

// A growing file continues. A rewritten file starts again.
func TestPagesOfChangingTranscript(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	set := func(version int64, text string) {
		b.store.With(id, func(r *apitest.Row) {
			r.Transcripts = []transcript.File{{Path: "/t", Version: version, Data: []byte(text)}, {Path: "/u", Data: []byte("u")}}
		})
	}
	path := "/api/sessions/" + id + "/transcript?limit=100"
	first := strings.Repeat("a", 1<<20)
	set(1, first+strings.Repeat("b", 1<<20))
	var got []part
	b.pagesOf(t, path, func(parts []part) {
		got = append(got, parts...)
		if len(got) == 1 {
			set(1, first+strings.Repeat("b", 1<<20)+"c")
		}
	})
	var whole string
	for _, p := range got[:len(got)-1] {
		require.Equal(t, "/t", p.Path)
		whole += p.Content
	}
	require.Equal(t, first+strings.Repeat("b", 1<<20)+"c", whole)
	require.Equal(t, "u", got[len(got)-1].Content)

	got = nil
	b.pagesOf(t, path, func(parts []part) {
		got = append(got, parts...)
		if len(got) == 1 {
			set(2, "new")
		}
	})
	require.Len(t, got, 3)
	require.Equal(t, part{Path: "/t", Encoding: "utf-8", Content: "new", Version: 2, Size: 3}, got[1])
}
