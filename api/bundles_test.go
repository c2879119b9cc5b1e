package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

func TestBundlesAreShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Hibernated)
	old, head := session.NewID(session.BundlePrefix), session.NewID(session.BundlePrefix)
	b.store.With(id, func(r *apitest.Row) {
		r.Bundles = []bundle.View{
			{Bundle: bundle.Bundle{ID: old, SessionID: id, CreatedAt: time.Now()}},
			{
				Bundle: bundle.Bundle{
					ID: head, SessionID: id, ParentID: old, Generation: 2, SnapshotID: "im-1", Verified: true, CreatedAt: time.Now(),
					Manifest: manifest.Manifest{
						AgentFiles: []manifest.File{{Path: "/root/a", Size: 5, SHA256: "x"}},
						Git:        &manifest.Git{Head: "abc", DirtyHash: "d"}, Tree: &manifest.Tree{Entries: 3, Bytes: 7},
					},
				},
				LastSeq: 9, PromptID: "p1", Outcome: session.OutcomeFailed, Head: true, HasFiles: true,
				Receipt: &receipt.Receipt{Kind: receipt.Full}, RestoredAt: time.Now(),
			},
		}
		r.Files = []workspacefile.Content{{Info: workspacefile.Info{Path: "dir/a.txt", Size: 5, SHA256: "x", ModifiedAt: time.Now()}, Data: []byte("hello")}}
		r.Diff = &workspacefile.Diff{Patch: []byte("+hello"), FilesChanged: 1, At: time.Now()}
		r.Conversation = conversation.Conversation{Threads: []conversation.Thread{{ID: conversation.Main, Blocks: []conversation.Block{
			{ID: "b", Type: conversation.AssistantText, Status: conversation.Complete, Content: "hello", CreatedAt: time.Now()},
		}}}}
	})
	var page struct {
		Items      []map[string]any
		NextCursor *string
	}
	b.do("GET", "/api/sessions/"+id+"/bundles?limit=1", "").into(&page)
	require.Len(t, page.Items, 1)
	require.Equal(t, head, page.Items[0]["id"])
	require.NotContains(t, page.Items[0], "context_state")
	b.do("GET", "/api/sessions/"+id+"/bundles?cursor="+*page.NextCursor, "").into(&page)
	require.Equal(t, old, page.Items[0]["id"])
	var got struct {
		Size    int64
		Context struct{ Bytes int64 } `json:"context_state"`
		History struct {
			LastSeq           int64
			PromptID, Outcome string
		} `json:"message_history_state"`
		LastRestore struct{ Receipt struct{ Kind string } }
	}
	b.do("GET", "/api/bundles/"+head, "").into(&got)
	require.EqualValues(t, 12, got.Size)
	require.EqualValues(t, 5, got.Context.Bytes)
	require.Equal(t, "p1", got.History.PromptID)
	require.Equal(t, "failed", got.History.Outcome)
	require.Equal(t, "full", got.LastRestore.Receipt.Kind)
	var blocks struct {
		Seq           int64
		Conversations []struct{ Blocks []struct{ Content string } }
	}
	b.do("GET", "/api/bundles/"+head+"/blocks", "").into(&blocks)
	require.EqualValues(t, 9, blocks.Seq)
	require.Equal(t, "hello", blocks.Conversations[0].Blocks[0].Content)
	var files struct{ Items []struct{ Path string } }
	b.do("GET", "/api/bundles/"+head+"/files?prefix=dir/", "").into(&files)
	require.Equal(t, "dir/a.txt", files.Items[0].Path)
	for _, path := range []string{"/files/dir/a.txt", "/files/dir%2Fa.txt"} {
		res := b.do("GET", "/api/bundles/"+head+path, "")
		require.Equal(t, http.StatusOK, res.status)
		require.Equal(t, "hello", string(res.body))
	}
	var diff struct{ Patch string }
	b.do("GET", "/api/bundles/"+head+"/diff", "").into(&diff)
	require.Equal(t, "+hello", diff.Patch)
	b.do("GET", "/api/bundles/"+head+"/files/none", "").problem(http.StatusNotFound, string(failure.NoFile))
	for _, path := range []string{"/files", "/files/dir/a.txt", "/diff"} {
		b.do("GET", "/api/bundles/"+old+path, "").problem(http.StatusConflict, string(failure.NotSaved))
	}
	require.Empty(t, b.temp.TakeCalls(), "reading wakes nothing")

	var pinned struct{ Pinned bool }
	for range 2 {
		b.do("POST", "/api/bundles/"+head+"/pin", "").into(&pinned)
		require.True(t, pinned.Pinned)
	}
	b.do("POST", "/api/bundles/"+head+"/unpin", "{}").into(&pinned)
	require.False(t, pinned.Pinned)
	b.do("POST", "/api/bundles/"+head+"/pin", `{"x":1}`).problem(http.StatusBadRequest, string(failure.Invalid))
	nowhere := "/api/bundles/" + session.NewID(session.BundlePrefix)
	for _, path := range []string{nowhere, nowhere + "/blocks", nowhere + "/files", nowhere + "/files/a", nowhere + "/diff"} {
		b.do("GET", path, "").problem(http.StatusNotFound, string(failure.NoBundle))
	}
	b.do("GET", "/api/bundles/x", "").problem(http.StatusBadRequest, string(failure.Invalid))
}
