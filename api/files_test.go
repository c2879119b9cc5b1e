package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// The leading bytes of PNG and GIF files, which suffice for a detector.
const (
	pngBytes = "\x89PNG\r\n\x1a\n0000"
	gifBytes = "GIF89a000"
)

func file(path, text string) workspacefile.Content {
	return workspacefile.Content{
		Info: workspacefile.Info{Path: path, Size: int64(len(text)), SHA256: "abc123", Mode: 0o644, ModifiedAt: time.Unix(1_700_000_000, 0)},
		Data: []byte(text),
	}
}

func withFiles(t *testing.T, files ...workspacefile.Content) (b *harness, url string) {
	t.Helper()
	b = setup(t)
	id := b.store.Put(session.Hibernated)
	b.store.With(id, func(r *apitest.Row) { r.Files = files })
	return b, "/api/sessions/" + id
}

func TestFilesAreListed(t *testing.T) {
	t.Parallel()
	large := file("dir/large", "")
	large.Size, large.Unsaved = 2<<20, workspacefile.UnsavedTooLarge
	b, url := withFiles(t, file("a", "1"), large)
	var page struct {
		Items []struct {
			Path, SHA256, Unsaved, ModifiedAt string
			Size                              int64
			Saved                             bool
		}
		NextCursor *string
	}
	b.do("GET", url+"/files", "").into(&page)
	require.Len(t, page.Items, 2)
	require.Equal(t, "2023-11-14T22:13:20.000Z", page.Items[0].ModifiedAt)
	require.True(t, page.Items[0].Saved)
	require.False(t, page.Items[1].Saved)
	require.Equal(t, "too_large", page.Items[1].Unsaved)
	require.EqualValues(t, 2<<20, page.Items[1].Size)
	b.do("GET", url+"/files?prefix=dir%2F", "").into(&page)
	require.Len(t, page.Items, 1)

	b.do("GET", url+"/files?limit=0", "").problem(http.StatusBadRequest, "invalid_request")
	b.do("GET", url+"/files?prefix=%00", "").problem(http.StatusBadRequest, "invalid_request")
	b.do("GET", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/files", "").problem(http.StatusNotFound, "session_not_found")
	b.do("POST", url+"/files", "").problem(http.StatusMethodNotAllowed, "method_not_allowed")
	require.Empty(t, b.temp.TakeCalls(), "reading wakes no session")
}

func TestFilesAreServedSafely(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, text, kind, disposition string }{
		{"main.go", "package main\n", "text/plain; charset=utf-8", `inline; filename=main.go`},
		{"notes", "<html><script>alert(1)</script>", "text/plain; charset=utf-8", `inline; filename=notes`},
		{"page.html", "<script>alert(1)</script>", "text/html; charset=utf-8", `attachment; filename=page.html`},
		{"logo.svg", "<svg onload=alert(1)>", "image/svg+xml", `attachment; filename=logo.svg`},
		{"shot.PNG", pngBytes, "image/png", `inline; filename=shot.PNG`},
		{"shot", gifBytes, "image/gif", `inline; filename=shot`},
		{"liar.png", "<script>", "application/octet-stream", `attachment; filename=liar.png`},
		{"app.js", "alert(1)", "text/javascript; charset=utf-8", `attachment; filename=app.js`},
		{"data.json", "{}", "application/json", `attachment; filename=data.json`},
		{"latin", "caf\xe9 " + strings.Repeat("x", 20), "application/octet-stream", `attachment; filename=latin`},
		{"bin", "\x00\x01", "application/octet-stream", `attachment; filename=bin`},
		{"a \"b\"\r\n.txt", "x", "text/plain; charset=utf-8", `inline; filename*=utf-8''a%20%22b%22%0D%0A.txt`},
		{"ä.txt", "x", "text/plain; charset=utf-8", `inline; filename*=utf-8''%C3%A4.txt`},
		{"empty.txt", "", "text/plain; charset=utf-8", `inline; filename=empty.txt`},
	}
	for _, c := range cases {
		b, url := withFiles(t, file("dir/"+c.name, c.text))
		escaped := strings.NewReplacer(" ", "%20", `"`, "%22", "\r", "%0D", "\n", "%0A", "ä", "%C3%A4").Replace(c.name)
		for _, slash := range []string{"/", "%2F"} {
			got := b.do("GET", url+"/files/dir"+slash+escaped, "")
			require.Equal(t, http.StatusOK, got.status, "%q: %s", c.name, got.body)
			require.Equal(t, c.text, string(got.body))
			require.Equal(t, c.kind, got.header.Get("Content-Type"), "%q", c.name)
			require.Equal(t, c.disposition, got.header.Get("Content-Disposition"))
			require.Equal(t, "nosniff", got.header.Get("X-Content-Type-Options"))
			require.Contains(t, got.header.Get("Content-Security-Policy"), "sandbox")
			require.Equal(t, `"abc123"`, got.header.Get("ETag"))
		}
		got := b.do("GET", url+"/files/dir/"+escaped+"?download=1", "")
		require.Contains(t, got.header.Get("Content-Disposition"), "attachment")
	}
}

func TestFilesAreServedInPartAndNotTwice(t *testing.T) {
	t.Parallel()
	b, url := withFiles(t, file("a", "0123456789"))
	require.Equal(t, http.StatusNotModified, b.do("GET", url+"/files/a", "", "If-None-Match", `"abc123"`).status)
	require.Equal(t, http.StatusOK, b.do("GET", url+"/files/a", "", "If-None-Match", `"other"`).status)
	part := b.do("GET", url+"/files/a", "", "Range", "bytes=2-4")
	require.Equal(t, http.StatusPartialContent, part.status)
	require.Equal(t, "234", string(part.body))
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, b.do("GET", url+"/files/a", "", "Range", "bytes=20-").status)
}

func TestUnreadableFilesReturnReason(t *testing.T) {
	t.Parallel()
	unsaved := func(path string, why workspacefile.Unsaved) workspacefile.Content {
		f := file(path, "")
		f.Size, f.Unsaved, f.Data = 5<<20, why, nil
		return f
	}
	b, url := withFiles(t, unsaved("large", workspacefile.UnsavedTooLarge), unsaved("full", workspacefile.UnsavedFull), unsaved("locked", workspacefile.UnsavedUnreadable))
	require.Contains(t, b.do("GET", url+"/files/large", "").problem(http.StatusRequestEntityTooLarge, "too_large").Detail, "1048576")
	require.Contains(t, b.do("GET", url+"/files/full", "").problem(http.StatusConflict, "file_not_saved").Detail, "67108864")
	b.do("GET", url+"/files/locked", "").problem(http.StatusConflict, "file_not_saved")
	b.do("GET", url+"/files/none", "").problem(http.StatusNotFound, "file_not_found")
	b.do("GET", url+"/files/dir/../large", "").problem(http.StatusNotFound, "file_not_found")
	b.do("GET", url+"/files/%ff", "").problem(http.StatusBadRequest, "invalid_request")
	b.do("GET", url+"/files/a%00", "").problem(http.StatusBadRequest, "invalid_request")
	b.do("GET", url+"/files/"+strings.Repeat("x", 1025), "").problem(http.StatusBadRequest, "invalid_request")
	b.do("GET", "/api/sessions/other/files/a", "").problem(http.StatusBadRequest, "invalid_request")
}

func TestDiffIsServed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Hibernated)
	url := "/api/sessions/" + id + "/diff"
	var got map[string]any
	b.do("GET", url, "").into(&got)
	require.Nil(t, got["computedAt"])
	require.Equal(t, []any{}, got["files"])
	b.store.With(id, func(r *apitest.Row) {
		r.Diff = &workspacefile.Diff{
			Base: "c0ffee", FilesChanged: 1, Additions: 3, Patch: []byte("+a\n"), Truncated: true, At: time.Unix(1_700_000_000, 0),
			Files: []workspacefile.Delta{{Path: "a", Change: workspacefile.Created, Additions: 3}},
			Git:   &workspacefile.GitState{Branch: "main", Head: "c0ffee", Dirty: true},
		}
	})
	b.do("GET", url, "").into(&got)
	require.Equal(t, map[string]any{
		"base": "c0ffee", "git": map[string]any{"branch": "main", "head": "c0ffee", "dirty": true},
		"files":        []any{map[string]any{"path": "a", "change": "created", "additions": 3.0, "deletions": 0.0}},
		"filesChanged": 1.0, "additions": 3.0, "deletions": 0.0, "patch": "+a\n", "truncated": true, "computedAt": "2023-11-14T22:13:20.000Z",
	}, got)
	b.do("GET", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/diff", "").problem(http.StatusNotFound, "session_not_found")
}
