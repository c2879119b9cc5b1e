package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

// memStore is Postgres and the log in memory, for faults that the real ones do
// not have on demand. It keeps the promises of api.Store and api.Events.
type memStore struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced by every append
	rows    map[string]*row
	keys    map[string]session.Idempotency
	made    map[string]string // key to session
	readers int               // open now
	faults  map[string]error  // by method
	blocked chan struct{}     // SessionGet waits for it where it is not nil
}

type row struct {
	session     session.Session
	prompts     []session.Prompt
	events      []eventlog.Event
	first       int64 // oldest seq that is still there
	conv        conversation.Conversation
	transcripts []session.TranscriptFile
}

func newMemStore() *memStore {
	return &memStore{changed: make(chan struct{}), rows: map[string]*row{}, keys: map[string]session.Idempotency{}, made: map[string]string{}, faults: map[string]error{}}
}

// fail makes every call of a method return err, until it is nil.
func (m *memStore) fail(method string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults[method] = err
}

// enter locks the store for a method that is not told to fail.
func (m *memStore) enter(method string) (leave func(), err error) {
	m.mu.Lock()
	if err := m.faults[method]; err != nil {
		m.mu.Unlock()
		return nil, err
	}
	return m.mu.Unlock, nil
}

func (m *memStore) get(id string) (*row, error) {
	r, ok := m.rows[id]
	if !ok {
		return nil, session.Faultf(session.CodeNoSession, "there is no session %s", id)
	}
	return r, nil
}

func (r *row) view() session.Session {
	s := r.session
	s.Queue = session.QueueCounts{}
	for _, p := range r.prompts {
		switch p.Status {
		case session.PromptQueued:
			s.Queue.Queued++
		case session.PromptProcessing:
			s.Queue.Processing++
		}
	}
	return s
}

func (m *memStore) append(r *row, kind string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	r.events = append(r.events, eventlog.Event{
		Seq: r.first + int64(len(r.events)), Type: kind, SessionID: r.session.ID, At: time.Now(), Data: raw,
	})
	close(m.changed)
	m.changed = make(chan struct{})
}

// put stores a session in a status and returns its id.
func (m *memStore) put(status session.State, change ...func(*session.Session)) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	s := session.Session{ID: session.NewID(session.SessionPrefix), Status: status, Agent: "demo", CreatedAt: now, LastActivity: now, IdleTimeout: time.Minute}
	for _, f := range change {
		f(&s)
	}
	m.rows[s.ID] = &row{session: s, first: 1}
	return s.ID
}

// with changes a session's row.
func (m *memStore) with(id string, change func(*row)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m.rows[id])
}

// status moves a session and appends the status event.
func (m *memStore) status(id string, to session.State) {
	m.with(id, func(r *row) {
		r.session.Status = to
		m.append(r, wire.EventStatus, wire.StatusData{Status: to, Reason: "test"})
	})
}

// text appends an event with a text.
func (m *memStore) text(id, text string) {
	m.with(id, func(r *row) { m.append(r, "text_delta", conversation.TextDelta{BlockID: "b1", Delta: text}) })
}

// forget deletes the events before first.
func (m *memStore) forget(id string, first int64) {
	m.with(id, func(r *row) {
		r.events = slices.Clone(r.events[first-r.first:])
		r.first = first
	})
}

func (m *memStore) prompt(id, promptID string, status session.PromptStatus) {
	m.with(id, func(r *row) {
		for i := range r.prompts {
			if r.prompts[i].ID == promptID {
				r.prompts[i].Status = status
				m.append(r, wire.EventPrompt, wire.PromptData{Prompt: wire.Prompt(r.prompts[i])})
			}
		}
	})
}

func (m *memStore) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.rows)
}

func (m *memStore) openReaders() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readers
}

func (m *memStore) SessionCreate(_ context.Context, s session.Session, first *session.Prompt, idem session.Idempotency) (session.Session, bool, error) {
	leave, err := m.enter("SessionCreate")
	if err != nil {
		return session.Session{}, false, err
	}
	defer leave()
	if known, ok := m.keys[idem.Key]; ok && idem.Key != "" {
		if known.Digest != idem.Digest {
			return session.Session{}, false, session.Faultf(session.CodeIdempotency, "the key was used with another body")
		}
		return m.rows[m.made[idem.Key]].view(), false, nil
	}
	r := &row{session: s, first: 1}
	m.rows[s.ID] = r
	if idem.Key != "" {
		m.keys[idem.Key], m.made[idem.Key] = idem, s.ID
	}
	if first != nil {
		r.prompts = append(r.prompts, *first)
		m.append(r, wire.EventPrompt, wire.PromptData{Prompt: wire.Prompt(*first)})
	}
	return r.view(), true, nil
}

func (m *memStore) SessionGet(ctx context.Context, id string) (session.Session, error) {
	leave, err := m.enter("SessionGet")
	if err != nil {
		return session.Session{}, err
	}
	blocked := m.blocked
	leave()
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
			return session.Session{}, ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.get(id)
	if err != nil {
		return session.Session{}, err
	}
	return r.view(), nil
}

func (m *memStore) SessionList(_ context.Context, f session.ListFilter) ([]session.Session, string, error) {
	leave, err := m.enter("SessionList")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	var ids []string
	for id, r := range m.rows {
		if (f.Status == "" || r.session.Status == f.Status) && (f.Agent == "" || r.session.Agent == f.Agent) && (f.Cursor == "" || id < f.Cursor) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	next := ""
	if len(ids) > f.Limit {
		ids = ids[:f.Limit]
		next = ids[len(ids)-1]
	}
	var out []session.Session
	for _, id := range ids {
		out = append(out, m.rows[id].view())
	}
	return out, next, nil
}

func (m *memStore) SessionPatch(_ context.Context, id string, p session.Patch) (session.Session, error) {
	leave, err := m.enter("SessionPatch")
	if err != nil {
		return session.Session{}, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return session.Session{}, err
	}
	if p.Title != nil {
		r.session.Title = *p.Title
	}
	if p.Metadata != nil {
		r.session.Metadata = p.Metadata
	}
	if p.IdleTimeout != nil {
		r.session.IdleTimeout = *p.IdleTimeout
	}
	if p.Options != nil {
		r.session.Options = *p.Options
	}
	return r.view(), nil
}

func (m *memStore) PromptSubmit(_ context.Context, p session.Prompt) (session.Prompt, int64, bool, error) {
	leave, err := m.enter("PromptSubmit")
	if err != nil {
		return session.Prompt{}, 0, false, err
	}
	defer leave()
	r, err := m.get(p.SessionID)
	if err != nil {
		return session.Prompt{}, 0, false, err
	}
	for _, old := range r.prompts {
		if old.ID == p.ID {
			if old.Content != p.Content || old.OnUnknown != p.OnUnknown {
				return session.Prompt{}, 0, false, session.Faultf(session.CodePromptExists, "prompt %s has another body", p.ID)
			}
			return old, 0, false, nil
		}
	}
	if r.session.Status.Final() {
		return session.Prompt{}, 0, false, session.Faultf(session.CodeTerminated, "the session is terminated")
	}
	p.Ordinal = int64(len(r.prompts) + 1)
	r.prompts = append(r.prompts, p)
	m.append(r, wire.EventPrompt, wire.PromptData{Prompt: wire.Prompt(p)})
	return p, r.view().Queue.Queued, true, nil
}

func (m *memStore) find(id, promptID string) (*session.Prompt, error) {
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	for i := range r.prompts {
		if r.prompts[i].ID == promptID {
			return &r.prompts[i], nil
		}
	}
	return nil, session.Faultf(session.CodeNoPrompt, "there is no prompt %s", promptID)
}

func (m *memStore) PromptGet(_ context.Context, id, promptID string) (session.Prompt, error) {
	leave, err := m.enter("PromptGet")
	if err != nil {
		return session.Prompt{}, err
	}
	defer leave()
	p, err := m.find(id, promptID)
	if err != nil {
		return session.Prompt{}, err
	}
	return *p, nil
}

func (m *memStore) PromptList(_ context.Context, id string, limit int, cursor string) ([]session.Prompt, string, error) {
	leave, err := m.enter("PromptList")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, "", err
	}
	from := 0
	if cursor != "" {
		if _, err := fmt.Sscan(cursor, &from); err != nil {
			return nil, "", session.Faultf(session.CodeInvalid, "the cursor is not one of ours")
		}
	}
	to := min(from+limit, len(r.prompts))
	next := ""
	if to < len(r.prompts) {
		next = fmt.Sprint(to)
	}
	return slices.Clone(r.prompts[from:to]), next, nil
}

func (m *memStore) PromptWithdraw(_ context.Context, id, promptID string) (session.Prompt, error) {
	leave, err := m.enter("PromptWithdraw")
	if err != nil {
		return session.Prompt{}, err
	}
	defer leave()
	p, err := m.find(id, promptID)
	if err != nil {
		return session.Prompt{}, err
	}
	if p.Status != session.PromptQueued {
		return session.Prompt{}, session.Faultf(session.CodeIllegalState, "the prompt is %s", p.Status)
	}
	p.Status, p.Reason = session.PromptCancelled, session.ReasonWithdrawn
	return *p, nil
}

func (m *memStore) Conversation(_ context.Context, id string) (conversation.Conversation, error) {
	leave, err := m.enter("Conversation")
	if err != nil {
		return conversation.Conversation{}, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return conversation.Conversation{}, err
	}
	return r.conv, nil
}

func (m *memStore) TranscriptFiles(_ context.Context, id string) ([]session.TranscriptFile, error) {
	leave, err := m.enter("TranscriptFiles")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	return r.transcripts, nil
}

func (m *memStore) Ping(context.Context) error {
	leave, err := m.enter("Ping")
	if err != nil {
		return err
	}
	leave()
	return nil
}

// Follow opens a reader.
func (m *memStore) Follow(_ context.Context, id string, after int64) (api.EventReader, error) {
	leave, err := m.enter("Follow")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	if newest := r.first + int64(len(r.events)) - 1; after > newest {
		return nil, &eventlog.FuturePositionError{Newest: newest}
	}
	m.readers++
	return &memReader{store: m, id: id, after: after}, nil
}

type memReader struct {
	store  *memStore
	id     string
	after  int64
	told   bool
	closed bool
}

// perBatch makes batches small, so that several are needed.
const perBatch = 3

func (r *memReader) Next(ctx context.Context) ([]eventlog.Event, bool, error) {
	for {
		r.store.mu.Lock()
		row, changed, fault := r.store.rows[r.id], r.store.changed, r.store.faults["Next"]
		first, newest := row.first, row.first+int64(len(row.events))-1
		if fault != nil {
			r.store.mu.Unlock()
			return nil, false, fault
		}
		if r.after+1 < first {
			r.store.mu.Unlock()
			return nil, false, &eventlog.PositionGoneError{First: first}
		}
		if r.after < newest || !r.told {
			events := slices.Clone(row.events[r.after+1-first : min(r.after+1-first+perBatch, int64(len(row.events)))])
			r.after += int64(len(events))
			r.told = r.after == newest
			r.store.mu.Unlock()
			return events, r.told, nil
		}
		r.store.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

func (r *memReader) Close() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.closed {
		panic("reader closed twice")
	}
	r.closed = true
	r.store.readers--
}

// memOrchestrator notes what it is told.
type memOrchestrator struct {
	mu    sync.Mutex
	told  []string
	err   error
	hang  bool // until the caller gives up
	panic any
	view  string
}

func (o *memOrchestrator) tell(ctx context.Context, format string, args ...any) error {
	o.mu.Lock()
	o.told = append(o.told, fmt.Sprintf(format, args...))
	err, hang, p := o.err, o.hang, o.panic
	o.mu.Unlock()
	if p != nil {
		panic(p)
	}
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (o *memOrchestrator) set(change func(*memOrchestrator)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(o)
}

// heard returns what was told since it was last asked.
func (o *memOrchestrator) heard() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	told := o.told
	o.told = nil
	return told
}

func (o *memOrchestrator) Ring(ctx context.Context, id, promptID string, ordinal int64) error {
	return o.tell(ctx, "ring %s %s %d", id, promptID, ordinal)
}
func (o *memOrchestrator) Wake(ctx context.Context, id string) error {
	return o.tell(ctx, "wake %s", id)
}
func (o *memOrchestrator) Hibernate(ctx context.Context, id string, force bool) error {
	return o.tell(ctx, "hibernate %s %t", id, force)
}
func (o *memOrchestrator) Stop(ctx context.Context, id string) error {
	return o.tell(ctx, "stop %s", id)
}
func (o *memOrchestrator) Abort(ctx context.Context, id string) error {
	return o.tell(ctx, "abort %s", id)
}
func (o *memOrchestrator) Recover(ctx context.Context, id string) error {
	return o.tell(ctx, "recover %s", id)
}
func (o *memOrchestrator) Settings(ctx context.Context, id string, d time.Duration) error {
	return o.tell(ctx, "settings %s %s", id, d)
}
func (o *memOrchestrator) State(ctx context.Context, id string) (json.RawMessage, error) {
	if err := o.tell(ctx, "state %s", id); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return json.RawMessage(o.view), nil
}
func (o *memOrchestrator) Ping(ctx context.Context) error { return o.tell(ctx, "ping") }

// eventually waits for what another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 5*time.Second, 5*time.Millisecond, what)
}
