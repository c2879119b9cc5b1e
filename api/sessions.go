package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// sessionStore stores sessions.
type sessionStore interface {
	// SessionCreate stores a session and its optional first prompt. If the key was used within 24
	// hours, it returns the session of that request, with created false, or the error
	// idempotency_conflict if the digest differs.
	SessionCreate(ctx context.Context, s session.Session, first *session.Prompt, idem Idempotency) (stored session.Session, created bool, err error)
	SessionGet(ctx context.Context, sessionID string) (session.Session, error)
	SessionList(ctx context.Context, f listing.Filter) (items []session.Session, nextCursor string, err error)
	// SessionPatch changes the given fields, and appends a title event for a new title and a
	// settings event for other fields.
	SessionPatch(ctx context.Context, sessionID string, p session.Patch) (session.Session, error)
	// PurgeRequest records that all data of a session must be erased, and returns the session.
	// Error: has_forks.
	PurgeRequest(ctx context.Context, sessionID string, forks fork.Policy) (session.Session, error)
	ProfileGet(ctx context.Context, idOrName string, version int64) (profile.Profile, error)
	needStore
}

// sessions are the routes of sessions.
type sessions struct {
	*commands
	store sessionStore
}

// Bounds of query strings.
const (
	defaultLimit   = 50
	maxLimit       = 200
	maxFilterBytes = 1024
)

const idempotencyHeader = "Idempotency-Key"

var idempotencyKey = regexp.MustCompile(`^[\x21-\x7e]{1,255}$`)

// page is one page of a list.
type page[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"nextCursor"`
}

func newPage[T any](items []T, next string) page[T] {
	p := page[T]{Items: items}
	if next != "" {
		p.NextCursor = &next
	}
	return p
}

// sessionID returns the id in the path.
func sessionID(c echo.Context) (string, error) {
	id := c.Param("id")
	if strings.Contains(id, "/") {
		return "", echo.ErrNotFound // in Echo, the last parameter of a route also matches the rest of the path
	}
	if !session.ValidID(session.SessionPrefix, id) {
		return "", invalid("id", "must be %s and 32 lower-case hexadecimal digits", session.SessionPrefix)
	}
	return id, nil
}

// listQuery reads limit and cursor.
func listQuery(c echo.Context) (limit int, cursor string, err error) {
	return pageQuery(c, defaultLimit, maxLimit)
}

// pageQuery reads the cursor and the limit of a page of a list.
func pageQuery(c echo.Context, fallback, most int) (limit int, cursor string, err error) {
	if limit, err = limitQuery(c, fallback, most); err != nil {
		return 0, "", err
	}
	cursor, err = filter(c, "cursor")
	return limit, cursor, err
}

// limitQuery reads the maximum length of a page.
func limitQuery(c echo.Context, fallback, most int) (int, error) {
	text := c.QueryParam("limit")
	if text == "" {
		return fallback, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > most {
		return 0, invalid("limit", "must be a number from 1 to %d", most)
	}
	return limit, nil
}

// filter reads a text query parameter.
func filter(c echo.Context, name string) (string, error) {
	text := c.QueryParam(name)
	switch {
	case len(text) > maxFilterBytes:
		return "", invalid(name, "is %d bytes long; at most %d are allowed", len(text), maxFilterBytes)
	case strings.ContainsRune(text, 0) || strings.ToValidUTF8(text, "") != text:
		return "", invalid(name, "must be UTF-8 without the character U+0000")
	}
	return text, nil
}

// timeFilter reads a time. It returns the zero time if the parameter is absent.
func timeFilter(c echo.Context, name string) (time.Time, error) {
	text := c.QueryParam(name)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}, invalid(name, "must be a time in RFC 3339, such as 2026-01-31T12:00:00Z; + must be written as %%2B")
	}
	return at.UTC(), nil
}

// metadataFilter reads the parameters metadata[KEY], in the order of their keys.
func metadataFilter(c echo.Context) (members []listing.MetadataMember, err error) {
	for _, name := range slices.Sorted(maps.Keys(c.QueryParams())) {
		object, key, ok := member(name)
		if !ok || object != "metadata" {
			continue
		}
		if len(key) > maxFilterBytes || strings.ContainsRune(key, 0) || !utf8.ValidString(key) {
			return nil, invalid("metadata", "has a name that is not UTF-8 without U+0000, or longer than %d bytes", maxFilterBytes)
		}
		value, err := filter(c, name)
		if err != nil {
			return nil, err
		}
		members = append(members, listing.MetadataMember{Key: key, Value: value})
	}
	if len(members) > listing.MaxMetadata {
		return nil, invalid("metadata", "is given %d times; at most %d are allowed", len(members), listing.MaxMetadata)
	}
	return members, nil
}

// textsOf returns the values as strings.
func textsOf[T ~string](values []T) []string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = string(value)
	}
	return texts
}

func (s *sessions) sessionCreate(c echo.Context) error {
	key := c.Request().Header.Get(idempotencyHeader)
	if _, given := c.Request().Header[idempotencyHeader]; given && !idempotencyKey.MatchString(key) {
		return invalid(idempotencyHeader, "must be 1 to 255 visible ASCII characters")
	}
	in, err := s.readWithFiles(c, sessionField)
	if err != nil {
		return err
	}
	defer in.release()
	body := in.json
	sess, first, named := s.newSession(body, in.files)
	if err := body.done(); err != nil {
		return err
	}
	if first != nil {
		first.RequestID, first.TraceParent = idOfRequest(c), traceOf(c)
	}
	var idem session.Idempotency
	if key != "" {
		idem = session.Idempotency{Key: key, Digest: in.digest()}
	}
	ctx := c.Request().Context()
	var spec *profile.Spec
	if named != "" {
		pinned, err := s.pinProfile(ctx, named)
		if err != nil {
			return err
		}
		sess.Profile, spec = pinned.Ref(), &pinned.Spec
	}
	missing, err := s.missing(ctx, s.store, sess.Agent, spec)
	if err != nil {
		return err
	}
	if !sess.Lazy && len(missing) > 0 {
		idem.Refusal = secretMissing(missing, sess.Agent)
	}
	stored, created, err := s.store.SessionCreate(ctx, sess, first, idem)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, "/api/sessions/"+stored.ID)
	status := http.StatusOK
	switch {
	case created:
		status = http.StatusCreated
		s.metrics.sessions.Inc()
		if first != nil {
			s.metrics.prompts.Inc()
			s.signalPrompt(ctx, stored.ID, first.ID, first.Ordinal)
		} else {
			s.signalPrompt(ctx, stored.ID, "", 0)
		}
	case !stored.Loaded && !stored.Status.Final():
		s.signalPrompt(ctx, stored.ID, "", 0)
	}
	out := resource.Session(stored)
	out.Warnings = append(warnings(missing, sess.Agent), s.modelWarnings(sess.Agent, sess.Options.Model)...)
	return c.JSON(status, out)
}

// modelWarnings warns about a model that is not in the agent's list, because the model may be newer
// than the list or mistyped.
func (s *Server) modelWarnings(agentName, model string) []resource.WarningJSON {
	d, ok := s.described(agentName)
	if !ok || model == "" || len(d.Models) == 0 || slices.Contains(d.Models, model) {
		return nil
	}
	return []resource.WarningJSON{{
		Code: "model_unlisted", Field: "options.model",
		Detail: fmt.Sprintf("the agent %s does not list the model %q, which is passed on unchanged; GET /api/agents lists its models", agentName, model),
	}}
}

// warnings warns about missing secrets that the first prompt of a session needs.
func warnings(missing []agent.Need, agentName string) (out []resource.WarningJSON) {
	for _, n := range missing {
		out = append(out, resource.WarningJSON{Code: string(failure.SecretMissing), Field: "agent", Detail: n.MissingText(agentName)})
	}
	return out
}

// newSession reads a request for a session: its optional first prompt with the files of the form,
// and its profile.
func (s *sessions) newSession(body *object, files []attachment.Attachment) (sess session.Session, first *session.Prompt, named string) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	sess = session.Session{
		ID: session.NewID(session.SessionPrefix), Status: session.Initializing, CreatedAt: now, LastActivity: now,
		IdleTimeout: session.DefaultIdleTimeout, Metadata: json.RawMessage(`{}`),
	}
	body.required("agent")
	sess.Agent = s.agentOf(body)
	if title, ok := body.short("title", session.MaxTitleRunes); ok {
		sess.Title = title
	}
	if d, ok := body.idleTimeout("idleTimeout"); ok {
		sess.IdleTimeout = d
	}
	if metadata, ok := body.metadata("metadata"); ok {
		sess.Metadata = metadata
	}
	if options, ok := body.options("options"); ok {
		sess.Options = options
	}
	named, _ = body.profileRef("profile")
	sess.Workspace = body.workspace("workspace")

	first = body.firstPrompt(sess.ID, now, files)
	byDefault := "lazy"
	if first != nil {
		byDefault = "eager"
	}
	sess.Lazy = body.oneOf("sandbox", byDefault, "lazy", "eager") == "lazy"
	return sess, first, named
}

// firstPrompt reads the first prompt of a new session, with the files of the form. It returns nil
// if there is none.
func (o *object) firstPrompt(sessionID string, now time.Time, files []attachment.Attachment) *session.Prompt {
	inner := o.object("prompt")
	if inner == nil {
		if files != nil {
			o.required("prompt") // the files belong to the prompt
		}
		return nil
	}
	first := &session.Prompt{
		ID: inner.promptID(), SessionID: sessionID, Ordinal: 1, Status: session.PromptQueued,
		Content: inner.content("content"), Mode: session.Followup, OnUnknown: session.Hold, CreatedAt: now,
	}
	first.Attachments = inner.attachments("attachments", files)
	inner.unknown()
	return first
}

// pinProfile finds the profile that a request names and pins its version, so that the session keeps
// this version when the profile changes.
func (s *sessions) pinProfile(ctx context.Context, ref string) (profile.Profile, error) {
	name, version, err := profile.ParseRef(ref)
	if err != nil {
		return profile.Profile{}, invalid("profile", "%s", err)
	}
	p, err := s.store.ProfileGet(ctx, name, version)
	if failure.CodeOf(err) == failure.NoVersion {
		return p, invalid("profile", "must be a version that exists: %s", err)
	}
	if failure.CodeOf(err) == failure.NoProfile {
		return profile.Profile{}, invalid("profile", "must be the id or the name of a profile: there is no %s", ref)
	}
	return p, err
}

// digest is equal for equivalent bodies.
func digest(body []byte) string {
	var value any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&value); err == nil {
		if canonical, err := json.Marshal(value); err == nil { // sorted names, no white space
			body = canonical
		}
	}
	return digestText(string(body))
}

// digestText returns the digest of a text that is not JSON but may begin like a number.
func digestText(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// signalPrompt notifies the session's workflow of stored work. A failure is not an error: the row
// is durable, and the relay re-sends signals for rows that no workflow claims.
func (s *Server) signalPrompt(ctx context.Context, sessionID, promptID string, ordinal int64) {
	s.signal(ctx, sessionID, func(ctx context.Context) error {
		return s.cfg.Signaler.SignalPrompt(ctx, sessionID, promptID, ordinal)
	})
}

// signalStored is signalPrompt for a prompt that was stored earlier.
func (s *Server) signalStored(ctx context.Context, sessionID string, p session.QueuedPrompt) {
	s.signalPrompt(ctx, sessionID, p.ID, p.Ordinal)
}

// recordPrompts signals the workflow of a session to record prompts that its attendant has claimed.
func (s *Server) recordPrompts(ctx context.Context, sessionID string, prompts []session.QueuedPrompt) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.SignalTimeout)
	defer cancel()
	return safely(ctx, func(ctx context.Context) error { return s.cfg.Signaler.SignalAttended(ctx, sessionID, prompts) })
}

func (s *sessions) sessionList(c echo.Context) error {
	limit, cursor, err := listQuery(c)
	if err != nil {
		return err
	}
	f := listing.Filter{Limit: limit, Cursor: cursor}
	if status := c.QueryParam("status"); status != "" {
		if f.Status, err = session.ParseState(status); err != nil {
			return invalid("status", "must be one of: %s", strings.Join(textsOf(session.States), ", "))
		}
	}
	if f.Agent, err = filter(c, "agent"); err != nil {
		return err
	}
	if f.Query, err = filter(c, "q"); err != nil {
		return err
	}
	if n := len(strings.Fields(f.Query)); n > listing.MaxWords {
		return invalid("q", "has %d words; at most %d are allowed", n, listing.MaxWords)
	}
	if f.Metadata, err = metadataFilter(c); err != nil {
		return err
	}
	if f.CreatedSince, err = timeFilter(c, "createdSince"); err != nil {
		return err
	}
	if f.CreatedBefore, err = timeFilter(c, "createdBefore"); err != nil {
		return err
	}
	if sort := listing.Sort(c.QueryParam("sort")); sort != "" {
		if !slices.Contains(listing.Sorts, sort) {
			return invalid("sort", "must be one of: %s", strings.Join(textsOf(listing.Sorts), ", "))
		}
		f.Sort = sort
	}
	items, next, err := s.store.SessionList(c.Request().Context(), f)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newPage(resource.Sessions(items), next))
}

func (s *sessions) sessionGet(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	sess, err := s.store.SessionGet(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, resource.Session(sess))
}

func (s *sessions) sessionPatch(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, false)
	if err != nil {
		return err
	}
	var patch session.Patch
	if title, ok := body.short("title", session.MaxTitleRunes); ok {
		patch.Title = &title
	}
	if metadata, ok := body.metadata("metadata"); ok {
		patch.Metadata = metadata
	}
	if d, ok := body.idleTimeout("idleTimeout"); ok {
		patch.IdleTimeout = &d
	}
	if options, ok := body.options("options"); ok {
		patch.Options = &options
	}
	patch.Workspace = body.workspacePatch("workspace")
	named, hasProfile := body.profileRef("profile")
	if err := body.done(); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if hasProfile {
		pinned, err := s.pinProfile(ctx, named)
		if err != nil {
			return err
		}
		patch.Profile = new(pinned.Ref())
	}
	sess, err := s.store.SessionPatch(ctx, id, patch)
	if err != nil {
		return err
	}
	if sess.Notify {
		s.signal(ctx, id, func(ctx context.Context) error { return s.cfg.Signaler.SignalSettings(ctx, id, sess.IdleTimeout) })
	}
	return c.JSON(http.StatusOK, resource.Session(sess))
}

// sessionDelete stops a session. With purge=true, all its data is erased afterwards.
func (s *sessions) sessionDelete(c echo.Context) error {
	purge, forks := false, fork.Refuse
	for name, values := range c.QueryParams() {
		if name == "forks" && len(values) == 1 && (values[0] == string(fork.Detach) || values[0] == string(fork.Purge)) {
			forks = fork.Policy(values[0])
			continue
		}
		if name == "forks" {
			return invalid(name, "must be forks=detach or forks=purge, once")
		}
		if name != "purge" || len(values) != 1 || values[0] != "true" && values[0] != "false" {
			return invalid(name, "must be purge=true or purge=false, once")
		}
		purge = values[0] == "true"
	}
	if !purge && forks != fork.Refuse {
		return invalid("forks", "needs purge=true")
	}
	if !purge {
		return s.command(session.CommandStop)(c)
	}
	id, err := sessionID(c)
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
	// Once the row is stored, the purge will happen: a worker stops the session if this request
	// does not.
	requested, err := s.store.PurgeRequest(ctx, id, forks)
	if err != nil {
		return err
	}
	stopped, err := s.commands.store.CommandSubmit(ctx, session.Command{SessionID: id, Kind: session.CommandStop, RequestID: idOfRequest(c)})
	if err == nil {
		stopped.Session.Purge = requested.Purge
		requested = stopped.Session
	}
	if err == nil && stopped.Notify {
		s.signal(ctx, id, func(ctx context.Context) error { return s.cfg.Signaler.SignalStop(ctx, id) })
	}
	return c.JSON(http.StatusAccepted, resource.Session(requested))
}
