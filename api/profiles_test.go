package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// shownProfile has the fields of a profile that the tests read.
type shownProfile struct {
	ID           string           `json:"id"`
	Ref          string           `json:"ref"`
	Version      int64            `json:"version"`
	Name         string           `json:"name"`
	Instructions string           `json:"instructions"`
	Permissions  permission.Rules `json:"permissions"`
}

const wholeProfile = `{
	"name":"Reviewer 1","description":"Looks twice.","instructions":"Be brief.","model":"opus","environment":{"LEVEL":"3","OVERWINTER_MODEL_TIMEOUT":"90s","OVERWINTER_PATIENCE":"80s"},"secrets":["GITHUB_TOKEN","OVERWINTER_ACP_COMMAND"],
	"skills":[{"name":"look","description":"Looks.","content":"Look."}],
	"subagents":[{"name":"helper","content":"Help."}],"commands":[{"name":"go","content":"Go."}],
	"mcpServers":[{"name":"local","command":"sh","args":["-c","x"],"environment":{"A":"b"}},{"name":"web","url":"https://example.com","headers":{"A":"b"}}],
	"files":[{"path":"docs/notes.md","content":"x"}],
	"permissions":{"default":"ask","tools":{"Bash":"deny"}}}`

func TestProfilesAreVersioned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.do("POST", "/api/profiles", wholeProfile)
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	var first, second, got shownProfile
	a.into(&first)
	require.Equal(t, "/api/profiles/"+first.ID, a.header.Get("Location"))
	require.Equal(t, first.ID+"@1", first.Ref)
	require.Equal(t, permission.Deny, first.Permissions.Of("Bash"))
	b.do("POST", "/api/profiles", `{"name":"Reviewer 1"}`).problem(http.StatusConflict, "name_taken")

	var s resource.SessionJSON
	b.do("POST", "/api/sessions", `{"agent":"demo","profile":"Reviewer 1"}`).into(&s)
	require.Equal(t, first.Ref, s.Profile)

	a = b.do("PUT", "/api/profiles/"+first.ID, `{"name":"Reviewer","instructions":"Be long.","version":1}`)
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	a.into(&second)
	require.EqualValues(t, 2, second.Version)
	b.do("PUT", "/api/profiles/"+first.ID, `{"name":"Reviewer","version":1}`).problem(http.StatusConflict, "version_conflict")
	b.do("GET", "/api/profiles/Reviewer", "").into(&got)
	require.Equal(t, second, got)
	b.do("GET", "/api/profiles/"+first.ID+"?version=1", "").into(&got)
	require.Equal(t, first, got)

	b.do("GET", "/api/profiles/"+s.Profile, "").into(&got)
	require.Equal(t, first, got, "the profile of a session can be read")
	var named shownProfile
	b.do("GET", "/api/profiles/Reviewer@2", "").into(&named)
	require.Equal(t, second, named)
	missing := b.do("GET", "/api/profiles/"+first.ID+"@9", "").problem(http.StatusNotFound, "profile_version_not_found")
	require.Contains(t, missing.Detail, "has no version 9; its newest is 2")
	b.do("GET", "/api/profiles/"+session.NewID(session.ProfilePrefix)+"@1", "").problem(http.StatusNotFound, "profile_not_found")
	for _, wrong := range []string{first.ID + "@0", first.ID + "@x", first.ID + "@1?version=1"} {
		b.do("GET", "/api/profiles/"+wrong, "").problem(http.StatusBadRequest, "invalid_request")
	}
	b.do("POST", "/api/sessions", `{"agent":"demo","profile":"Reviewer@9"}`).problem(http.StatusBadRequest, "invalid_request")
	var versions struct {
		Items []struct{ Version int64 }
	}
	b.do("GET", "/api/profiles/Reviewer/versions", "").into(&versions)
	require.Equal(t, []struct{ Version int64 }{{2}, {1}}, versions.Items)
	b.do("GET", "/api/profiles/nope/versions", "").problem(http.StatusNotFound, "profile_not_found")

	for view, instructions := range map[string]string{"": "", "?view=summary": "", "?view=full": "Be long."} {
		var page struct{ Items []shownProfile }
		b.do("GET", "/api/profiles"+view, "").into(&page)
		require.Len(t, page.Items, 1)
		require.Equal(t, instructions, page.Items[0].Instructions)
	}
	b.do("GET", "/api/profiles?view=some", "").problem(http.StatusBadRequest, "invalid_request")

	b.do("GET", "/api/sessions/"+s.ID, "").into(&s)
	require.Equal(t, first.Ref, s.Profile, "it keeps the version it began with")
	b.do("PATCH", "/api/sessions/"+s.ID, `{"profile":"`+first.ID+`"}`).into(&s)
	require.Equal(t, second.Ref, s.Profile, "and changes on request")
	b.do("PATCH", "/api/sessions/"+s.ID, `{"profile":"`+first.ID+`@1"}`).into(&s)
	require.Equal(t, first.Ref, s.Profile)

	require.Equal(t, http.StatusNoContent, b.do("DELETE", "/api/profiles/"+first.ID, "").status)
	b.do("GET", "/api/profiles/"+first.ID, "").problem(http.StatusNotFound, "profile_not_found")
	b.do("DELETE", "/api/profiles/"+first.ID, "").problem(http.StatusNotFound, "profile_not_found")
	var kept shownProfile
	b.do("GET", "/api/profiles/"+first.ID+"?version=2", "").into(&kept)
	require.Equal(t, second, kept, "sessions have it still")
	var page struct {
		Items []shownProfile `json:"items"`
	}
	b.do("GET", "/api/profiles", "").into(&page)
	require.Empty(t, page.Items)
	b.do("POST", "/api/sessions", `{"agent":"demo","profile":"Reviewer"}`).problem(http.StatusBadRequest, "invalid_request")
}

func TestInvalidProfilesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, field := range map[string]string{
		`{}`:                            "name",
		`{"name":""}`:                   "name",
		`{"name":"prf_x"}`:              "name",
		`{"name":"a@1"}`:                "name",
		`{"name":"a","extra":1}`:        "extra",
		`{"name":"a","instructions":7}`: "instructions",
		`{"name":"a","skills":[{"name":"A b","content":"x"}]}`:                                                           "skills[0].name",
		`{"name":"a","skills":[{"name":"a","content":"x"},{"name":"a","content":"y"}]}`:                                  "skills[1].name",
		`{"name":"a","skills":[{"name":"a","content":" "}]}`:                                                             "skills[0].content",
		`{"name":"a","skills":[{"name":"a","content":"x","why":1}]}`:                                                     "skills",
		`{"name":"a","commands":[{"name":"a","description":"two\nlines","content":"x"}]}`:                                "commands[0].description",
		`{"name":"a","mcpServers":[{"name":"a"}]}`:                                                                       "mcpServers[0]",
		`{"name":"a","mcpServers":[{"name":"a","command":"x","url":"http://x"}]}`:                                        "mcpServers[0]",
		`{"name":"a","mcpServers":[{"name":"a","url":"ftp://x"}]}`:                                                       "mcpServers[0].url",
		`{"name":"a","mcpServers":[{"name":"a","command":"x","environment":{"1":"x"}}]}`:                                 "mcpServers[0].environment.1",
		`{"name":"a","files":[{"path":"/etc/passwd","content":""}]}`:                                                     "files[0].path",
		`{"name":"a","files":[{"path":"../x","content":""}]}`:                                                            "files[0].path",
		`{"name":"a","files":[{"path":"a//b","content":""}]}`:                                                            "files[0].path",
		`{"name":"a","files":[{"path":".git/config","content":""}]}`:                                                     "files[0].path",
		`{"name":"a","files":[{"path":"a","content":"x\u0000"}]}`:                                                        "files",
		`{"name":"a","environment":{"OVERWINTER_X":"1"}}`:                                                                "environment.OVERWINTER_X",
		`{"name":"a","secrets":["lower"]}`:                                                                               "secrets[0]",
		`{"name":"a","secrets":["git:github.com"]}`:                                                                      "secrets[0]",
		`{"name":"a","secrets":["OVERWINTER_SECRET_KEY"]}`:                                                               "secrets[0]",
		`{"name":"a","secrets":["A","A"]}`:                                                                               "secrets[1]",
		`{"name":"a","secrets":["A"],"environment":{"A":"x"}}`:                                                           "secrets[0]",
		`{"name":"a","secrets":"A"}`:                                                                                     "secrets",
		`{"name":"a","permissions":{"default":"perhaps"}}`:                                                               "permissions.default",
		`{"name":"a","permissions":{"tools":{"Bash":"perhaps"}}}`:                                                        "permissions.tools.Bash",
		`{"name":"a","model":"` + strings.Repeat("m", 201) + `"}`:                                                        "model",
		`{"name":"a","commands":[` + strings.Repeat(`{"name":"a","content":"x"},`, 100) + `{"name":"b","content":"x"}]}`: "commands",
	} {
		p := b.do("POST", "/api/profiles", body).problem(http.StatusBadRequest, "invalid_request")
		require.NotEmpty(t, p.Errors, body)
		require.Equal(t, field, p.Errors[0].Field, body)
	}
	for _, ref := range []string{"unknown", "prf_x", "a@0", "a@x", session.NewID(session.ProfilePrefix)} {
		p := b.do("POST", "/api/sessions", `{"agent":"demo","profile":"`+ref+`"}`).problem(http.StatusBadRequest, "invalid_request")
		require.Equal(t, "profile", p.Errors[0].Field, ref)
	}
	b.do("GET", "/api/profiles/unknown?version=x", "").problem(http.StatusBadRequest, "invalid_request")
	b.do("GET", "/api/profiles/unknown", "").problem(http.StatusNotFound, "profile_not_found")
}
