package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// forkStore forks sessions.
type forkStore interface {
	// SessionFork stores a session that starts at a point of another one, and its first prompt, if
	// any. Idempotency works as in SessionCreate. Errors: session_not_found, bundle_not_found,
	// prompt_not_found, no_bundle_there, illegal_state.
	SessionFork(ctx context.Context, f fork.Fork, first *session.Prompt, idem Idempotency) (stored session.Session, created bool, err error)
	// SessionForks returns a page of the forks of a session, newest first. Error:
	// session_not_found.
	SessionForks(ctx context.Context, sessionID string, limit int, cursor string) (items []session.Session, nextCursor string, err error)
}

// forks are the routes of forks.
type forks struct {
	*sessions
	forked forkStore
}

func (s *forks) fork(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	key := c.Request().Header.Get(idempotencyHeader)
	if _, given := c.Request().Header[idempotencyHeader]; given && !idempotencyKey.MatchString(key) {
		return invalid(idempotencyHeader, "must be 1 to 255 visible ASCII characters")
	}
	in, err := s.readWithFiles(c, forkField)
	if err != nil {
		return err
	}
	defer in.release()
	body := in.json
	f := fork.Fork{ID: session.NewID(session.SessionPrefix), SessionID: id}
	first, named := s.forkRequest(body, in.files, &f)
	if err := body.done(); err != nil {
		return err
	}
	if first != nil {
		first.RequestID, first.TraceParent = idOfRequest(c), traceOf(c)
	}
	ctx := c.Request().Context()
	sess, err := s.store.SessionGet(ctx, id)
	if err != nil {
		return err
	}
	agentName := cmp.Or(f.Agent, sess.Agent)
	var idem session.Idempotency
	if key != "" {
		idem = session.Idempotency{Key: key, Digest: digestText("fork " + id + " " + in.digest())}
	}
	var spec *profile.Spec
	if named == "" && sess.Profile != "" {
		named = sess.Profile
	}
	if named != "" {
		pinned, err := s.pinProfile(ctx, named)
		if err != nil {
			return err
		}
		f.Profile, spec = pinned.Ref(), &pinned.Spec
	}
	missing, err := s.missing(ctx, s.store, agentName, spec)
	if err != nil {
		return err
	}
	if first != nil && len(missing) > 0 {
		idem.Refusal = secretMissing(missing, agentName)
	}
	stored, created, err := s.forked.SessionFork(ctx, f, first, idem)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, "/api/sessions/"+stored.ID)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		s.metrics.sessions.Inc()
		if first != nil {
			s.metrics.prompts.Inc()
			s.signalPrompt(ctx, stored.ID, first.ID, first.Ordinal)
		}
	}
	out := resource.Session(stored)
	out.Warnings = warnings(missing, agentName)
	return c.JSON(status, out)
}

// forkRequest reads the point and the optional first prompt of the fork, with the files of the
// form.
func (s *forks) forkRequest(body *object, files []attachment.Attachment, f *fork.Fork) (first *session.Prompt, named string) {
	f.BundleID, f.PromptID = body.point()
	f.Before = body.boolean("before")
	if f.Before && f.BundleID != "" {
		body.wrong("before", "needs promptId")
	}
	if title, ok := body.short("title", session.MaxTitleRunes); ok {
		f.Title = title
	}
	f.Agent = s.agentOf(body)
	named, _ = body.profileRef("profile")
	return body.firstPrompt(f.ID, time.Now().UTC().Truncate(time.Millisecond), files), named
}

// agentOf reads the name of an agent, or "" if none is given.
func (s *Server) agentOf(body *object) string {
	name, given := body.text("agent")
	if given && !slices.Contains(s.cfg.Agents.Names(), name) {
		body.wrong("agent", "must be one of: %s", strings.Join(s.cfg.Agents.Names(), ", "))
	}
	return name
}

// point reads the bundle or the prompt that names a point of a session; the other result is empty.
func (o *object) point() (bundle, prompt string) {
	bundle, byBundle := o.text("bundleId")
	prompt, byPrompt := o.text("promptId")
	switch {
	case byBundle == byPrompt:
		o.wrong("bundleId", "or promptId must be given, and not both")
	case byBundle && !session.ValidID(session.BundlePrefix, bundle):
		o.wrong("bundleId", "must be %s and 32 lower-case hexadecimal digits", session.BundlePrefix)
	case byPrompt && !session.ValidPromptID(prompt):
		o.wrong("promptId", "must be 1 to 64 of A-Z a-z 0-9 _ -")
	}
	return bundle, prompt
}

func (s *forks) list(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	limit, cursor, err := listQuery(c)
	if err != nil {
		return err
	}
	items, next, err := s.forked.SessionForks(c.Request().Context(), id, limit, cursor)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newPage(resource.Sessions(items), next))
}
