package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHostileSessions makes sessions, clients and operators misuse the system. Each session ends as
// its client was promised, and the others are not affected.
func TestHostileSessions(t *testing.T) {
	t.Parallel()
	r := startRigWith(t, startTemporal(t), []string{defaultCollector}, 1)
	for _, c := range []struct { //nolint:paralleltest // see above
		name string
		try  func(*testing.T)
	}{
		{"a worker killed in a setup script", r.workerKilledInSetup},
		{"a setup script that fails", r.setupFails},
		{"a stop whose workflow is terminated by hand", r.stopOutlivesItsWorkflow},
		{"a snapshot damaged on disk", r.damagedSnapshot},
		{"an abort at the end of its turn", r.abortAtTheEnd},
		{"a locked session row", r.lockedRow},
		{"Temporal frozen in a turn", r.temporalFrozen},
		{"a queue full of large prompts", r.fullQueue},
		{"an agent that floods", r.flood},
	} {
		t.Run(c.name, c.try)
	}
	r.nothingIsLeft(t, settleWithin)
}

// workerKilledInSetup kills the worker while a setup script runs in the sandbox. The script
// continues and is not run again.
func (r *rig) workerKilledInSetup(t *testing.T) {
	name := "setup-killed"
	setup := r.hits.command(name+"-begin") + " && sleep 8 && " + r.hits.command(name+"-end") + " && echo made by the setup > setup.txt"
	s := r.newSubject(t, object{"workspace": object{"setup": setup}})
	s.send(t.Context(), "first", "", "$ cat setup.txt")
	r.hits.wait(t, name+"-begin", settleWithin)
	kill(r.pids(partWorker))
	require.Equal(t, "completed", s.waitPrompt(t, s.id, "first", settleWithin)["status"])
	require.Contains(t, s.text(t, s.id), "made by the setup")
	require.Equal(t, []int{1, 1}, []int{r.hits.count(name + "-begin"), r.hits.count(name + "-end")}, "the script ran once")
	r.finish(t, []*subject{s})
}

// setupFails puts a session in error, which refuses prompts with the reason until the cause is
// fixed.
func (r *rig) setupFails(t *testing.T) {
	name := "setup-fails"
	r.hits.answer(name, false)
	s := r.newSubject(t, object{"workspace": object{"setup": r.hits.command(name)}})
	s.send(t.Context(), "first", "")
	s.waitStatus(t, s.id, "error", settleWithin)
	s.settled(t, settleWithin)
	first := s.must(t, http.StatusOK, "GET", "/api/sessions/"+s.id+"/prompts/first", nil)
	require.Equal(t, "queued", first["status"])
	require.NotEmpty(t, first["blockedReason"], "%v", first)
	refused := s.send(t.Context(), "refused", "")
	s.senders.Wait()
	require.Equal(t, http.StatusConflict, refused.verdict)
	require.Equal(t, "session_in_error", refused.code)
	s.audit(t)

	r.hits.answer(name, true)
	require.Equal(t, http.StatusAccepted, s.order("POST", "recover", nil))
	require.Equal(t, "completed", s.waitPrompt(t, s.id, "first", settleWithin)["status"])
	r.finish(t, []*subject{s})
}

// stopOutlivesItsWorkflow terminates workflows by hand just after a stop, or a hibernation, of a
// session in a turn was accepted. Both are executed.
func (r *rig) stopOutlivesItsWorkflow(t *testing.T) {
	stopped, hibernated := r.newSubject(t, nil), r.newSubject(t, nil)
	stopped.send(t.Context(), "long", "", "sleep 10m")
	hibernated.send(t.Context(), "long", "", "sleep 5s")
	for _, s := range []*subject{stopped, hibernated} {
		r.hits.wait(t, s.name("long"), settleWithin)
	}
	require.Equal(t, http.StatusAccepted, stopped.order("POST", "stop", nil))
	require.Equal(t, http.StatusAccepted, hibernated.order("POST", "hibernate", nil))
	for _, s := range []*subject{stopped, hibernated} {
		// If the workflow has already ended, there is nothing to test.
		if err := r.temporal.client.TerminateWorkflow(t.Context(), s.id, "", "by hand"); err != nil {
			t.Logf("terminate the workflow of %s: %v", s.id, err)
		}
	}
	stopped.waitStatus(t, stopped.id, "terminated", settleWithin)
	hibernated.waitStatus(t, hibernated.id, "hibernated", settleWithin)
	require.Equal(t, "completed", hibernated.waitPrompt(t, hibernated.id, "long", time.Second)["status"])
	for _, s := range []*subject{stopped, hibernated} {
		s.settled(t, settleWithin)
	}
	r.finish(t, []*subject{stopped, hibernated})
}

// damagedSnapshot deletes the files of a snapshot without the provider's knowledge. The session
// still wakes, with its memory, and reports the missing files.
func (r *rig) damagedSnapshot(t *testing.T) {
	s := r.newSubject(t, nil)
	s.run(t, "first", "write kept.txt: kept")
	s.sleep(t)
	var snapshot string
	require.NoError(t, r.connect(t).QueryRow(t.Context(),
		"SELECT b.snapshot_id FROM sessions s JOIN bundles b ON b.id = s.head_bundle_id WHERE s.id = $1", s.id).Scan(&snapshot))
	raw, err := os.ReadFile(filepath.Join(r.dir, "modal", "records", "images", snapshot+".json"))
	require.NoError(t, err)
	var image struct{ Root struct{ Layers []string } }
	require.NoError(t, json.Unmarshal(raw, &image))
	require.NotEmpty(t, image.Root.Layers)
	require.NoError(t, os.RemoveAll(filepath.Join(r.dir, "modal", "layers", image.Root.Layers[0])))

	s.send(t.Context(), "recall", "", "recall")
	require.Equal(t, "completed", s.waitPrompt(t, s.id, "recall", settleWithin)["status"])
	require.Contains(t, s.text(t, s.id), "2 prompts", "the agent has its memory")
	woken := s.waitStatus(t, s.id, "running", settleWithin)
	require.Contains(t, []any{"partial", "fresh"}, woken["receipt"].(object)["kind"], "%v", woken["receipt"])
	r.finish(t, []*subject{s})
}

// abortAtTheEnd aborts a turn at about the moment at which it ends. The next turn is never
// affected.
func (r *rig) abortAtTheEnd(t *testing.T) {
	s := r.newSubject(t, nil)
	s.run(t, "first")
	for i := range 12 {
		one, two := fmt.Sprintf("one%d", i), fmt.Sprintf("two%d", i)
		s.send(t.Context(), one, "", "sleep 200ms")
		s.senders.Wait()
		s.send(t.Context(), two, "", "sleep 200ms")
		run := s.promptRun(t, s.id, one)
		s.stream.wait(t, settleWithin, "the turn is at its last line", func(e event) bool {
			return e.RunID == run && e.Type == "block_start" && strings.Contains(string(e.Data), "ledger")
		})
		<-time.After(time.Duration(i) * 2 * time.Millisecond)
		status := s.order("POST", "abort", object{"runId": run})
		require.Contains(t, []int{http.StatusOK, http.StatusAccepted, http.StatusConflict}, status)
		require.Equal(t, "completed", s.waitPrompt(t, s.id, two, settleWithin)["status"], "try %d", i)
		require.Contains(t, []any{"completed", "cancelled"}, s.waitPrompt(t, s.id, one, time.Second)["status"])
	}
	s.settled(t, settleWithin)
	s.audit(t)
	s.end(t)
}

// lockedRow locks the row of a session until others have completed turns and got new prompts. The
// locked session continues when the lock is released.
func (r *rig) lockedRow(t *testing.T) {
	locked, others := r.newSubject(t, nil), []*subject{r.newSubject(t, nil), r.newSubject(t, nil), r.newSubject(t, nil)}
	all := append([]*subject{locked}, others...)
	for _, s := range all {
		s.run(t, "first")
		s.send(t.Context(), "working", "", "slow 200ms: "+strings.Repeat("word ", 40))
	}
	for _, s := range all {
		r.hits.wait(t, s.name("working"), settleWithin)
	}
	ctx, cancel := context.WithTimeout(t.Context(), settleWithin)
	defer cancel()
	conn := r.connect(t)
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SELECT FROM sessions WHERE id = $1 FOR UPDATE", locked.id)
	require.NoError(t, err)
	for range 20 { // more than there are connections
		locked.senders.Go(func() { // the request may be refused or late
			_, _, _ = locked.call("POST", "/api/sessions/"+locked.id+"/prompts", object{"content": "waits for the lock"})
		})
	}
	for _, s := range others {
		s.send(t.Context(), "meanwhile", "")
	}
	for _, s := range others {
		for _, id := range []string{"working", "meanwhile"} {
			require.Equal(t, "completed", s.waitPrompt(t, s.id, id, settleWithin)["status"], "with another session's row locked")
		}
	}
	require.NoError(t, tx.Rollback(ctx))
	for _, s := range all {
		s.settled(t, settleWithin)
	}
	for _, s := range others {
		for _, e := range s.stream.all(t) {
			if e.Type == "turn_start" {
				require.Contains(t, string(e.Data), `"attempt":1`, "no turn of another session was interrupted")
			}
		}
	}
	r.finish(t, all)
}

// temporalFrozen freezes Temporal for longer than the heartbeat timeout. A running worker keeps its
// turn.
func (r *rig) temporalFrozen(t *testing.T) {
	s := r.newSubject(t, nil)
	s.run(t, "first")
	s.send(t.Context(), "working", "", "slow 200ms: "+strings.Repeat("word ", 80))
	r.hits.wait(t, s.name("working"), settleWithin)
	freeze(r.pids(partTemporal), 10*time.Second)
	require.Equal(t, "completed", s.waitPrompt(t, s.id, "working", settleWithin)["status"])
	s.settled(t, settleWithin)
	for _, e := range s.stream.all(t) {
		if e.Type == "turn_start" {
			require.Contains(t, string(e.Data), `"attempt":1`)
		}
	}
	r.finish(t, []*subject{s})
}

// fullQueue stops a session with a queue of the largest prompts.
func (r *rig) fullQueue(t *testing.T) {
	s, other := r.newSubject(t, nil), r.newSubject(t, nil)
	other.run(t, "first")
	s.send(t.Context(), "long", "", "sleep 30m")
	r.hits.wait(t, s.name("long"), settleWithin)
	const many, size = 300, 256 << 10
	accepted := s.sendMany(t, many, strings.Repeat("<", size))
	require.Equal(t, many, accepted)
	other.run(t, "meanwhile")
	require.Equal(t, http.StatusAccepted, s.order("POST", "stop", nil))
	other.send(t.Context(), "stopping", "")
	s.waitStatus(t, s.id, "terminated", settleWithin)
	require.Equal(t, "completed", other.waitPrompt(t, other.id, "stopping", settleWithin)["status"])
	s.settled(t, settleWithin)
	s.audit(t)
	for _, p := range []part{partWorker, partAPI} {
		require.Less(t, r.peak(t, p), 1<<30, "memory of the %s", p)
	}
	r.finish(t, []*subject{other})
}

// babbler is an agent of the Agent Client Protocol. It answers prompts with too much output: 80
// MB of one text, 20 MB of texts and thoughts that each begin a block, or 2,000 calls of tools that
// never end. It prints as fast as its pipe accepts: see offers.
const babbler = `
chunk=$(head -c 2000 /dev/zero | tr '\0' x)
say() { printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"one","update":%s}}\n' "$1"; }
text=$(say '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$chunk"'"}}')
thought=$(say '{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"'"$chunk"'"}}')
call=$(say '{"sessionUpdate":"tool_call","toolCallId":"call&","title":"sleep","status":"in_progress","rawInput":{"text":"'"$chunk"'"}}')
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([^,]*\),.*/\1/p')
  case "$line" in
  *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1,"agentCapabilities":{},"authMethods":[]}}\n' "$id" ;;
  *'"session/new"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"sessionId":"one"}}\n' "$id" ;;
  *'"session/prompt"'*)
    case "$line" in
    *FLOOD-TEXT*) yes "$text" | head -n 40000 ;;
    *FLOOD-BLOCKS*) yes "$text
$thought" | head -n 10000 ;;
    *FLOOD-CALLS*) seq 2000 | sed 's|.*|'"$call"'|' ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}\n' "$id" ;;
  *'"id"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id" ;;
  esac
done`

// flood makes an agent print far too much in one turn. The memory of worker, api and runner stays
// small, the turn ends, and another session is served in the meantime.
func (r *rig) flood(t *testing.T) {
	command, err := json.Marshal([]string{"sh", "-c", babbler})
	require.NoError(t, err)
	r.must(t, http.StatusCreated, "POST", "/api/profiles", object{"name": "babbler", "environment": object{"OVERWINTER_ACP_COMMAND": string(command)}})
	offers(t, "FLOOD-TEXT")
	offers(t, "FLOOD-BLOCKS")
	s, other := r.newSubject(t, object{"agent": "acp", "profile": "babbler"}), r.newSubject(t, nil)
	other.run(t, "first")
	median := func(of []time.Duration) time.Duration {
		slices.Sort(of)
		return of[len(of)/2]
	}
	timed := func(name string) time.Duration {
		sent := time.Now()
		other.run(t, name)
		return time.Since(sent)
	}
	for _, kind := range []string{"FLOOD-TEXT", "FLOOD-BLOCKS", "FLOOD-CALLS"} {
		var alone, beneath []time.Duration
		for i := range 3 {
			alone = append(alone, timed(fmt.Sprintf("%s-alone-%d", kind, i)))
		}
		began := time.Now()
		s.prompt(t, s.id, kind, kind)
		eventually(t, settleWithin, "the flood ends", func() error {
			beneath = append(beneath, timed(fmt.Sprintf("%s-%d", kind, len(beneath))))
			_, p, err := s.call("GET", "/api/sessions/"+s.id+"/prompts/"+kind, nil)
			if err != nil || p["endedAt"] == nil {
				return fmt.Errorf("%v %w", p["status"], err)
			}
			return nil
		})
		require.Equal(t, "completed", s.waitPrompt(t, s.id, kind, settleWithin)["status"])
		took, floor := time.Since(began), median(alone)
		t.Logf("%s: %v; %d prompts of another session in %v each, the slowest in %v, without the flood in %v; peak memory of worker %d MiB, api %d MiB, runners %d MiB",
			kind, took.Round(time.Millisecond), len(beneath), median(beneath).Round(time.Millisecond), slices.Max(beneath).Round(time.Millisecond),
			floor.Round(time.Millisecond), r.peak(t, partWorker)>>20, r.peak(t, partAPI)>>20, r.peak(t, partRunner)>>20)
		require.Less(t, median(beneath), 20*floor+5*time.Second, "the flood delays other sessions")
	}
	s.prompt(t, s.id, "after", "hello")
	require.Equal(t, "completed", s.waitPrompt(t, s.id, "after", settleWithin)["status"])
	// Output that the worker does not accept waits in the agent's pipe, not in the runner.
	require.Less(t, r.peak(t, partRunner), 128<<20, "memory of the runners")
	for _, p := range []part{partWorker, partAPI} {
		require.Less(t, r.peak(t, p), 1<<30, "memory of the %s", p)
	}
	other.settled(t, settleWithin)
	r.finish(t, []*subject{other})
	s.end(t)
}

// offers requires the babbler to print more than 50 MB in a second of CPU time without
// backpressure, so that a longer flood is due to the system's backpressure.
func offers(t *testing.T, kind string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", babbler)
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"text":"` + kind + `"}}` + "\n")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	printed, err := io.Copy(io.Discard, out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	rate := float64(printed) / 1e6 / (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	require.Greater(t, printed, int64(20_000_000), kind)
	require.Greater(t, rate, 50.0, "MB/s that the agent of the test offers")
	t.Logf("%s: %.0f MB/s are offered", kind, rate)
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak returns the peak memory of a part, in bytes.
func (r *rig) peak(t *testing.T, p part) (most int) {
	t.Helper()
	for _, pid := range r.pids(p) {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		require.NoError(t, err)
		kib, err := strconv.Atoi(string(highWater.FindSubmatch(raw)[1]))
		require.NoError(t, err)
		most = max(most, kib<<10)
	}
	return most
}

// sendMany sends prompts and returns how many were accepted. As clients do, it repeats those that
// got no answer or a failure of the server.
func (s *subject) sendMany(t *testing.T, n int, content string) (accepted int) {
	t.Helper()
	var sending sync.WaitGroup
	var mu sync.Mutex
	next := make(chan int)
	for range 4 {
		sending.Go(func() {
			for i := range next {
				id, begun := fmt.Sprintf("many%d", i), time.Now()
				status := s.sendRaw(id, content)
				for (status == 0 || status >= 500) && time.Since(begun) < settleWithin {
					<-time.After(100 * time.Millisecond)
					status = s.sendRaw(id, content)
				}
				if status == http.StatusAccepted {
					mu.Lock()
					accepted++
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	sending.Wait()
	return accepted
}

// sendRaw sends a prompt whose text needs no JSON escapes.
func (s *subject) sendRaw(id, content string) int {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(map[string]string{"id": id, "content": content}); err != nil {
		return 0
	}
	response, err := http.Post("http://"+s.api+"/api/sessions/"+s.id+"/prompts", "application/json", &body)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}
