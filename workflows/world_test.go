package workflows_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// world is the environment of a session's workflow: the rows of Postgres, and a provider with
// sandboxes that start and end. It checks that the workflow keeps the guarantees, and records each
// violation.
type world struct {
	mu    sync.Mutex
	clock clock
	say   func(format string, args ...any) // the transcript

	id           string
	taskQueue    string // of the installation; "" is the workflow's queue
	state        session.State
	reason       string
	errorCause   session.ErrorCause
	lazy         bool
	idleTimeout  time.Duration
	lastActivity time.Time
	generation   int64
	transitionNo int64
	loaded       bool
	workflowRun  string // that opened the session last
	prompts      []*promptRow
	runs         map[string]*runRow
	commands     []session.Command // all of them, in order
	signalled    bool              // the workflow has not answered a signal
	oldSignals   bool              // commands are separate signals, as in an earlier version of the api
	eachSignal   bool              // prompts of attended sessions are signalled at once, as in an earlier version of the api
	held         bool              // the queue is held: no prompt starts or wakes the session
	signals      int               // number of signals for prompts and commands
	reads        int               // number of reads of pending work
	// answersLate is the delay between the end of a turn and the arrival of its result at the
	// workflow.
	answersLate time.Duration
	// earlierWorkers means that workers do not report pending work with the end of a turn, and do
	// not terminate saved sandboxes.
	earlierWorkers bool
	// attends is how long turns attend the session; attendant is the turn that may claim prompts.
	attends   time.Duration
	announces bool // deadlines are announced
	keepsRoom bool // the workflow continues as new while its history has room
	versioned bool // workers are versioned, and workflows are pinned to them
	parkAfter time.Duration
	expiry    time.Duration // of questions
	attendant *operation
	sandboxes []*sandboxRow
	bundles   []bundleRow

	reset      bool          // the workflow may be reset, and then dispatches runs under numbers that it has used before
	inTask     string        // fault of records within the workflow task; slow: not tried; lost: done, but the answer is lost
	doomed     int           // sandboxes that end soon after they are ready
	busy       bool          // no worker has room for a turn
	lifetime   time.Duration // of a sandbox at the provider
	takes      map[string]time.Duration
	faults     map[string][]error
	operations []*operation
	canceling  map[string]bool // cancelled activities that have not been started again
	alarms     []*alarm
	violations []string
}

// clock is the time of the engine that runs the workflow.
type clock interface {
	now() time.Time
	after(d time.Duration, f func())
}

type promptRow struct {
	session.QueuedPrompt
	status     session.PromptStatus
	policy     session.OnUnknown
	reason     string
	runID      string
	takes      time.Duration
	outcome    session.Outcome // the outcome of its turn unless interrupted
	stubborn   bool            // its turn does not end when it is interrupted
	deliveries int
	asks       bool // its turn asks people, and continues when they have answered
}

type runRow struct {
	id, promptID string
	generation   int64
	dispatch     int64 // the last allotted dispatch
	attached     bool  // an attempt has attached to the run
	delivered    bool
	aborted      bool
	endsAt       time.Time // the end of the agent's work, once delivered
	outcome      session.Outcome
	held         int64 // the dispatch of the attempt that has the run
	part         int64
	parked       bool
	answered     bool      // the question of its prompt
	expires      time.Time // the expiry of the question
}

type sandboxRow struct {
	id         string
	generation int64
	alive      bool // at the provider
	ready      bool // its runner has answered
	worked     bool // the session was running in it
	ended      bool // in Postgres
	since      time.Time
	deadline   time.Time
}

type bundleRow struct {
	id         string
	generation int64
	verified   bool
	checkpoint bool // the sandbox worked on
}

// alarm is an event at the provider at a given time, independent of the workflow.
type alarm struct {
	at   time.Time
	ring func()
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newWorld returns a world with one new session in it.
func newWorld(say func(format string, args ...any)) *world {
	return &world{
		say: say, id: "ses_1", state: session.Initializing,
		idleTimeout: session.DefaultIdleTimeout, lastActivity: epoch, keepsRoom: true,
		runs: map[string]*runRow{}, lifetime: 24 * time.Hour,
		faults: map[string][]error{}, canceling: map[string]bool{},
		takes: map[string]time.Duration{
			"CreateSandbox": 3 * time.Second, "RestoreSandbox": 2 * time.Second,
			"SaveBundle": 4 * time.Second, "RescueBundle": time.Second,
			"TerminateSandbox": 500 * time.Millisecond, "FlushSandbox": 200 * time.Millisecond,
		},
	}
}

// A record takes a few milliseconds, so that signals can arrive in between.
const recordTakes = 5 * time.Millisecond

// The delays after which a turn notices an abort, its cancellation, and the end of its sandbox.
const (
	abortTakes  = 50 * time.Millisecond
	cancelTakes = 200 * time.Millisecond
	lossTakes   = time.Second
)

func (w *world) violate(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	w.violations = append(w.violations, v)
	w.say("VIOLATION: %s", v)
}

// accept inserts the row of a prompt, as the api does before it sends the signal. A session that is
// terminated or in error accepts no prompts.
func (w *world) accept(p promptRow) *promptRow {
	if w.state.Final() || w.state == session.Error {
		return nil
	}
	p.Ordinal, p.status = int64(len(w.prompts)+1), session.PromptQueued
	p.policy = cmp.Or(p.policy, session.Hold)
	p.outcome = cmp.Or(p.outcome, session.OutcomeCompleted)
	w.prompts = append(w.prompts, &p)
	w.touch()
	w.nudge()
	return &p
}

func (w *world) touch() { w.lastActivity = w.clock.now() }

// announce returns the time of a deadline that is near.
func (w *world) announce(kind deadline.Kind) activities.Announced {
	row := session.Session{Status: w.state, LastActivity: w.lastActivity, IdleTimeout: w.idleTimeout}
	for _, p := range w.prompts {
		switch p.status {
		case session.PromptQueued:
			row.Queue.Queued++
		case session.PromptProcessing:
			row.Queue.Processing++
		}
	}
	if s := w.sandbox(w.generation); s != nil {
		row.Sandbox = &session.SandboxView{Since: s.since, Deadline: s.deadline}
	}
	at := row.SleepsAt()
	if kind == deadline.Expiry {
		at = row.ExpiresAt()
	}
	done := !at.IsZero()
	if done {
		w.say("announced: %s in %s", kind, at.Sub(w.clock.now()).Round(time.Millisecond))
	}
	return activities.Announced{At: at, IdleTimeout: row.IdleTimeout, Done: done}
}

func (w *world) prompt(id string) *promptRow {
	for _, p := range w.prompts {
		if p.ID == id {
			return p
		}
	}
	return nil
}

func (w *world) openRun() *runRow {
	for _, p := range w.prompts {
		if p.status == session.PromptProcessing {
			return w.runs[p.runID]
		}
	}
	return nil
}

// firstQueued returns the next prompt.
func (w *world) firstQueued() *promptRow {
	var first *promptRow
	for _, p := range w.prompts {
		if p.status == session.PromptQueued && (first == nil || cmp.Or(cmp.Compare(p.Rank, first.Rank), cmp.Compare(p.Ordinal, first.Ordinal)) < 0) {
			first = p
		}
	}
	return first
}

// end gives a prompt and its run their outcome. A prompt that has ended keeps its outcome.
func (w *world) end(p *promptRow, outcome session.Outcome, reason string) {
	if p.status.Final() {
		return
	}
	if run := w.runs[p.runID]; run != nil && run.outcome == "" {
		run.outcome = outcome
		w.endAborts(run.id, outcome, reason)
	}
	p.status, p.reason = outcome.PromptStatus(), reason
	w.touch()
	w.say("%s is %s%s", p.ID, p.status, because(reason))
}

func (w *world) endRun(run *runRow, outcome session.Outcome, reason string) {
	if run.outcome != "" {
		return
	}
	run.outcome, w.attendant = outcome, nil
	w.endAborts(run.id, outcome, reason)
	if p := w.prompt(run.promptID); p.runID == run.id {
		w.end(p, outcome, reason)
	}
}

func (w *world) cancelAll(reason string) {
	for _, p := range w.prompts {
		w.end(p, session.OutcomeCancelled, reason)
	}
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

func (w *world) sandbox(generation int64) *sandboxRow {
	for _, s := range w.sandboxes {
		if s.generation == generation {
			return s
		}
	}
	return nil
}

func (w *world) alive() (living []*sandboxRow) {
	for _, s := range w.sandboxes {
		if s.alive {
			living = append(living, s)
		}
	}
	return living
}

// reserve records the intent to create a generation's sandbox, and fences older sandboxes.
func (w *world) reserve(generation int64) (*sandboxRow, error) {
	row := w.sandbox(generation)
	switch {
	case w.state.Final():
		return nil, final(activities.Fenced, "the session is terminated")
	case generation < w.generation:
		return nil, final(activities.Fenced, "generation %d is not the newest, which is %d", generation, w.generation)
	case row != nil && row.ended:
		return nil, final(activities.Fenced, "the sandbox of generation %d has ended", generation)
	}
	w.generation = generation
	if row == nil {
		row = &sandboxRow{generation: generation}
		w.sandboxes = append(w.sandboxes, row)
	}
	return row, nil
}

// boot creates a sandbox at the provider and ends the earlier ones.
func (w *world) boot(row *sandboxRow) {
	for _, s := range w.sandboxes {
		if s.generation < row.generation {
			w.terminate(s)
		}
	}
	if row.id != "" {
		return
	}
	row.id, row.alive = fmt.Sprintf("sb-%d", row.generation), true
	row.since, row.deadline = w.clock.now(), w.clock.now().Add(w.lifetime)
	w.alarm(w.lifetime, func() {
		if row.alive {
			w.say("the provider ends the sandbox of generation %d: its lifetime has ended", row.generation)
			w.kill(row)
		}
	})
	if n := len(w.alive()); n > 1 {
		w.violate("%d sandboxes live at once", n)
	}
}

func (w *world) terminate(s *sandboxRow) {
	if s.alive {
		w.say("sandbox of generation %d terminated", s.generation)
	}
	s.alive, s.ended = false, true
}

// kill ends a sandbox from outside. A turn in it notices after a while.
func (w *world) kill(s *sandboxRow) {
	s.alive = false
	for _, o := range w.operations {
		if o.run != nil && o.run.generation == s.generation {
			w.clock.after(lossTakes, w.locked(func() {
				w.finish(o, nil, final(activities.SandboxLost, "the sandbox has ended"))
			}))
		}
	}
}

func (w *world) head() *bundleRow {
	if len(w.bundles) == 0 {
		return nil
	}
	return &w.bundles[len(w.bundles)-1]
}

// alarm calls ring after d, even if the workflow restarts before.
func (w *world) alarm(d time.Duration, ring func()) {
	a := &alarm{at: w.clock.now().Add(d), ring: ring}
	w.alarms = append(w.alarms, a)
	w.arm(a)
}

func (w *world) arm(a *alarm) {
	w.clock.after(max(a.at.Sub(w.clock.now()), time.Nanosecond), w.locked(func() {
		if i := slices.Index(w.alarms, a); i >= 0 {
			w.alarms = slices.Delete(w.alarms, i, i+1)
			a.ring()
		}
	}))
}

// adopt sets the clock of a new engine that runs the workflow. It discards the results of the
// previous engine's activities.
func (w *world) adopt(c clock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = c
	w.operations, w.canceling = nil, map[string]bool{}
	for _, a := range w.alarms {
		w.arm(a)
	}
}

func (w *world) locked(f func()) func() {
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	}
}

// transit records a step as Postgres does.
func (w *world) transit(t session.Transition) error {
	if t.No == w.transitionNo && t.To == w.state {
		return nil
	}
	to, err := session.Next(t.From, t.Event)
	switch {
	case err != nil || to != t.To:
		w.violate("%s does not lead from %s to %s", t.Event, t.From, t.To)
		return final(activities.Fenced, "not in the table")
	case t.No != w.transitionNo+1 || t.From != w.state:
		return final(activities.Fenced, "transition %d from %s does not follow %d to %s", t.No, t.From, w.transitionNo, w.state)
	}
	if i := slices.IndexFunc(w.commands, func(c session.Command) bool { return c.ID == t.Command }); t.Command != "" && w.commands[i].Status != session.CommandPending {
		return final(activities.Fenced, "command %s is no longer pending", t.Command)
	}
	if t.Event == session.EventWake && t.Reason == session.ReasonPrompt && w.held {
		w.say("the wake is refused: the queue is held")
		return final(activities.Fenced, "the queue is held")
	}
	if run := w.openRun(); to == session.Hibernating && run != nil && !run.parked {
		return final(activities.Fenced, "a turn is in progress")
	}
	if to.Final() {
		w.cancelAll(session.ReasonSessionTerminated)
	}
	w.settleCommands(t)
	if !to.HasSandbox() && len(w.alive()) > 0 {
		w.violate("%s with a living sandbox", to)
	}
	w.attendant = nil
	w.state, w.reason, w.errorCause, w.transitionNo = to, t.Reason, t.Cause, t.No
	if to == session.Running {
		w.sandbox(t.Generation).worked = true
		w.touch()
	}
	receipt := ""
	if t.Receipt != nil {
		receipt = fmt.Sprintf(", receipt %s", t.Receipt.Kind)
	}
	w.say("%s → %s%s%s", t.From, to, because(t.Reason), receipt)
	return nil
}

// inject makes the next calls of an activity fail once each. Calls that only the engine retries
// fail fewer times in a row than the environment allows, because the environment stops even
// unlimited retries after ten attempts.
func (w *world) inject(activity string, times int, err error) {
	switch activity {
	case "CreateSandbox", "RestoreSandbox", "SaveBundle", "RescueBundle", "DropSandbox":
	default:
		times = min(times, 9-len(w.faults[activity]))
	}
	for range times {
		w.faults[activity] = append(w.faults[activity], err)
	}
}

// calm ends every fault and outage: activities take their normal time, and turns end within a
// second.
func (w *world) calm() {
	w.answersLate = 0
	w.faults, w.takes, w.inTask = map[string][]error{}, newWorld(w.say).takes, ""
	for _, p := range w.prompts {
		p.takes = min(p.takes, time.Second)
	}
	soon := w.clock.now().Add(time.Second)
	for _, run := range w.runs {
		if run.delivered && run.endsAt.After(soon) {
			run.endsAt = soon
		}
	}
	for _, o := range slices.Clone(w.operations) {
		if o.run != nil {
			w.endTurnAt(o, o.run.endsAt)
		}
	}
	w.free()
}

// settled checks that prompts are waiting only if the session is in error because of a refusal.
func (w *world) settled() {
	if w.state == session.Error && w.errorCause == session.CauseRefused {
		return
	}
	for _, p := range w.prompts {
		if !p.status.Final() {
			w.violate("%s is still %s, and the session %s", p.ID, p.status, w.state)
		}
	}
}

// fault returns the error for a fault's name in a scenario file.
func fault(kind string) (err error, known bool) { //nolint:revive // the error is the result
	switch kind {
	case "passing":
		return &failure.Error{
			Code: failure.Unavailable, Message: "the database is not available", Err: errors.New("connection refused"),
		}, true
	case "refused":
		return final(activities.Refused, "it will never be had"), true
	case "lost":
		return final(activities.SandboxLost, "the sandbox has ended"), true
	case "undelivered":
		return final(activities.PromptNotDelivered, "the sandbox had ended before"), true
	case "limit":
		return final(activities.SandboxLimit, "the sandbox has ended: it exceeded its disk"), true
	case "unknown":
		return final(activities.DeliveryUnknown, "the runner lost the run"), true
	case "spent":
		return final(activities.GenerationUnusable, "the name is taken"), true
	case "missing":
		return final(activities.SessionMissing, "there is no such session"), true
	case "full":
		return final(activities.GaveWay, "another turn needs the place"), true
	case "fenced":
		return final(activities.Fenced, "another worker has it"), true
	}
	return nil, false
}

func final(kind, format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), kind, nil)
}
