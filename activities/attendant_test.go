package activities_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// attended makes turns attend the session, which a workflow has opened.
func (b *harness) attended(t *testing.T, change func(*activities.Config)) {
	t.Helper()
	changes := eventlog.NewFollower(postgres.Outside{DB: b.db}, eventlog.FollowerOptions{})
	changes.Start()
	t.Cleanup(changes.Stop)
	b.config.Changes, b.config.Attend = changes, time.Minute
	if change != nil {
		change(&b.config)
	}
	b.build()
	b.open(t)
}

// open opens the session as its workflow does.
func (b *harness) open(t *testing.T) activities.OpenedSession {
	t.Helper()
	opened, err := do(b, attempt{}, b.control.OpenSession, activities.SessionRef{SessionID: b.id})
	require.NoError(t, err)
	return opened
}

func (b *harness) reclaim(t *testing.T) activities.Reclaimed {
	t.Helper()
	taken, err := do(b, attempt{}, b.control.TakeBack, activities.SessionRef{SessionID: b.id})
	require.NoError(t, err)
	return taken
}

// attendedClaim is claim for a turn that may attend the session.
func (b *harness) attendedClaim(t *testing.T, s activities.SandboxReady, content string) activities.TurnRequest {
	t.Helper()
	in := b.claim(t, s, content)
	in.Look, in.Dispatch, in.Attend = true, 1, &activities.Attend{For: time.Minute, MaxPrompts: 10}
	return in
}

func (b *harness) submit(t *testing.T, content string) session.Prompt {
	t.Helper()
	p, _, _, err := b.db.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: content})
	require.NoError(t, err)
	return p
}

// awaitEnd waits until a prompt has its outcome.
func (b *harness) awaitEnd(t *testing.T, p session.Prompt) session.Prompt {
	t.Helper()
	require.Eventually(t, func() bool { return b.prompt(t, p.ID).Status.Final() }, waitLimit, 10*time.Millisecond, "the prompt does not end")
	return b.prompt(t, p.ID)
}

// ranOnce checks that a prompt has completed with the expected output, in one run.
func (b *harness) ranOnce(t *testing.T, p session.Prompt, text string) {
	t.Helper()
	p = b.awaitEnd(t, p)
	require.Equal(t, session.PromptCompleted, p.Status)
	require.Equal(t, text, b.output(t, p.RunID))
	require.Len(t, b.of(t, p.RunID, "turn_end"), 1)
	runs := 0
	b.query(t, &runs, "SELECT count(*) FROM runs WHERE session_id = $1 AND prompt_id = $2", b.id, p.ID)
	require.Equal(t, 1, runs)
}

// carriedOn opens the session like the next workflow run, and continues the run that it finds.
func (b *harness) carriedOn(t *testing.T, s activities.SandboxReady) session.Processing {
	t.Helper()
	opened := b.open(t)
	require.NotNil(t, opened.Processing, "the workflow learns of the run")
	run := *opened.Processing
	result, err := b.turn(activities.TurnRequest{
		SessionID: b.id, RunID: run.RunID, PromptID: run.PromptID, Generation: s.Generation, SandboxID: s.SandboxID, Dispatch: run.Dispatch,
	})
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	return run
}

// TestAttendantRunsFollowingPrompts checks that an attendant runs the following prompts in order,
// both those submitted during a turn and later ones, until its worker stops. Then the result lists
// the runs and the pending prompts.
func TestAttendantRunsFollowingPrompts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.attended(t, nil)
	in := b.attendedClaim(t, ready, "slow 20ms: one two three four")
	second, third := b.submit(t, "the second"), b.submit(t, "the third")
	turn := b.begin(t, in)
	b.ranOnce(t, second, "the second")
	b.ranOnce(t, third, "the third")
	fourth := b.submit(t, "the fourth")
	b.ranOnce(t, fourth, "the fourth")
	require.Len(t, b.driver.attachments(), 1, "the link is used again")
	select {
	case <-turn.done:
		require.FailNow(t, "the attendant has left")
	default:
	}
	close(turn.stop)
	result, err := turn.wait(t)
	require.NoError(t, err, "an attendant has nothing to hand over")
	runs := []string{}
	for _, p := range []session.Prompt{second, third, fourth} {
		runs = append(runs, b.prompt(t, p.ID).RunID)
	}
	prompts := []string{second.ID, third.ID, fourth.ID}
	require.Equal(t, &activities.Attended{Runs: runs, PromptIDs: prompts, Ordinal: fourth.Ordinal}, result.Attended)
	require.Equal(t, &activities.Waiting{IdleTimeout: session.DefaultIdleTimeout}, result.Waiting)
	require.Equal(t, b.run(t, runs[2]).EndedAt, result.EndedAt.UTC())
	require.False(t, result.Reread)
	require.Nil(t, b.reclaim(t).Run)

	// Temporal's next attempt at the same request finds that its run has ended, and others may have
	// followed.
	again, err := b.turn(in)
	require.NoError(t, err)
	require.True(t, again.Reread)
}

// attachments returns the links that were made.
func (f *faulty) attachments() (links [][]string) {
	for _, argv := range f.argvs() {
		if len(argv) > 1 && argv[1] == "attach" {
			links = append(links, argv)
		}
	}
	return links
}

// TestAttendantLeaves checks that an attendant leaves at its time limit, after its maximum number
// of prompts, when a turn needs its place, and when something other than a prompt waits.
func TestAttendantLeaves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*activities.Config)
		attend activities.Attend
		then   func(t *testing.T, b *harness, turn *pending[activities.TurnResult])
		waits  func(t *testing.T, w activities.Waiting)
	}{
		"its time is up":                           {attend: activities.Attend{For: 50 * time.Millisecond, MaxPrompts: 10}},
		"the worker's time is up":                  {change: func(c *activities.Config) { c.Attend = 50 * time.Millisecond }},
		"the session moves":                        {attend: activities.Attend{For: time.Minute, MaxPrompts: 10, Until: time.Now()}},
		"it has run its maximum number of prompts": {attend: activities.Attend{For: time.Minute}},
		"the worker has room for one":              {change: func(c *activities.Config) { c.MaxTurns = 1 }},
		"the worker does not attend":               {change: func(c *activities.Config) { c.Attend = 0 }},
		"the worker gets no notifications":         {change: func(c *activities.Config) { c.Changes = nil }},
		"a command is submitted": {then: func(t *testing.T, b *harness, _ *pending[activities.TurnResult]) {
			_, err := b.db.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandHibernate})
			require.NoError(t, err)
		}, waits: func(t *testing.T, w activities.Waiting) {
			require.Len(t, w.Commands, 1)
			require.Equal(t, session.CommandHibernate, w.Commands[0].Kind)
		}},
		"another session needs its place": {change: func(c *activities.Config) { c.MaxTurns = 2 }, then: func(t *testing.T, b *harness, turn *pending[activities.TurnResult]) {
			for left := false; !left; { // the first turns may have left before the attendant begins to wait
				_, err := b.turn(activities.TurnRequest{SessionID: b.id, RunID: session.NewID(session.RunPrefix)})
				require.Error(t, err, "there is no such run, but it takes a place all the same")
				select {
				case <-turn.done:
					left = true
				default:
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ready := b.create(t)
			b.attended(t, c.change)
			in := b.attendedClaim(t, ready, "hello")
			if c.attend.For > 0 {
				in.Attend = &c.attend
			}
			attends := make(chan struct{})
			var once sync.Once
			b.steps.set(nil, func(step string) {
				if step == stepEnd {
					once.Do(func() { close(attends) })
				}
			})
			turn := b.begin(t, in)
			<-attends
			if c.then != nil {
				c.then(t, b, turn)
			}
			result, err := turn.wait(t)
			require.NoError(t, err)
			require.Nil(t, result.Attended)
			require.NotNil(t, result.Waiting)
			if c.waits != nil {
				c.waits(t, *result.Waiting)
			}
			// The attendant can no longer claim prompts.
			p := b.submit(t, "for the workflow")
			require.Nil(t, b.reclaim(t).Run)
			require.Equal(t, session.PromptQueued, b.prompt(t, p.ID).Status)
		})
	}
}

// TestAttendantWaitsForWorkflow checks that an attendant that finds a command does not leave at once,
// because the workflow takes the session back at the same time.
func TestAttendantWaitsForWorkflow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.attended(t, nil)
	claimed, attends := make(chan time.Time, 1), make(chan struct{})
	var once sync.Once
	b.steps.set(nil, func(step string) {
		switch step {
		case stepEnd:
			once.Do(func() { close(attends) })
		case stepClaim:
			select {
			case claimed <- time.Now():
			default:
			}
		}
	})
	turn := b.begin(t, b.attendedClaim(t, ready, "hello"))
	<-attends
	_, err := b.db.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandHibernate})
	require.NoError(t, err)
	_, err = turn.wait(t)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(<-claimed), 900*time.Millisecond)
}

// freezer blocks the first attempt that reaches a step, before or after it, until it is thawed.
type freezer struct {
	reached, thaw chan struct{}
	frozen        atomic.Bool
}

func (b *harness) freezeAt(t *testing.T, step string, after bool) *freezer {
	t.Helper()
	f := &freezer{reached: make(chan struct{}), thaw: make(chan struct{})}
	stop := func(at string) {
		open := true
		if step == stepClaim && after { // a change that is not a prompt leads to a claim of nothing
			run, err := b.db.RunOpen(b.ctx, b.id)
			open = err == nil && run != ""
		}
		if at == step && open && f.frozen.CompareAndSwap(false, true) {
			close(f.reached)
			<-f.thaw
		}
	}
	if after {
		b.steps.set(nil, stop)
	} else {
		b.steps.set(func(at string, _ *eventlog.Append) error { stop(at); return nil }, nil)
	}
	return f
}

// TestFrozenAttendantRunsNoPromptTwice freezes the worker of an attendant between two of its steps,
// for longer than the timeouts of Temporal and the relay. The workflow ends the attendance, or
// finds the run that the attendant has claimed and gives it to another worker. When the attendant
// continues, its writes have no effect.
func TestFrozenAttendantRunsNoPromptTwice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step   string
		after  bool
		claims bool // the attendant has the prompt while it is frozen
	}{
		"before its claim":          {step: stepClaim},
		"after its claim":           {step: stepClaim, after: true, claims: true},
		"before its greeting":       {step: stepGreet, claims: true},
		"after its greeting":        {step: stepGreet, after: true, claims: true},
		"before its first frame":    {step: stepAppend, claims: true},
		"after its last frame":      {step: stepEnd, claims: true},
		"after the end of its turn": {step: stepEnd, after: true},
	} {
		for _, command := range []session.CommandKind{"", session.CommandSync, session.CommandAbort, session.CommandStop} {
			t.Run(name+" "+string(command), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				ready := b.create(t)
				b.attended(t, nil)
				turn := b.begin(t, b.attendedClaim(t, ready, "the first"))
				b.ranOnce(t, b.submit(t, "the second"), "the second")
				if c.step == stepGreet {
					b.steps.Store = &lateGreetings{Store: b.steps.Store, steps: b.steps}
				}
				frozen := b.freezeAt(t, c.step, c.after)
				third := b.submit(t, "the third")
				<-frozen.reached
				var fourth session.Prompt
				if c.step == stepEnd && c.after { // that was the end of the third
					fourth = b.submit(t, "the fourth")
				}
				if command != "" {
					_, err := b.db.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: command})
					require.NoError(t, err)
				}
				switch taken := b.reclaim(t); {
				case c.claims:
					require.Equal(t, third.ID, taken.Run.PromptID)
					require.Equal(t, third.ID, b.carriedOn(t, ready).PromptID)
				case c.after:
					require.Nil(t, taken.Run)
					third = fourth
				default:
					require.Nil(t, taken.Run)
				}
				close(frozen.thaw)
				result, err := turn.wait(t)
				if err == nil {
					require.True(t, result.Reread, "the workflow receives only results that the attendant has: %+v", result)
				}
				if !c.claims {
					require.Equal(t, session.PromptQueued, b.prompt(t, third.ID).Status, "it is the workflow's")
					if command != "" && command != session.CommandAbort {
						return
					}
					p := b.prompt(t, third.ID)
					run := session.NewID(session.RunPrefix)
					verdict, err := do(b, attempt{}, b.control.BeginRun, activities.ClaimRequest{SessionID: b.id, PromptID: p.ID, RunID: run, Generation: ready.Generation})
					require.NoError(t, err)
					require.True(t, verdict.Granted)
					_, err = b.turn(activities.TurnRequest{SessionID: b.id, RunID: run, PromptID: p.ID, Generation: ready.Generation, SandboxID: ready.SandboxID, Dispatch: verdict.Dispatch})
					require.NoError(t, err)
				}
				b.ranOnce(t, third, third.Content)
			})
		}
	}
}

// lateGreetings greets the runner of a claimed run after the claim: within it, a frozen step would prevent
// the test from using the session.
type lateGreetings struct {
	activities.Store
	steps *steps
}

func (l *lateGreetings) RunClaim(ctx context.Context, c run.Claim) (run.Claimed, error) {
	expected, greet := c.Expected, func() error { return nil }
	c.Expected = func(start run.Start) { greet = func() error { expected(start); return nil } }
	claimed, err := l.Store.RunClaim(ctx, c)
	if claimed.Start != nil {
		err = l.steps.take(stepGreet, nil, greet)
	}
	return claimed, err
}

// TestLateGreetingInterruptsNoTurn freezes the worker of an attendant whose claim fails until another
// worker has begun the prompt. Its greeting then takes the place of the other worker's link. The next
// attempt attaches again, and the agent has continued.
func TestLateGreetingInterruptsNoTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.attended(t, nil)
	lost := &lostClaims{Store: b.steps.Store, reached: make(chan struct{}), thaw: make(chan struct{}), fail: make(chan struct{})}
	b.steps.Store = lost
	attending := b.begin(t, b.attendedClaim(t, ready, "the first"))
	b.ranOnce(t, b.submit(t, "the second"), "the second")
	lost.loses.Store(true)
	third := b.submit(t, "slow 30ms: one two three four five six seven eight nine ten")
	<-lost.reached
	require.Nil(t, b.reclaim(t).Run)

	config := b.config
	config.Links = nil
	_, b.turns = activities.New(config)
	run := session.NewID(session.RunPrefix)
	verdict, err := do(b, attempt{}, b.control.BeginRun, activities.ClaimRequest{SessionID: b.id, PromptID: third.ID, RunID: run, Generation: ready.Generation})
	require.NoError(t, err)
	require.True(t, verdict.Granted)
	in := activities.TurnRequest{SessionID: b.id, RunID: run, PromptID: third.ID, Generation: ready.Generation, SandboxID: ready.SandboxID}
	turn := b.begin(t, in)
	b.await(t, run, "text_delta")
	close(lost.thaw)
	_, err = turn.wait(t)
	require.ErrorContains(t, err, runner.ErrDisplaced.Error())
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	b.ranOnce(t, third, "one two three four five six seven eight nine ten")
	close(lost.fail)
	result, err = attending.wait(t)
	require.NoError(t, err)
	require.True(t, result.Reread)
}

// lostClaims loses claims with everything that they have written, after their starts were expected.
type lostClaims struct {
	activities.Store
	loses               atomic.Bool
	start               run.Start // of the last successful claim
	reached, thaw, fail chan struct{}
}

func (l *lostClaims) RunClaim(ctx context.Context, c run.Claim) (run.Claimed, error) {
	if !l.loses.Load() {
		claimed, err := l.Store.RunClaim(ctx, c)
		if claimed.Start != nil {
			l.start = *claimed.Start
		}
		return claimed, err
	}
	close(l.reached)
	<-l.thaw
	l.start.Run.ID = c.RunID
	c.Expected(l.start)
	<-l.fail
	return run.Claimed{}, &failure.Error{Code: failure.Internal, Message: "the claim was lost"}
}

// TestClaimIsRepeatedAfterLostResponse breaks the connection to Postgres after the commit, twice.
func TestClaimIsRepeatedAfterLostResponse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.attended(t, nil)
	lost := &losingClaims{Store: b.steps.Store}
	b.steps.Store = lost
	b.begin(t, b.attendedClaim(t, ready, "the first"))
	b.ranOnce(t, b.submit(t, "the second"), "the second")
	b.ranOnce(t, b.submit(t, "the third"), "the third")
	require.Zero(t, lost.left())
}

// losingClaims loses the answers to the first claims that are granted.
type losingClaims struct {
	activities.Store
	before, after func() // called before and after the lost claims. Default: they are not called.

	mu   sync.Mutex
	lost int
}

func (l *losingClaims) left() int { l.mu.Lock(); defer l.mu.Unlock(); return 2 - l.lost }

func (l *losingClaims) RunClaim(ctx context.Context, c run.Claim) (run.Claimed, error) {
	if l.before != nil && l.left() > 0 {
		l.before()
	}
	if l.after != nil && l.left() == 0 {
		l.after()
	}
	claimed, err := l.Store.RunClaim(ctx, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && claimed.Start != nil && l.lost < 2 {
		l.lost++
		return run.Claimed{}, &failure.Error{Code: failure.Unavailable, Message: "the database is not available"}
	}
	return claimed, err
}

// TestUnansweredGreetingStaysWhileClaimIsRepeated freezes the runner from the first claim of a prompt, whose
// response is lost, until the second one. The greeting may still arrive, and would break another link of the
// same attempt, so the attempt uses the greeted one.
func TestUnansweredGreetingStaysWhileClaimIsRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.attended(t, nil)
	signal := func(name string) {
		b.shell(t, ready.SandboxID, `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -q '[r]unner serve' && kill -`+name+` ${p#/proc/}; done; true`)
	}
	losing := &losingClaims{Store: b.steps.Store, before: func() { signal("STOP") }, after: func() { signal("CONT") }}
	losing.lost = 1 // one is left
	b.steps.Store = losing
	b.begin(t, b.attendedClaim(t, ready, "the first"))
	b.ranOnce(t, b.submit(t, "the second"), "the second")
	require.Zero(t, losing.left())
	require.Equal(t, 1, b.attaches())
}

// TestGreetingOfLostAttachHarmsNoLaterAttempt loses the first attempt at the second run of a sandbox, whose
// link is kept, after the runner was greeted: with and without the commit of the attempt.
func TestGreetingOfLostAttachHarmsNoLaterAttempt(t *testing.T) {
	t.Parallel()
	for name, greetings := range map[string]int{"committed": 2, "not committed": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ready := b.create(t)
			losing := &losingAttaches{Store: b.steps.Store, committed: name == "committed"}
			b.steps.Store = losing
			require.Equal(t, "the first", b.say(t, ready, "the first"))
			in := b.claim(t, ready, "the second")
			in.Dispatch = 1
			_, err := b.turn(in)
			require.ErrorContains(t, err, "not available")
			in.Dispatch = 2
			result, err := b.turn(in)
			require.NoError(t, err)
			require.Equal(t, session.OutcomeCompleted, result.Outcome)
			require.Equal(t, "the second", b.output(t, in.RunID))
			require.Equal(t, greetings, losing.greeted, "every attempt that may be the first greets the runner")
		})
	}
}

// losingAttaches loses the first attempt at the second run.
type losingAttaches struct {
	activities.Store
	committed bool
	calls     int
	greeted   int
	first     run.Start
}

func (l *losingAttaches) RunAttach(
	ctx context.Context, runID, token string, by run.Dispatch, expected func(run.Start),
) (start run.Start, err error) {
	greet := func(start run.Start) {
		l.greeted++
		expected(start)
	}
	l.calls++
	switch {
	case l.calls == 2 && !l.committed:
		start = l.first
		start.Run.ID = runID
		greet(start)
	default:
		start, err = l.Store.RunAttach(ctx, runID, token, by, greet)
	}
	if l.calls == 1 {
		l.first = start
	}
	if l.calls == 2 && err == nil {
		return run.Start{}, &failure.Error{Code: failure.Unavailable, Message: "the database is not available"}
	}
	return start, err
}

// TestAttendedTurnIsHandedOver stops the worker during an attended turn. The workflow finds the run
// and gives it to another worker.
func TestAttendedTurnIsHandedOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.attended(t, nil)
	in := b.attendedClaim(t, ready, "the first")
	turn := b.begin(t, in)
	b.ranOnce(t, b.submit(t, "the second"), "the second")
	third := b.submit(t, "slow 30ms: one two three four five six seven eight nine ten")
	require.Eventually(t, func() bool { return b.prompt(t, third.ID).RunID != "" }, waitLimit, 5*time.Millisecond)
	b.await(t, b.prompt(t, third.ID).RunID, "text_delta")
	close(turn.stop)
	_, err := turn.wait(t)
	requireType(t, activities.HandOver, err)
	again, err := b.turn(in)
	require.NoError(t, err)
	require.True(t, again.Reread)
	b.carriedOn(t, ready)
	b.ranOnce(t, third, "one two three four five six seven eight nine ten")
}

// TestAttendantClaimsOnlyWhatOthersSend checks that an attendant is not woken by the commits of
// turns: it locks the session once per prompt.
func TestAttendantClaimsOnlyWhatOthersSend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.attended(t, nil)
	watched := &watchedClaims{Store: b.steps.Store}
	b.steps.Store = watched
	b.begin(t, b.attendedClaim(t, ready, "the first"))
	b.ranOnce(t, b.submit(t, "the second"), "the second")
	before := watched.claims.Load()
	const prompts = 8
	for i := range prompts {
		content := fmt.Sprintf("prompt %d", i)
		b.ranOnce(t, b.submit(t, content), content)
	}
	// One more may be for a change before the first turn.
	require.LessOrEqual(t, watched.claims.Load()-before, int64(prompts+1))
}

// watchedClaims counts claims.
type watchedClaims struct {
	activities.Store
	claims atomic.Int64
}

func (w *watchedClaims) RunClaim(ctx context.Context, c run.Claim) (run.Claimed, error) {
	w.claims.Add(1)
	return w.Store.RunClaim(ctx, c)
}
