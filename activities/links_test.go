package activities_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// attaches counts the execs of links.
func (b *harness) attaches() int {
	n := 0
	for _, argv := range b.driver.argvs() {
		if slices.Contains(argv, "attach") {
			n++
		}
	}
	return n
}

func TestTurnReusesLinkOfPreviousTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	for _, text := range []string{"one", "two", "three"} {
		require.Equal(t, text, b.say(t, ready, text))
	}
	require.Equal(t, 1, b.attaches())

	// Another worker has its own links, and this one's stays intact.
	mine := b.turns
	config := b.config
	config.Links = nil
	_, b.turns = activities.New(config)
	require.Equal(t, "four", b.say(t, ready, "four"))
	require.Equal(t, 2, b.attaches())
	b.turns = mine
	require.Equal(t, "five", b.say(t, ready, "five"))
	require.Equal(t, 2, b.attaches())
}

func TestLinkBrokenBetweenTurnsIsReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	require.Equal(t, "one", b.say(t, ready, "one"))
	// The worker may or may not have noticed it by the next turn. Either way nothing is lost or
	// done twice.
	b.shell(t, ready.SandboxID, `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -q '[r]unner attach' && kill -9 ${p#/proc/}; done; true`)
	in := b.claim(t, ready, "two")
	result, err := b.untilFinal(t, in, b.begin(t, in))
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.Equal(t, "two", b.output(t, in.RunID))
}

// TestPromptIsNotDeliveredToSandboxThatDiedBetweenTurns checks that the broken link of the previous
// turn does not make the delivery of the next prompt unknown.
func TestPromptIsNotDeliveredToSandboxThatDiedBetweenTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	require.Equal(t, "one", b.say(t, ready, "one"))
	in := b.claim(t, ready, "never heard")
	require.NoError(t, b.provider.Open(ready.SandboxID).Terminate(b.ctx))
	_, err := b.turn(in)
	requireType(t, activities.PromptNotDelivered, err)
}

func TestStoppedWorkerKeepsNoLinks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	require.Equal(t, "one", b.say(t, ready, "one"))
	b.links.Close()
	const count = `n=0; for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -q '[r]unner attach' && n=$((n+1)); done; echo $n`
	require.Eventually(t, func() bool { return b.shell(t, ready.SandboxID, count) == "0\n" }, waitLimit, 20*time.Millisecond, "the exec of the link is still running")
	require.Equal(t, "two", b.say(t, ready, "two"), "it is a worker all the same")
	require.Equal(t, 2, b.attaches())
	b.links.Close()
}

// seals counts the execs of seals.
func (b *harness) seals() int {
	n := 0
	for _, argv := range b.driver.argvs() {
		if slices.Contains(argv, "seal") {
			n++
		}
	}
	return n
}

// TestSaveSealsOverLinkOfTurn checks that a save soon after a turn needs no exec, and that a save
// without a working link has the same result.
func TestSaveSealsOverLinkOfTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	require.Equal(t, "one", b.say(t, ready, "one\nwrite notes: kept"))
	checkpoint := func() manifest.Manifest {
		request := b.saveRequest(ready)
		request.BundleID, request.Checkpoint = session.NewID(session.BundlePrefix), true
		saved, err := do(b, attempt{}, b.control.SaveBundle, request)
		require.NoError(t, err)
		require.True(t, saved.Verified)
		m := b.head(t).Manifest
		m.LastSeq = 0
		return m
	}
	over := checkpoint()
	require.Zero(t, b.seals())
	require.Len(t, over.AgentFiles, 1)
	require.Equal(t, "two", b.say(t, ready, "two"), "the link is kept")
	require.Equal(t, 1, b.attaches())

	over = checkpoint()
	require.Zero(t, b.seals())
	b.links.Close()
	require.Equal(t, over, checkpoint())
	require.Equal(t, 1, b.seals())
}

// TestSaveOutlivesBrokenLink checks that a link that breaks before or during a seal does not prevent
// the next attempt from saving the sandbox.
func TestSaveOutlivesBrokenLink(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	require.Equal(t, "one", b.say(t, ready, "one"))
	b.shell(t, ready.SandboxID, `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -q '[r]unner attach' && kill -9 ${p#/proc/}; done; true`)
	saved, err := b.save(ready)
	if err != nil { // the worker had not noticed it
		requirePassing(t, err)
		saved, err = b.save(ready)
	}
	require.NoError(t, err)
	require.True(t, saved.Verified)
	require.Len(t, b.head(t).Manifest.AgentFiles, 1)
	require.Equal(t, 1, b.seals())
}
