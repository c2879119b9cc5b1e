package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/presence"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// Store replaces Postgres and the log in memory. It satisfies the contracts of api.Store and
// api.Events, and injects faults.
type Store struct {
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced by every append
	rows     map[string]*Row
	keys     map[string]session.Idempotency
	made     map[string]string // session ids by idempotency key
	readers  int               // number of open readers
	faults   map[string]error
	calls    map[string]int // by method
	secrets  map[string]secretRow
	profiles []*profileRow
	blocked  chan struct{} // the channel that Block returned

	present    map[string]presence.Viewer // by client
	attendants map[string]bool            // sessions that have an attendant, and whether it claims prompts

	archives map[string]bundle.Archive // by bundle
	contents map[string][]byte         // contents of archives by archive, and of imported archives by session
	imported bundle.Import

	lifecycle      []lifecycle.Event
	lifecycleKept  int64 // events up to this position were deleted
	lifecycleReads int
}

// Row is the stored data of one session.
type Row struct {
	Session      session.Session
	Prompts      []session.Prompt
	Questions    []question.Question // oldest first
	Events       []eventlog.Event
	First        int64 // oldest kept seq
	Conversation conversation.Conversation
	Transcripts  []transcript.File
	Files        []workspacefile.Content // by path
	Attachments  []attachment.Attachment
	Diff         *workspacefile.Diff
	Reports      conversation.Reports
	Screenshots  []conversation.Shown
	Bundles      []bundle.View // oldest first
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{changed: make(chan struct{}), rows: map[string]*Row{}, keys: map[string]session.Idempotency{}, made: map[string]string{}, faults: map[string]error{}, calls: map[string]int{}, secrets: map[string]secretRow{}, present: map[string]presence.Viewer{}, attendants: map[string]bool{}, archives: map[string]bundle.Archive{}, contents: map[string][]byte{}}
}

// Fail makes every call of a method return err. A nil err ends the fault.
func (m *Store) Fail(method string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults[method] = err
}

// Calls returns how often a method was called.
func (m *Store) Calls(method string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[method]
}

// enter locks the store for a method that is not set to fail.
func (m *Store) enter(method string) (leave func(), err error) {
	m.mu.Lock()
	m.calls[method]++
	if err := m.faults[method]; err != nil {
		m.mu.Unlock()
		return nil, err
	}
	return m.mu.Unlock, nil
}

func (m *Store) get(id string) (*Row, error) {
	r, ok := m.rows[id]
	if !ok {
		return nil, failure.Errorf(failure.NoSession, "there is no session %s", id)
	}
	return r, nil
}

func (r *Row) view() session.Session {
	s := r.Session
	s.Queue = session.QueueCounts{Hold: s.Queue.Hold}
	for _, p := range r.Prompts {
		switch p.Status {
		case session.PromptQueued:
			s.Queue.Queued++
		case session.PromptProcessing:
			s.Queue.Processing++
		}
	}
	return s
}

// Append adds an event to a row. It must be called within With.
func (m *Store) Append(r *Row, kind string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	r.Events = append(r.Events, eventlog.Event{
		Seq: r.First + int64(len(r.Events)), Type: kind, SessionID: r.Session.ID, At: time.Now(), Data: raw,
	})
	close(m.changed)
	m.changed = make(chan struct{})
}

// Put stores a session in a status and returns its id.
func (m *Store) Put(status session.State, change ...func(*session.Session)) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	s := session.Session{ID: session.NewID(session.SessionPrefix), Status: status, Agent: "demo", CreatedAt: now, LastActivity: now, IdleTimeout: time.Minute}
	for _, f := range change {
		f(&s)
	}
	m.rows[s.ID] = &Row{Session: s, First: 1}
	return s.ID
}

// Block makes SessionGet wait until the returned channel is closed.
func (m *Store) Block() chan<- struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blocked = make(chan struct{})
	return m.blocked
}

// Row returns a copy of a session's data.
func (m *Store) Row(id string) Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := *m.rows[id]
	r.Prompts, r.Questions, r.Events = slices.Clone(r.Prompts), slices.Clone(r.Questions), slices.Clone(r.Events)
	return r
}

// With changes a session's row.
func (m *Store) With(id string, change func(*Row)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m.rows[id])
}

// Status moves a session and appends the status event.
func (m *Store) Status(id string, to session.State) {
	m.With(id, func(r *Row) {
		r.Session.Status = to
		m.Append(r, event.TypeStatus, event.StatusData{Status: to, Reason: "test"})
	})
}

// Text appends an event with a text.
func (m *Store) Text(id, text string) {
	m.With(id, func(r *Row) { m.Append(r, "text_delta", conversation.TextDelta{BlockID: "b1", Delta: text}) })
}

// Forget deletes the events before first.
func (m *Store) Forget(id string, first int64) {
	m.With(id, func(r *Row) {
		r.Events = slices.Clone(r.Events[first-r.First:])
		r.First = first
	})
}

// Prompt sets the status of a prompt and appends its event.
func (m *Store) Prompt(id, promptID string, status session.PromptStatus) {
	m.With(id, func(r *Row) {
		for i := range r.Prompts {
			if r.Prompts[i].ID == promptID {
				r.Prompts[i].Status = status
				m.Append(r, event.TypePrompt, event.PromptChanged(r.Prompts[i]))
			}
		}
	})
}

// Count returns the number of sessions.
func (m *Store) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.rows)
}

// OpenReaders returns the number of readers that are not closed.
func (m *Store) OpenReaders() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readers
}

// SessionCreate implements api.Store.
func (m *Store) SessionCreate(_ context.Context, s session.Session, first *session.Prompt, idem session.Idempotency) (session.Session, bool, error) {
	leave, err := m.enter("SessionCreate")
	if err != nil {
		return session.Session{}, false, err
	}
	defer leave()
	if known, ok := m.keys[idem.Key]; ok && idem.Key != "" {
		if known.Digest != idem.Digest {
			return session.Session{}, false, failure.Errorf(failure.Idempotency, "the key was used with another body")
		}
		return m.rows[m.made[idem.Key]].view(), false, nil
	}
	if idem.Refusal != nil {
		return session.Session{}, false, idem.Refusal
	}
	r := &Row{Session: s, First: 1}
	m.rows[s.ID] = r
	if idem.Key != "" {
		m.keys[idem.Key], m.made[idem.Key] = idem, s.ID
	}
	if first != nil {
		r.Prompts = append(r.Prompts, *first)
		r.Attachments = append(r.Attachments, first.Attachments...)
		m.Append(r, event.TypePrompt, event.PromptSubmitted(*first))
		m.Append(r, event.TypeQueue, r.queue())
	}
	return r.view(), true, nil
}

// SessionGet implements api.Store.
func (m *Store) SessionGet(ctx context.Context, id string) (session.Session, error) {
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

// SessionNeeds implements api.Store.
func (m *Store) SessionNeeds(_ context.Context, id string, names []string) (agentName, profileRef string, present []string, err error) {
	leave, err := m.enter("SessionNeeds")
	if err != nil {
		return "", "", nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return "", "", nil, err
	}
	present = slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := m.secrets[name]; return !ok })
	return r.Session.Agent, r.Session.Profile, present, nil
}

// found reports whether a query is contained in the title or is a prefix of the ID.
func (r *Row) found(query string) bool {
	return strings.Contains(r.Session.Title, query) || strings.HasPrefix(r.Session.ID, query)
}

// SessionList implements api.Store.
func (m *Store) SessionList(_ context.Context, f listing.Filter) ([]session.Session, string, error) {
	leave, err := m.enter("SessionList")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	var ids []string
	for id, r := range m.rows {
		if (f.Status == "" || r.Session.Status == f.Status) && (f.Agent == "" || r.Session.Agent == f.Agent) && r.found(f.Query) && (f.Cursor == "" || id < f.Cursor) {
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

// SessionPatch implements api.Store.
func (m *Store) SessionPatch(_ context.Context, id string, p session.Patch) (session.Session, error) {
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
		r.Session.Title = *p.Title
	}
	if p.Metadata != nil {
		r.Session.Metadata = p.Metadata
	}
	if p.IdleTimeout != nil {
		r.Session.IdleTimeout = *p.IdleTimeout
	}
	if p.Options != nil {
		r.Session.Options = *p.Options
	}
	if p.Workspace != nil {
		if refused := session.JudgeWorkspace(r.Session.Status, r.Session.Generation); refused != nil {
			return session.Session{}, refused
		}
		r.Session.Workspace = p.Workspace
	}
	if p.Profile != nil {
		r.Session.Profile = *p.Profile
	}
	s := r.view()
	s.Notify = p.IdleTimeout != nil && !s.Status.Final()
	return s, nil
}

// PromptSubmit implements api.Store.
func (m *Store) PromptSubmit(_ context.Context, p session.Prompt) (session.Prompt, int64, bool, error) {
	leave, err := m.enter("PromptSubmit")
	if err != nil {
		return session.Prompt{}, 0, false, err
	}
	defer leave()
	r, err := m.get(p.SessionID)
	if err != nil {
		return session.Prompt{}, 0, false, err
	}
	for _, old := range r.Prompts {
		if old.ID == p.ID {
			if old.Content != p.Content || old.OnUnknown != p.OnUnknown || !slices.EqualFunc(old.Attachments, p.Attachments, sameAttachment) {
				return session.Prompt{}, 0, false, failure.Errorf(failure.PromptExists, "prompt %s has another body", p.ID)
			}
			old.Notify = old.Status == session.PromptQueued
			return old, 0, false, nil
		}
	}
	if r.Session.Status.Final() {
		return session.Prompt{}, 0, false, failure.Errorf(failure.Terminated, "the session is terminated")
	}
	if r.Session.Status == session.Error {
		return session.Prompt{}, 0, false, session.InError("test")
	}
	p.Ordinal = int64(len(r.Prompts) + 1)
	r.Attachments = append(r.Attachments, p.Attachments...)
	r.Prompts = append(r.Prompts, p)
	m.Append(r, event.TypePrompt, event.PromptSubmitted(p))
	m.Append(r, event.TypeQueue, r.queue())
	claims, attended := m.attendants[p.SessionID]
	if claims {
		r.Prompts[len(r.Prompts)-1].Status = session.PromptProcessing
	}
	held := r.Session.Queue.Hold.Held()
	p.Attended, p.Notify = attended && !held, !attended && !held
	if p.Mode == session.Steer && slices.ContainsFunc(r.Prompts, func(o session.Prompt) bool { return o.Status == session.PromptProcessing }) {
		p.Attended, p.Notify, p.Interrupts = false, false, true
	}
	if p.Mode == session.Collect {
		p.CollectUntil = time.Now().Add(p.CollectFor)
		p.Attended, p.Notify = false, false
		r.Prompts[len(r.Prompts)-1].CollectUntil = p.CollectUntil
	}
	return p, r.view().Queue.Queued, true, nil
}

func sameAttachment(a, b attachment.Attachment) bool { return a.ID == b.ID }

// Attend gives a session an attendant. If claims is set, the attendant claims prompts when they
// arrive.
func (m *Store) Attend(id string, claims bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attendants[id] = claims
}

// PromptsUnclaimed implements api.Store.
func (m *Store) PromptsUnclaimed(_ context.Context, asked []backlog.Unclaimed) ([]backlog.Unclaimed, error) {
	leave, err := m.enter("PromptsUnclaimed")
	if err != nil {
		return nil, err
	}
	defer leave()
	var unclaimed []backlog.Unclaimed
	for _, a := range asked {
		if p, err := m.find(a.SessionID, a.PromptID); err == nil && p.Status == session.PromptQueued {
			unclaimed = append(unclaimed, a)
		}
	}
	return unclaimed, nil
}

func (m *Store) find(id, promptID string) (*session.Prompt, error) {
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	for i := range r.Prompts {
		if r.Prompts[i].ID == promptID {
			return &r.Prompts[i], nil
		}
	}
	return nil, failure.Errorf(failure.NoPrompt, "there is no prompt %s", promptID)
}

// PromptGet implements api.Store.
func (m *Store) PromptGet(_ context.Context, id, promptID string) (session.Prompt, error) {
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

// PromptAfter implements api.Store.
func (m *Store) PromptAfter(_ context.Context, id, promptID string) (int64, error) {
	leave, err := m.enter("PromptAfter")
	if err != nil {
		return 0, err
	}
	defer leave()
	if _, err := m.find(id, promptID); err != nil {
		return 0, err
	}
	r := m.rows[id]
	for _, e := range r.Events {
		var d event.TurnStartData
		if e.Type == event.TypeTurnStart && json.Unmarshal(e.Data, &d) == nil && d.PromptID == promptID {
			return e.Seq - 1, nil
		}
	}
	return r.First + int64(len(r.Events)) - 1, nil
}

// PromptsPending implements api.Store.
func (m *Store) PromptsPending(_ context.Context, id string, limit int) ([]string, error) {
	leave, err := m.enter("PromptsPending")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, status := range []session.PromptStatus{session.PromptProcessing, session.PromptQueued} {
		for _, p := range r.Prompts {
			if p.Status == status && len(ids) < limit {
				ids = append(ids, p.ID)
			}
		}
	}
	return ids, nil
}

// PromptList implements api.Store.
func (m *Store) PromptList(_ context.Context, id string, limit int, cursor string) ([]session.Prompt, string, error) {
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
			return nil, "", failure.Errorf(failure.Invalid, "the cursor is not one of ours")
		}
	}
	to := min(from+limit, len(r.Prompts))
	next := ""
	if to < len(r.Prompts) {
		next = fmt.Sprint(to)
	}
	return slices.Clone(r.Prompts[from:to]), next, nil
}

// PromptResolve implements api.Store.
func (m *Store) PromptResolve(_ context.Context, r session.Resolve) (session.Prompt, bool, error) {
	leave, err := m.enter("PromptResolve")
	if err != nil {
		return session.Prompt{}, false, err
	}
	defer leave()
	p, err := m.find(r.SessionID, r.PromptID)
	if err != nil {
		return session.Prompt{}, false, err
	}
	already, refused := session.JudgeResolve(r, *p, m.rows[r.SessionID].Session.Status, "test")
	if refused != nil {
		return session.Prompt{}, false, refused
	}
	if !already {
		p.Status, p.Reason, p.Resolved = r.Status(), r.Reason(), &session.Resolved{Action: r.Action, Note: r.Note, At: time.Now()}
	}
	resolved := *p
	resolved.Notify = p.Status == session.PromptQueued
	return resolved, !already, nil
}

// ConversationTail implements api.Store. The tail is the whole conversation.
func (m *Store) ConversationTail(_ context.Context, id string, _ int64, _ int) (string, int64, error) {
	leave, err := m.enter("ConversationTail")
	if err != nil {
		return "", 0, err
	}
	defer leave()
	_, err = m.get(id)
	return "", 0, err
}

// ConversationPage implements api.Store. It returns the row's conversation or, if the row has none,
// the fold of its events. A cursor is the number of blocks in earlier pages.
func (m *Store) ConversationPage(_ context.Context, id string, limit int, cursor string) (conversation.Conversation, string, error) {
	leave, err := m.enter("ConversationPage")
	if err != nil {
		return conversation.Conversation{}, "", err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return conversation.Conversation{}, "", err
	}
	c := r.Conversation
	if len(c.Threads) == 0 {
		var folder conversation.Folder
		for _, e := range r.Events {
			if err := folder.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data); err != nil {
				return conversation.Conversation{}, "", err
			}
		}
		c = folder.Conversation()
	}
	from := 0
	if cursor != "" {
		if from, err = strconv.Atoi(cursor); err != nil {
			return conversation.Conversation{}, "", failure.Errorf(failure.Invalid, "the cursor was not returned with a page")
		}
	}
	page := conversation.Conversation{Seq: r.First + int64(len(r.Events)) - 1}
	n := 0
	for _, thread := range c.Threads {
		shown := conversation.Thread{ID: thread.ID}
		for _, b := range thread.Blocks {
			if n++; n > from && n <= from+limit {
				shown.Blocks = append(shown.Blocks, b)
			}
		}
		if len(shown.Blocks) > 0 || thread.ID == conversation.Main || len(thread.Blocks) == 0 && from == 0 {
			page.Threads = append(page.Threads, shown)
		}
	}
	if n > from+limit {
		return page, strconv.Itoa(from + limit), nil
	}
	return page, "", nil
}

// TranscriptPositions implements api.Store.
func (m *Store) TranscriptPositions(_ context.Context, id string) ([]transcript.Position, error) {
	leave, err := m.enter("TranscriptPositions")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	var out []transcript.Position
	for _, f := range r.Transcripts {
		out = append(out, transcript.Position{Path: f.Path, Version: f.Version, Size: int64(len(f.Data))})
	}
	return out, nil
}

// TranscriptContent implements api.Store, in pieces of seven bytes.
func (m *Store) TranscriptContent(ctx context.Context, id string, p transcript.Position) iter.Seq2[[]byte, error] {
	return m.TranscriptFrom(ctx, id, p, 0)
}

// TranscriptFrom implements api.Store, in pieces of seven bytes.
func (m *Store) TranscriptFrom(_ context.Context, id string, p transcript.Position, from int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		data, err := m.transcript(id, p)
		if err != nil {
			yield(nil, err)
			return
		}
		for piece := range slices.Chunk(data[from:], 7) {
			if !yield(piece, nil) {
				return
			}
		}
	}
}

func (m *Store) transcript(id string, p transcript.Position) ([]byte, error) {
	leave, err := m.enter("TranscriptContent")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	for _, f := range r.Transcripts {
		if f.Path == p.Path {
			return f.Data[:p.Size], nil
		}
	}
	return nil, failure.Errorf(failure.IllegalState, "the transcript is no longer stored")
}

// Ready implements api.Store.
func (m *Store) Ready(context.Context) error {
	leave, err := m.enter("Ready")
	if err != nil {
		return err
	}
	leave()
	return nil
}

// EventsDropped implements api.Store. This store does not compact logs.
func (m *Store) EventsDropped(_ context.Context, id string) (int64, error) {
	leave, err := m.enter("EventsDropped")
	if err != nil {
		return 0, err
	}
	defer leave()
	_, err = m.get(id)
	return 0, err
}

// Follow implements feed.Log.
func (m *Store) Follow(_ context.Context, id string, after int64) (feed.Reader, error) {
	leave, err := m.enter("Follow")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	if newest := r.First + int64(len(r.Events)) - 1; after > newest {
		return nil, &eventlog.FuturePositionError{Newest: newest}
	}
	m.readers++
	return &reader{store: m, id: id, after: after}, nil
}

type reader struct {
	store    *Store
	id       string
	after    int64
	reported bool
	closed   bool
}

// perBatch makes batches small, so that several are needed.
const perBatch = 3

// Next implements feed.Reader.
func (r *reader) Next(ctx context.Context, timer <-chan time.Time) (eventlog.Batch, error) {
	for {
		r.store.mu.Lock()
		row, changed, fault := r.store.rows[r.id], r.store.changed, r.store.faults["Next"]
		first, newest := row.First, row.First+int64(len(row.Events))-1
		if fault != nil {
			r.store.mu.Unlock()
			return eventlog.Batch{}, fault
		}
		if r.after+1 < first {
			r.store.mu.Unlock()
			return eventlog.Batch{}, &eventlog.PositionGoneError{First: first}
		}
		if r.after < newest || !r.reported {
			format := feed.Format()
			page := eventlog.NewPage(&format, r.id, r.after)
			for _, e := range row.Events[r.after+1-first : min(r.after+1-first+perBatch, int64(len(row.Events)))] {
				page.Add(&e)
			}
			b := page.Batch()
			r.after = b.Last
			r.reported = r.after == newest
			b.CaughtUp = r.reported
			r.store.mu.Unlock()
			return b, nil
		}
		r.store.mu.Unlock()
		select {
		case <-changed:
		case <-timer:
			return eventlog.Batch{After: r.after, Last: r.after}, nil
		case <-ctx.Done():
			return eventlog.Batch{}, ctx.Err()
		}
	}
}

// Close implements feed.Reader.
func (r *reader) Close() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.closed {
		panic("reader closed twice")
	}
	r.closed = true
	r.store.readers--
}
