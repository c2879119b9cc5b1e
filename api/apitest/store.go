package apitest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
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

// Ready implements api.Store.
func (m *Store) Ready(context.Context) error {
	leave, err := m.enter("Ready")
	if err != nil {
		return err
	}
	leave()
	return nil
}
