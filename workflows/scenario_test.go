package workflows_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var update = flag.Bool("update", false, "write the transcripts of scenarios as they are now")

// TestScenarios plays testdata/scenarios. A file consists of blocks of commands, each followed by
// ---- and the transcript of the results until the next block. Times count from the start of the
// script. Commands, see cast.do:
//
//	create [lazy] [idle=15m] [lifetime=24h] [closed] [records=slow|lost] [signals=old|each] [attend=20s] [full] [announce] [versioned] [park=3m] [expiry=72h] [status=… reason=with_spaces cause=… generation=N sandbox=alive|dead bundle=N]
//	run ID generation=N [policy=hold|fail|retry] [ends=1m]   a run is in progress
//	prompt ID [takes=1m] [policy=hold|fail|retry] [crashes] [stubborn] [asks]
//	prompts N                                     prompts q1 to qN
//	hold · release · clear · promote ID           the queue
//	withdraw ID · ring ID · wake · hibernate [force] · drop [force] · relocate [force] · sync · revert ID [force] · stop · abort · recover · idle 1m · report N [sandbox=ID]
//	answer ID                                     a person answers the question of its turn
//	busy · free                                   no worker has room for a turn
//	calm                                          nothing fails from here on, questions are answered, and turns end within a second
//	settled                                       checks that every prompt has ended by itself, unless a refusal prevents that
//	putback ID                                    a prompt that had ended is queued again
//	kill · ended N · fail ACTIVITY KIND [times=N] · slow ACTIVITY 1m · history N · cancel · restart
//	doomed N                                      the next N sandboxes end 100ms after they are ready
//	freeze                                        the worker of the turn freezes, until the engine gives the turn to another one
//	state · wait 1m
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			// While an activity starts, time in the SDK's environment advances with the machine's
			// clock. In a synctest bubble that clock stops until every goroutine waits, so a busy
			// machine does not change the order of events.
			var got string
			var c *cast
			synctest.Test(t, func(t *testing.T) { got, c = play(t, string(want)) })
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
			} else {
				require.Equal(t, string(want), got)
			}
			require.Empty(t, c.stage.world.violations)
		})
	}
}

// cast executes the commands of a script.
type cast struct {
	stage  *stage
	blocks []*block
	on     int // the block whose transcript is being written
}

type block struct {
	commands []string
	lines    []string
}

func newCast() *cast {
	c := &cast{stage: newStage()}
	c.stage.world.say = func(format string, args ...any) {
		at := c.stage.now().Sub(epoch).Round(time.Millisecond)
		b := c.blocks[c.on]
		b.lines = append(b.lines, strings.TrimRight(fmt.Sprintf("%-12s %s", at, fmt.Sprintf(format, args...)), " "))
	}
	return c
}

// play executes a script and returns it with the new transcripts.
func play(t require.TestingT, script string) (string, *cast) {
	return playWith(t, script, func(*stage) {})
}

// playWith is play on a stage that a function sets up first.
func playWith(t require.TestingT, script string, setup func(*stage)) (string, *cast) {
	c := newCast()
	setup(c.stage)
	for part := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		commands, _, found := strings.Cut(part, "\n----")
		if !found {
			require.NotContains(t, part, "----")
		}
		c.blocks = append(c.blocks, &block{commands: strings.Split(strings.TrimSpace(commands), "\n")})
	}
	at := epoch
	for i, b := range c.blocks {
		at = c.arrange(t, i, b, at)
	}
	c.stage.until = at
	c.stage.act()
	var out strings.Builder
	for i, b := range c.blocks {
		if i > 0 {
			out.WriteString("\n")
		}
		out.WriteString(strings.Join(b.commands, "\n") + "\n")
		if b.quiet() {
			continue
		}
		out.WriteString("----\n")
		for _, line := range b.lines {
			out.WriteString(line + "\n")
		}
	}
	return out.String(), c
}

// quiet reports whether a block consists only of comments.
func (b *block) quiet() bool {
	for _, command := range b.commands {
		if !strings.HasPrefix(command, "#") {
			return false
		}
	}
	return true
}

// arrange schedules the commands of a block, starting at a given time, and returns the time of the
// next block.
func (c *cast) arrange(t require.TestingT, i int, b *block, at time.Time) time.Time {
	if b.quiet() {
		return at
	}
	add := func(restart bool, do func() error) {
		c.stage.script = append(c.stage.script, scene{at: at, restart: restart, do: func() {
			c.on = i
			if err := do(); err != nil {
				c.stage.world.violate("%s", err)
			}
		}})
	}
	add(false, func() error { return nil })
	waited := false
	for _, line := range b.commands {
		words := strings.Fields(line)
		switch {
		case len(words) == 0, strings.HasPrefix(line, "#"):
		case words[0] == "wait":
			d, err := time.ParseDuration(words[1])
			require.NoError(t, err, line)
			at, waited = at.Add(d), true
		case words[0] == "restart":
			at = at.Add(time.Millisecond)
			add(true, func() error { return nil })
		default:
			add(false, func() error { return c.do(words) })
			waited = false
		}
	}
	if !waited {
		at = at.Add(time.Second)
	}
	return at
}

// args are the words after a command: flags, and values by name.
type args []string

func (a args) has(flag string) bool {
	for _, word := range a {
		if word == flag {
			return true
		}
	}
	return false
}

func (a args) get(name string) string {
	for _, word := range a {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return ""
}

func (a args) duration(name string, otherwise time.Duration) (time.Duration, error) {
	if value := a.get(name); value != "" {
		return time.ParseDuration(value)
	}
	return otherwise, nil
}

func (a args) number(name string) int64 {
	n, _ := strconv.ParseInt(a.get(name), 10, 64)
	return n
}

func (c *cast) do(words []string) error {
	s, w, a := c.stage, c.stage.world, args(words[1:])
	w.mu.Lock()
	defer w.mu.Unlock()
	first := ""
	if len(a) > 0 {
		first = a[0]
	}
	switch words[0] {
	case "create":
		return c.create(a)
	case "run":
		return c.run(first, a)
	case "prompt":
		return c.prompt(first, a)
	case "prompts":
		n, err := strconv.Atoi(first)
		for i := range n {
			err = cmp.Or(err, c.prompt(fmt.Sprintf("q%d", i+1), nil))
		}
		return err
	case "withdraw":
		w.end(w.prompt(first), session.OutcomeCancelled, session.ReasonWithdrawn)
	case "hold":
		c.hold()
	case "release":
		c.release()
	case "promote":
		if p := w.prompt(first); p != nil && p.status == session.PromptQueued && w.firstQueued() != p {
			p.Rank = min(0, w.firstQueued().Rank) - 1
		}
	case "clear":
		for _, p := range w.prompts {
			if p.status == session.PromptQueued {
				w.end(p, session.OutcomeCancelled, session.ReasonCleared)
			}
		}
	case "ring":
		if p := w.prompt(first); p != nil {
			s.signal(contract.SignalPrompt, contract.PromptSignal{PromptID: p.ID, Ordinal: p.Ordinal}, true)
		}
	case "wake", "stop", "recover", "hibernate", "drop", "relocate", "sync", "revert", "abort":
		kind := session.CommandKind(words[0])
		switch kind {
		case "drop":
			kind = session.CommandDrop
		case "relocate":
			kind = session.CommandRestart
		}
		prompt := ""
		if kind == session.CommandRevert {
			prompt = first
		}
		if w.oldSignals {
			c.oldSignal(kind, a.has("force"), prompt)
		} else {
			c.command(kind, a.has("force"), prompt)
		}
	case "answer":
		return c.answer(first)
	case "idle":
		d, err := time.ParseDuration(first)
		w.idleTimeout = d
		if w.oldSignals {
			s.signal(contract.SignalSettings, contract.SettingsSignal{IdleTimeout: d}, false)
		} else {
			c.settings()
		}
		return err
	case "storm":
		n, err := strconv.Atoi(first)
		if err != nil {
			return err
		}
		return c.storm(n)
	case "nudge":
		s.signal(contract.SignalCommands, nil, false)
	case "report":
		n, err := strconv.ParseInt(first, 10, 64)
		c.signal(contract.SignalSandbox, contract.SandboxSignal{Generation: n, SandboxID: a.get("sandbox"), Reason: "not listed"})
		return err
	case "doomed":
		n, err := strconv.Atoi(first)
		w.doomed = n
		return err
	case "kill":
		for _, sandbox := range w.alive() {
			w.kill(sandbox)
		}
	case "ended":
		n, err := strconv.ParseInt(first, 10, 64)
		w.sandbox(n).ended = true
		return err
	case "fail":
		err, ok := fault(a[1])
		if !ok {
			return fmt.Errorf("no such fault: %s", a[1])
		}
		w.inject(first, max(1, int(a.number("times"))), err)
	case "slow":
		d, err := time.ParseDuration(a[1])
		w.takes[first] = d
		return err
	case "calm":
		w.calm()
		return c.answerAll()
	case "late":
		d, err := time.ParseDuration(first)
		w.answersLate = d
		return err
	case "earlier":
		w.earlierWorkers = true
	case "freeze":
		w.freeze()
	case "settled":
		w.settled()
	case "busy":
		w.busy = true
	case "free":
		w.free()
	case "putback":
		w.queue(w.prompt(first), "")
	case "history":
		n, err := strconv.Atoi(first)
		if s.env != nil {
			s.env.SetCurrentHistoryLength(n)
		}
		return err
	case "cancel":
		s.env.CancelWorkflow()
	case "state":
		return c.state()
	default:
		return fmt.Errorf("no such command: %s", words[0])
	}
	return nil
}

func (c *cast) signal(name string, arg any) {
	if !c.stage.signal(name, arg, false) {
		c.stage.world.say("no workflow is open")
	}
}

// create makes the row of the session, new or in a given state, and starts its workflow unless the
// workflow must be closed.
func (c *cast) create(a args) (err error) {
	w := c.stage.world
	w.lazy, w.inTask, w.oldSignals = a.has("lazy"), a.get("records"), a.get("signals") == "old"
	w.eachSignal, w.announces = a.get("signals") == "each", a.has("announce")
	w.versioned = a.has("versioned")
	w.keepsRoom = !a.has("full") // like workflows that were opened by earlier workers
	if w.idleTimeout, err = a.duration("idle", w.idleTimeout); err != nil {
		return err
	}
	if w.lifetime, err = a.duration("lifetime", w.lifetime); err != nil {
		return err
	}
	if w.parkAfter, err = a.duration("park", 0); err != nil {
		return err
	}
	if w.expiry, err = a.duration("expiry", 72*time.Hour); err != nil {
		return err
	}
	if w.attends, err = a.duration("attend", 0); err != nil {
		return err
	}
	if status := a.get("status"); status != "" {
		if w.state, err = session.ParseState(status); err != nil {
			return err
		}
	}
	w.reason, w.errorCause = strings.ReplaceAll(a.get("reason"), "_", " "), session.ErrorCause(a.get("cause"))
	w.generation, w.transitionNo = a.number("generation"), a.number("generation")
	if kind := a.get("sandbox"); kind != "" {
		row := &sandboxRow{generation: w.generation}
		w.sandboxes = append(w.sandboxes, row)
		w.boot(row)
		row.alive, row.ready, row.worked = kind == "alive", true, true
	}
	if n := a.number("bundle"); n > 0 {
		w.bundles = append(w.bundles, bundleRow{id: "bun_0", generation: n, verified: true})
	}
	if !a.has("closed") {
		c.stage.signal(contract.SignalPrompt, contract.PromptSignal{}, true)
	}
	return nil
}

// run makes the row of a run that an earlier workflow has started.
func (c *cast) run(id string, a args) error {
	w := c.stage.world
	ends, err := a.duration("ends", time.Minute)
	if err != nil {
		return err
	}
	p := w.accept(promptRow{QueuedPrompt: session.QueuedPrompt{ID: id}, policy: session.OnUnknown(a.get("policy"))})
	p.status, p.runID, p.deliveries = session.PromptProcessing, "run_"+id, 1
	w.runs[p.runID] = &runRow{
		id: p.runID, promptID: id, generation: a.number("generation"),
		attached: true, delivered: true, endsAt: w.clock.now().Add(ends),
	}
	return nil
}

func (c *cast) prompt(id string, a args) error {
	takes, err := a.duration("takes", time.Second)
	if err != nil {
		return err
	}
	row := promptRow{
		QueuedPrompt: session.QueuedPrompt{ID: id}, takes: takes,
		policy: session.OnUnknown(a.get("policy")), stubborn: a.has("stubborn"), asks: a.has("asks"),
	}
	if a.has("crashes") {
		row.outcome = session.OutcomeFailed
	}
	p := c.stage.world.accept(row)
	if p == nil {
		c.stage.world.say("%s is refused: the session is %s", id, c.stage.world.state)
		return nil
	}
	w := c.stage.world
	attended := !w.held && w.attendant != nil && !w.eachSignal && !w.oldSignals && c.stage.open() && !w.signalled && w.openRun() == nil
	switch {
	case attended:
		c.attended(p)
	case w.held:
	case w.mark(false) || w.oldSignals || !c.stage.open():
		w.signals++
		c.stage.signal(contract.SignalPrompt, contract.PromptSignal{PromptID: p.ID, Ordinal: p.Ordinal, At: c.stage.now()}, true)
	}
	if c.stage.world.attends > 0 {
		c.relay(p)
	}
	return nil
}

// attended handles a prompt for an attendant: the workflow is signalled soon if the prompt is not
// claimed, and later if it is.
func (c *cast) attended(p *promptRow) {
	w := c.stage.world
	named := contract.AttendedSignal{Prompts: []session.QueuedPrompt{p.QueuedPrompt}}
	w.alarm(claimWait, func() {
		switch {
		case w.state.Final():
		case p.status == session.PromptQueued && w.openRun() == nil && !w.held:
			w.signals++
			c.stage.signal(contract.SignalPrompt, contract.PromptSignal{PromptID: p.ID, Ordinal: p.Ordinal, At: c.stage.now()}, true)
		default:
			w.alarm(recordAfter, func() { c.stage.signal(contract.SignalAttended, named, false) })
		}
	})
}

// relay re-sends the signal for an unclaimed prompt, as the relays of workers do.
func (c *cast) relay(p *promptRow) {
	w := c.stage.world
	w.alarm(relayAge, func() {
		if p.status.Final() || w.state.Final() {
			return
		}
		if p.status == session.PromptQueued && w.state == session.Running && w.openRun() == nil && w.claimable() == p {
			w.say("the relay signals for %s", p.ID)
			c.stage.signal(contract.SignalPrompt, contract.PromptSignal{PromptID: p.ID, Ordinal: p.Ordinal, At: c.stage.now()}, true)
		}
		c.relay(p)
	})
}

func (c *cast) state() error {
	s := c.stage
	s.world.mu.Unlock() // the query may need the lock
	v, err := s.view()
	s.world.mu.Lock()
	if err != nil {
		s.world.say("%s", err)
		return nil
	}
	if v.SessionID != s.world.id {
		return errors.New("the view of another session")
	}
	s.world.say("state: %s%s, generation %d, transition %d, %q", v.Status, because(v.StatusReason), v.Generation, v.TransitionNo, v.Doing)
	s.world.say("       prompt %q, queue %v, wants %+v, idle %s, continued %d", v.PromptID, v.Queue, v.Wants, v.IdleTimeout, v.Continued)
	return nil
}
