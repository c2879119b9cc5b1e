package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// archived returns an archive with a manifest that change modifies.
func archived(t *testing.T, memory string, change func(*portable.Writer, *portable.Manifest)) []byte {
	t.Helper()
	var out bytes.Buffer
	w := portable.NewWriter(&out)
	m := portable.Manifest{
		MemoryID: memory, Workspace: portable.Workspace, Home: portable.Home,
		Session: portable.Session{Agent: "demo", Title: "mine", Options: []byte(`{"model":"m1"}`)},
		Source:  portable.Source{Place: "/home/ada", PromptID: "p1", Outcome: "completed"},
	}
	if change != nil {
		change(w, &m)
	}
	require.NoError(t, w.Close(m))
	return out.Bytes()
}

const archiveType = "application/gzip"

func (b *harness) send(archive []byte, query string, headers ...string) answer {
	return b.doRaw("POST", "/api/bundles/import"+query, bytes.NewReader(archive), append([]string{"Content-Type", archiveType}, headers...)...)
}

func TestArchiveBecomesSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	memory := session.NewID(session.SessionPrefix)
	path := "/root/.overwinter-demo/" + memory + "/transcript.jsonl"
	archive := archived(t, memory, func(w *portable.Writer, m *portable.Manifest) {
		require.NoError(t, w.File("a.txt", 0o644, 1, strings.NewReader("x")))
		require.NoError(t, w.AgentFile(path, 2, strings.NewReader("{}")))
		lines := `{"conversation":"main","block":{"id":"b1","type":"assistant_text","status":"streaming","createdAt":"2026-01-02T03:04:05Z","content":"half"}}` + "\n" +
			`{"conversation":"sub","block":{"id":"b1","type":"system","status":"complete","createdAt":"2026-01-02T03:04:05Z","subtype":"x","message":"y"}}` + "\n"
		require.NoError(t, w.Conversation(int64(len(lines)), strings.NewReader(lines)))
		m.AddMissing("node_modules/ (ignored by the repository)")
		m.Session.Profile = "elsewhere"
	})
	a := b.send(archive, "", "Idempotency-Key", "k1")
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	got := a.session()
	require.Equal(t, session.Hibernated, got.Status)
	require.Equal(t, "mine", got.Title)
	require.Equal(t, "m1", got.Options.Model)
	require.Empty(t, got.Profile, "a profile is not chosen by an archive")
	require.Equal(t, "/api/sessions/"+got.ID, a.header.Get("Location"))
	in, stored := b.store.Imported()
	require.Equal(t, archive, stored)
	require.Equal(t, memory, in.MemoryID)
	require.True(t, in.Remembers)
	require.Equal(t, "/home/ada", in.Manifest.From)
	require.Equal(t, []string{"node_modules/ (ignored by the repository)"}, in.Manifest.Lost)
	require.Equal(t, path, in.Manifest.AgentFiles[0].Path)
	require.Len(t, in.Blocks, 2)
	require.Contains(t, string(in.Blocks[0].JSON), `"status":"aborted"`, "nothing follows of a block that was open")
	require.Equal(t, "sub", in.Blocks[1].Conversation)

	again := b.send(archive, "", "Idempotency-Key", "k1")
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, got.ID, again.session().ID)
	b.send(archived(t, memory, nil), "", "Idempotency-Key", "k1").problem(http.StatusConflict, string(failure.Idempotency))
	require.Equal(t, "other", b.send(archive, "?title=other").session().Title)
	b.send(archive, "?profile=none").problem(http.StatusBadRequest, string(failure.Invalid))
}

// TestImportNamesMissingSecretsAndProfiles checks the response of an import and the receipt of the
// first restore.
func TestImportNamesMissingSecretsAndProfiles(t *testing.T) {
	t.Parallel()
	b := setupNeedy(t)
	archive := archived(t, session.NewID(session.SessionPrefix), func(_ *portable.Writer, m *portable.Manifest) {
		m.Session.Agent, m.Session.Profile, m.Session.Options = "needy", "reviewer@2", nil
		m.Session.Secrets = []string{"NEEDY_TOKEN", "git:example.com", "not a name"}
		m.AddMissing("the profile reviewer@2")
	})
	a := b.send(archive, "")
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	var out resource.SessionJSON
	require.NoError(t, json.Unmarshal(a.body, &out))
	require.Equal(t, []resource.WarningJSON{{Code: "secret_missing", Field: "agent", Detail: needsKey}}, out.Warnings)
	const suffix = " (not stored when the session was imported)"
	in, _ := b.store.Imported()
	require.Equal(t, []string{"the profile reviewer@2", "the secret NEEDY_KEY" + suffix, "the secret NEEDY_TOKEN" + suffix, "the secret git:example.com" + suffix}, in.Manifest.Lost)

	for _, name := range []string{"NEEDY_TOKEN", "git:example.com"} {
		require.Equal(t, http.StatusCreated, b.do("PUT", "/api/secrets/"+name, `{"value":"0123456789"}`).status)
	}
	require.Equal(t, http.StatusCreated, b.do("POST", "/api/profiles", `{"name":"reviewer"}`).status)
	a = b.send(archive, "?profile=reviewer")
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	require.NotContains(t, string(a.body), "warnings")
	in, _ = b.store.Imported()
	require.Empty(t, in.Manifest.Lost, "nothing is missing")
}

// TestExportNamesSecretsAndProfile checks that an export has names, which are valid in another
// installation.
func TestExportNamesSecretsAndProfile(t *testing.T) {
	t.Parallel()
	b := setupNeedy(t)
	require.Equal(t, http.StatusCreated, b.do("PUT", "/api/secrets/NEEDY_TOKEN", `{"value":"0123456789"}`).status)
	var made struct{ ID string }
	require.NoError(t, json.Unmarshal(b.do("POST", "/api/profiles", `{"name":"reviewer"}`).body, &made))
	id, bundleID := b.store.Put(session.Hibernated), session.NewID(session.BundlePrefix)
	b.store.With(id, func(r *apitest.Row) {
		r.Session.Agent, r.Session.Profile = "needy", made.ID+"@1"
		r.Session.Workspace = &session.Workspace{RepoURL: "https://Example.com/a.git"}
		r.Bundles = []bundle.View{{Bundle: bundle.Bundle{ID: bundleID, SessionID: id}, HasFiles: true}}
	})
	require.Equal(t, http.StatusAccepted, b.do("POST", "/api/bundles/"+bundleID+"/export", "{}").status)
	b.store.Archive(bundleID, bundle.ArchiveReady, archived(t, id, nil))
	m, err := portable.Read(bytes.NewReader(b.do("GET", "/api/bundles/"+bundleID+"/export", "").body), func(portable.Entry, io.Reader) error { return nil })
	require.NoError(t, err)
	require.Equal(t, "reviewer@1", m.Session.Profile)
	require.Equal(t, []string{"NEEDY_TOKEN"}, m.Session.Secrets)
	require.Equal(t, []string{"the profile reviewer@1"}, m.Missing)
}

func TestConversationOfArchiveIsReadFromAgentsFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	memory := session.NewID(session.SessionPrefix)
	a := b.send(archived(t, memory, func(w *portable.Writer, _ *portable.Manifest) {
		require.NoError(t, w.AgentFile("/root/.overwinter-demo/"+memory+"/transcript.jsonl", 9, strings.NewReader("not JSON\n")))
	}), "")
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
}

func TestForeignArchivesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	memory := session.NewID(session.SessionPrefix)
	for field, change := range map[string]func(*portable.Writer, *portable.Manifest){
		"agent":     func(_ *portable.Writer, m *portable.Manifest) { m.Session.Agent = "nobody" },
		"memoryId":  func(_ *portable.Writer, m *portable.Manifest) { m.MemoryID = "../../x" },
		"workspace": func(_ *portable.Writer, m *portable.Manifest) { m.Workspace = "/etc" },
		"options.x": func(_ *portable.Writer, m *portable.Manifest) { m.Session.Options = []byte(`{"x":1}`) },
		"workspace.repoUrl": func(_ *portable.Writer, m *portable.Manifest) {
			m.Session.Workspace = []byte(`{"repoUrl":"--upload-pack=x"}`)
		},
		"source.place": func(_ *portable.Writer, m *portable.Manifest) { m.Source.Place = strings.Repeat("x", 2000) },
		"entries": func(w *portable.Writer, _ *portable.Manifest) {
			require.NoError(t, w.AgentFile("/root/.ssh/authorized_keys", 0, strings.NewReader("")))
		},
		"conversation.jsonl": func(w *portable.Writer, _ *portable.Manifest) {
			require.NoError(t, w.Conversation(2, strings.NewReader("{}")))
		},
	} {
		p := b.send(archived(t, memory, change), "").problem(http.StatusBadRequest, string(failure.Invalid))
		require.Equal(t, field, p.Errors[0].Field, "%+v", p)
	}
	whole := archived(t, memory, nil)
	for _, bad := range [][]byte{nil, []byte("no archive"), whole[:len(whole)/2], whole[:len(whole)-4]} {
		b.send(bad, "").problem(http.StatusBadRequest, string(failure.Invalid))
	}
	require.Zero(t, b.store.Calls("SessionImport"))
}

func TestBundleIsExported(t *testing.T) {
	t.Parallel()
	const planted = "planted-value-0123456789"
	b := setup(t, func(c *api.Config) {
		c.Masks = masks(func() (*secret.Masker, error) {
			return secret.NewMasker([]secret.Named{{Name: "KEY", Value: secret.NewValue(planted)}}), nil
		})
	})
	id, bundleID := b.store.Put(session.Hibernated), session.NewID(session.BundlePrefix)
	b.store.With(id, func(r *apitest.Row) {
		r.Session.Title = "about " + planted
		r.Bundles = []bundle.View{{Bundle: bundle.Bundle{ID: bundleID, SessionID: id}, HasFiles: true, PromptID: "p2"}}
		r.Conversation = conversation.Conversation{Threads: []conversation.Thread{{ID: "main", Blocks: []conversation.Block{
			{ID: "b1", Type: conversation.AssistantText, Status: conversation.Complete, CreatedAt: time.Now(), Content: "it is " + planted},
		}}}}
	})
	url := "/api/bundles/" + bundleID + "/export"
	b.do("GET", url, "").problem(http.StatusConflict, string(failure.IllegalState))
	pending := b.do("POST", url, "{}")
	require.Equal(t, http.StatusAccepted, pending.status)
	require.Contains(t, string(pending.body), `"status":"pending"`)
	b.do("GET", url, "").problem(http.StatusConflict, string(failure.IllegalState))
	b.store.Archive(bundleID, bundle.ArchiveFailed, nil)
	require.Contains(t, string(b.do("POST", url, "{}").body), "the snapshot was deleted")
	require.Contains(t, b.do("GET", url, "").problem(http.StatusConflict, string(failure.IllegalState)).Detail, "the snapshot was deleted")
	b.do("POST", "/api/bundles/"+session.NewID(session.BundlePrefix)+"/export", "").problem(http.StatusNotFound, string(failure.NoBundle))

	b.store.Archive(bundleID, bundle.ArchiveReady, archived(t, id, func(w *portable.Writer, m *portable.Manifest) {
		require.NoError(t, w.File("plain", 0o755, 3, strings.NewReader("abc")))
		require.NoError(t, w.File("env", 0o644, int64(len(planted)), strings.NewReader(planted)))
		require.NoError(t, w.File(planted, 0o644, 0, strings.NewReader("")))
		require.NoError(t, w.Link("link", "plain"))
		require.NoError(t, w.AgentFile("/root/.overwinter-demo/"+id+"/transcript.jsonl", int64(len(planted)), strings.NewReader(planted)))
		m.Session.Agent, m.MemoryID = "forged", "forged"
	}))
	a := b.do("GET", url, "")
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	require.Equal(t, archiveType, a.header.Get("Content-Type"))
	content := map[string]string{}
	m, err := portable.Read(bytes.NewReader(a.body), func(e portable.Entry, r io.Reader) error {
		data, err := io.ReadAll(r)
		content[e.Name] = string(data)
		return err
	})
	require.NoError(t, err)
	require.Equal(t, "abc", content["workspace/plain"])
	require.Equal(t, "plain", content["workspace/link"])
	require.Equal(t, "[redacted KEY]", content["agent/0"])
	require.Contains(t, content["conversation.jsonl"], "it is [redacted KEY]")
	require.NotContains(t, content, "workspace/env")
	require.Equal(t, []string{"env (has the value of a secret)", "[redacted KEY] (named after a secret)"}, m.Missing)
	require.Equal(t, id, m.MemoryID, "the sandbox's description of the session is ignored")
	require.Equal(t, "demo", m.Session.Agent)
	require.Equal(t, "p2", m.Source.PromptID)
	require.NotContains(t, m.Session.Title, planted)

	moved := b.send(a.body, "")
	require.Equal(t, http.StatusCreated, moved.status, "an export can be imported: %s", moved.body)

	// Damage must be detected before the response looks complete.
	b.store.Archive(bundleID, bundle.ArchiveReady, []byte("no archive"))
	require.GreaterOrEqual(t, b.do("GET", url, "").status, 400)
}

func TestBundleWithoutFilesIsExportedWithItsMemory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, bundleID := b.store.Put(session.Hibernated), session.NewID(session.BundlePrefix)
	path := "/root/.overwinter-demo/" + id + "/transcript.jsonl"
	b.store.With(id, func(r *apitest.Row) {
		r.Bundles = []bundle.View{{Bundle: bundle.Bundle{ID: bundleID, SessionID: id}}}
		r.Transcripts = []transcript.File{{Path: path, Data: []byte("{}")}}
	})
	b.store.ArchiveOwn(bundleID)
	url := "/api/bundles/" + bundleID + "/export"
	require.Equal(t, http.StatusOK, b.do("POST", url, "{}").status)
	m, err := portable.Read(bytes.NewReader(b.do("GET", url, "").body), func(portable.Entry, io.Reader) error { return nil })
	require.NoError(t, err)
	require.Equal(t, []string{"workspace"}, m.Missing)
	require.Equal(t, path, m.Entries[0].Path)
}
