package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	runsRoute = "/api/runs"
	runRoute  = "/api/runs/:runId"
)

// runStore stores the runs of prompts.
type runStore interface {
	// RunSubmit stores the prompt of a run at its base, in the session of the base or in a fork of
	// it. A repeated request with the same key returns the earlier run, with created false. Errors:
	// session_not_found, bundle_not_found, run_unfinished, no_bundle_there, not_supported, and the
	// errors of PromptSubmit.
	RunSubmit(ctx context.Context, r run.Request, idem Idempotency) (run run.View, prompt session.Prompt, created bool, err error)
	// RunShow returns a run. Error: run_not_found.
	RunShow(ctx context.Context, runID string) (run.View, error)
	// RunList returns a page of runs, newest first. A page that is not the last one may be short.
	RunList(ctx context.Context, f run.Filter) (items []run.View, nextCursor string, err error)
}

// runs are the routes of runs.
type runs struct {
	*sessions
	bundles bundleStore
	prompts promptStore
	runs    runStore
}

// limited bounds the time of a request, not including its wait for the run.
func (s *runs) limited(c echo.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Request().Context(), s.cfg.RequestTimeout)
}

func (s *runs) start(c echo.Context) error {
	ctx, cancel := s.limited(c)
	defer cancel()
	r, idem, wait, err := s.request(ctx, c)
	if err != nil {
		return err
	}
	r.Prompt.RequestID, r.Prompt.TraceParent = idOfRequest(c), traceOf(c)
	run, prompt, created, err := s.runs.RunSubmit(ctx, r, idem)
	if err != nil {
		return err
	}
	if created {
		s.metrics.prompts.Inc()
		if run.Forked() {
			s.metrics.sessions.Inc()
		}
		s.notifyPrompt(ctx, prompt)
	}
	if run, err = s.await(c, run, wait); err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, runsRoute+"/"+run.ID)
	status := http.StatusOK
	if created && !run.Status.Final() {
		status = http.StatusAccepted
	}
	return c.JSON(status, resource.Run(run))
}

// request reads the request for a run.
func (s *runs) request(ctx context.Context, c echo.Context) (r run.Request, idem session.Idempotency, wait time.Duration, err error) {
	key := c.Request().Header.Get(idempotencyHeader)
	if _, given := c.Request().Header[idempotencyHeader]; given && !idempotencyKey.MatchString(key) {
		return r, idem, 0, invalid(idempotencyHeader, "must be 1 to 255 visible ASCII characters")
	}
	body, raw, err := readBody(c, false)
	if err != nil {
		return r, idem, 0, err
	}
	r = run.Request{SessionID: session.NewID(session.SessionPrefix), Fork: body.boolean("fork")}
	r.BaseSession, r.BaseBundle = body.base()
	r.Prompt = session.Prompt{
		ID: session.NewID(session.PromptPrefix), Status: session.PromptQueued, Content: body.content("input"), Mode: session.Followup,
		OnUnknown: session.OnUnknown(body.oneOf("onUnknown", string(session.Hold), string(session.Hold), string(session.Retry), string(session.Fail))),
		CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	r.Agent = s.agentOf(body)
	named, _ := body.profileRef("profile")
	if text, given := body.text("wait"); given {
		if wait, err = runWait(text); err != nil {
			body.wrong("wait", "%s", err)
		}
	}
	if err := body.done(); err != nil {
		return r, idem, 0, err
	}
	if key != "" {
		idem = session.Idempotency{Key: key, Digest: digest(append([]byte("run "), raw...))}
	}
	err = s.agreeOn(ctx, &r, &idem, named)
	return r, idem, wait, err
}

// base reads the session or bundle that a run continues.
func (o *object) base() (sessionID, bundleID string) {
	sessionID, bySession := o.text("baseSessionId")
	bundleID, byBundle := o.text("baseBundleId")
	switch {
	case bySession == byBundle:
		o.wrong("baseSessionId", "or baseBundleId must be given, and not both")
	case bySession && !session.ValidID(session.SessionPrefix, sessionID):
		o.wrong("baseSessionId", "must be %s and 32 lower-case hexadecimal digits", session.SessionPrefix)
	case byBundle && !session.ValidID(session.BundlePrefix, bundleID):
		o.wrong("baseBundleId", "must be %s and 32 lower-case hexadecimal digits", session.BundlePrefix)
	}
	return sessionID, bundleID
}

// agreeOn finds the profile of a request, or of its base, and checks that the agent has the
// required secrets.
func (s *runs) agreeOn(ctx context.Context, r *run.Request, idem *session.Idempotency, named string) error {
	base := r.BaseSession
	if r.BaseBundle != "" {
		bundle, err := s.bundles.BundleShow(ctx, r.BaseBundle)
		if err != nil {
			return err
		}
		base = bundle.SessionID
	}
	sess, err := s.store.SessionGet(ctx, base)
	if err != nil {
		return err
	}
	agentName := cmp.Or(r.Agent, sess.Agent)
	var spec *profile.Spec
	if named != "" {
		pinned, err := s.pinProfile(ctx, named)
		if err != nil {
			return err
		}
		r.Profile, spec = pinned.Ref(), &pinned.Spec
	} else if sess.Profile != "" {
		pinned, err := s.pinProfile(ctx, sess.Profile)
		if err != nil {
			return err
		}
		spec = &pinned.Spec
	}
	missing, err := s.missing(ctx, s.store, agentName, spec)
	if err == nil && len(missing) > 0 {
		idem.Refusal = secretMissing(missing, agentName)
	}
	return err
}

// runWait reads how long a request waits for the end of a run.
func runWait(text string) (time.Duration, error) {
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > run.MaxWait {
		return 0, fmt.Errorf(`must be a duration from 0s to %s, such as "1m"`, run.MaxWait)
	}
	return wait, nil
}

func runID(c echo.Context) (string, error) { return pathID(c, "runId", session.RunPrefix) }

func (s *runs) get(c echo.Context) error {
	id, err := runID(c)
	if err != nil {
		return err
	}
	var wait time.Duration
	if text := c.QueryParam("wait"); text != "" {
		if wait, err = runWait(text); err != nil {
			return invalid("wait", "%s", err)
		}
	}
	ctx, cancel := s.limited(c)
	defer cancel()
	run, err := s.runs.RunShow(ctx, id)
	if err != nil {
		return err
	}
	if run, err = s.await(c, run, wait); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, resource.Run(run))
}

// await returns a run when it has ended, or its current state when the wait times out or the server
// stops.
func (s *runs) await(c echo.Context, run run.View, wait time.Duration) (run.View, error) {
	if wait == 0 || run.Status.Final() {
		return run, nil
	}
	streams, release, err := s.openTurn(c)
	if err != nil {
		return run, err
	}
	defer release()
	control := http.NewResponseController(c.Response().Writer)
	if err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Now().Add(wait+2*s.cfg.RequestTimeout))); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return run, fmt.Errorf("lift the deadlines of a request that waits: %w", err)
	}
	ctx, cancel := context.WithTimeout(streams, wait)
	defer cancel()
	found, err := s.follow(ctx, run)
	switch {
	case err == nil:
		return found, nil
	case ctx.Err() != nil && c.Request().Context().Err() == nil:
		return found, nil
	default:
		return run, err
	}
}

// follow returns a run when it has ended. With an error it returns the last known state.
func (s *runs) follow(ctx context.Context, run run.View) (run.View, error) {
	f, err := s.feeds.Open(ctx, run.SessionID, feed.Latest, s.cfg.Heartbeat)
	if err != nil {
		return run, err
	}
	defer f.Close()
	for due := true; ; {
		if due { // read after the feed was opened, so later changes are in the feed
			now, err := s.runs.RunShow(ctx, run.ID)
			if err != nil {
				return run, err
			}
			if run = now; run.Status.Final() {
				return run, nil
			}
		}
		item, err := f.Next(ctx)
		if err != nil {
			return run, err
		}
		due = item.Events.Len() == 0 || bytes.Contains(item.Events.Frames, ofPrompt)
	}
}

// ofPrompt is contained in every encoded event of a prompt.
var ofPrompt = []byte(`"type":"` + event.TypePrompt + `"`)

func (s *runs) list(c echo.Context) error {
	limit, cursor, err := listQuery(c)
	if err != nil {
		return err
	}
	f := run.Filter{Limit: limit, Cursor: cursor}
	if id := c.QueryParam("sessionId"); id != "" {
		if !session.ValidID(session.SessionPrefix, id) {
			return invalid("sessionId", "must be %s and 32 lower-case hexadecimal digits", session.SessionPrefix)
		}
		f.SessionID = id
	}
	if status := c.QueryParam("status"); status != "" {
		if f.Status = session.PromptStatus(status); !slices.Contains(session.PromptStatuses, f.Status) {
			return invalid("status", "must be one of: %s", strings.Join(textsOf(session.PromptStatuses), ", "))
		}
	}
	if f.Agent, err = filter(c, "agent"); err != nil {
		return err
	}
	ctx, cancel := s.limited(c)
	defer cancel()
	items, next, err := s.runs.RunList(ctx, f)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newPage(resource.Runs(items), next))
}

// cancelTries is how often a cancellation is retried if the run has changed in the meantime.
const cancelTries = 5

// cancel withdraws the prompt of a queued run, and interrupts the turn of a run in progress. The
// response is 202 until the turn has ended. A run that has ended does not change.
func (s *runs) cancel(c echo.Context) error {
	id, err := runID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, true)
	if err != nil {
		return err
	}
	if err := body.done(); err != nil {
		return err
	}
	ctx := c.Request().Context()
	for try := 1; ; try++ {
		run, err := s.runs.RunShow(ctx, id)
		if err != nil {
			return err
		}
		status, err := s.cancelOnce(ctx, run, idOfRequest(c))
		if err != nil || status == http.StatusAccepted {
			if err != nil && try < cancelTries && isOvertaken(err) {
				continue
			}
			if err == nil {
				err = c.JSON(status, resource.Run(run))
			}
			return err
		}
		if run.Status.Final() || try == cancelTries {
			return c.JSON(http.StatusOK, resource.Run(run))
		}
	}
}

// isOvertaken reports whether a step of a cancellation was refused because the run's state has
// changed.
func isOvertaken(err error) bool {
	switch failure.CodeOf(err) {
	case failure.NotQueued, failure.NoRun, failure.Terminated:
		return true
	default:
		return false
	}
}

// cancelOnce requests the end of a run according to its state. StatusAccepted means that its turn
// is being interrupted.
func (s *runs) cancelOnce(ctx context.Context, run run.View, requestID string) (status int, err error) {
	switch {
	case run.Status == session.PromptUnknown:
		return 0, failure.Errorf(failure.IllegalState, "the outcome of run %s is unknown; resolve or dismiss prompt %s", run.ID, run.PromptID)
	case run.Status.Final():
		return http.StatusOK, nil
	case run.Status == session.PromptQueued:
		_, err := s.prompts.PromptWithdraw(ctx, run.SessionID, run.PromptID)
		return http.StatusOK, err
	case run.JoinedTo != "":
		return 0, failure.Errorf(failure.IllegalState, "prompt %s was joined to %s; cancel that run, which ends both", run.PromptID, run.JoinedTo)
	}
	done, err := s.commands.store.CommandSubmit(ctx, session.Command{
		SessionID: run.SessionID, Kind: session.CommandAbort, RunID: run.ID, RequestID: requestID,
	})
	if err != nil {
		return 0, err
	}
	if done.Notify {
		s.signal(ctx, run.SessionID, func(ctx context.Context) error { return s.cfg.Signaler.SignalCommands(ctx, run.SessionID) })
	}
	if done.Command == nil {
		return http.StatusOK, nil // the run has ended
	}
	return http.StatusAccepted, nil
}
