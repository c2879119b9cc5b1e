package api

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Bounds of a workspace.
const (
	maxRepoURLBytes = 2048
	maxRefBytes     = 255
)

// gitRef is the syntax of a branch, a tag or a commit; git checks the rest.
var gitRef = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/@+-]*$`)

// workspace reads the initial content of the working directory of a new session, or nil if there is
// none.
func (o *object) workspace(name string) *session.Workspace {
	w := o.workspacePatch(name)
	if w == nil || *w == (session.Workspace{}) {
		return nil
	}
	return w
}

// workspacePatch reads a workspace that replaces the current one, or nil if the field is absent.
func (o *object) workspacePatch(name string) *session.Workspace {
	inner := o.object(name)
	if inner == nil {
		return nil
	}
	var w session.Workspace
	w.RepoURL, _ = inner.text("repoUrl")
	w.Ref, _ = inner.text("ref")
	w.Setup, _ = inner.text("setup")
	inner.unknown()

	if w.RepoURL != "" {
		inner.repoURL("repoUrl", w.RepoURL)
	}
	switch {
	case w.Ref == "":
	case w.RepoURL == "":
		inner.wrong("ref", "needs a repoUrl")
	case len(w.Ref) > maxRefBytes:
		inner.wrong("ref", "is %d bytes long; at most %d are allowed", len(w.Ref), maxRefBytes)
	case !gitRef.MatchString(w.Ref) || strings.Contains(w.Ref, ".."):
		inner.wrong("ref", "must be the name of a branch, a tag or a commit")
	}
	if len(w.Setup) > session.MaxSetupBytes {
		inner.wrong("setup", "is %d bytes long; at most %d are allowed", len(w.Setup), session.MaxSetupBytes)
	}
	return &w
}

func (o *object) repoURL(name, text string) {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxRepoURLBytes:
		o.wrong(name, "is %d bytes long; at most %d are allowed", len(text), maxRepoURLBytes)
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		o.wrong(name, "must be an http or https URL")
	case u.User != nil:
		o.wrong(name, "must not contain credentials: store them as the secret git:%s", u.Host)
	}
}
