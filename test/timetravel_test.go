package test

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// travelFault is a fault during forks, checkpoints, reverts and imports.
type travelFault struct {
	name   string
	strike func(t *testing.T, r *rig)
	short  bool // one of the short form
}

var travelFaults = []travelFault{
	{"workers killed", func(_ *testing.T, r *rig) { kill(r.pids(partWorker)) }, true},
	{"api killed", func(_ *testing.T, r *rig) { kill(r.pids(partAPI)) }, false},
	{"local Modal killed", func(_ *testing.T, r *rig) { kill(r.pids(partLocalModal)) }, false},
	{"runners killed", func(_ *testing.T, r *rig) { kill(r.pids(partRunner)) }, false},
	{"Temporal killed", func(_ *testing.T, r *rig) { kill(r.pids(partTemporal)) }, false},
	{"workers frozen for 10s", func(_ *testing.T, r *rig) { freeze(r.pids(partWorker), 10*time.Second) }, false},
	{"local Modal frozen for 10s", func(_ *testing.T, r *rig) { freeze(r.pids(partLocalModal), 10*time.Second) }, false},
	{"runners frozen for 10s", func(_ *testing.T, r *rig) { freeze(r.pids(partRunner), 10*time.Second) }, false},
	{"Postgres frozen for 10s", func(_ *testing.T, r *rig) { freeze(r.pids(partPostgres), 10*time.Second) }, false},
	{"Postgres refused for 10s", func(t *testing.T, r *rig) { r.database.refuse(t, 10*time.Second) }, true},
}

// travelMoments are the times before a fault at which operations begin, chosen so that the fault
// hits each step of a fork, a checkpoint, a revert and an import.
var travelMoments = []time.Duration{0, 150 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1500 * time.Millisecond}

// TestForksCheckpointsRevertsAndImportsAreCompleted injects one fault at a time while sessions are
// forked, save checkpoints, are reverted with their files and are imported, each begun at several
// moments before the fault. Afterwards each has the complete files, memory and conversation of its
// point. A run of all tests injects two of the faults at two of the moments, each operation once per
// fault, always the same; -all-faults injects all.
func TestForksCheckpointsRevertsAndImportsAreCompleted(t *testing.T) { //nolint:tparallel // one fault after the other, all of one system
	t.Parallel()
	r := startWholeRig(t, 1)
	faults := slices.Clone(travelFaults)
	moments, apart := travelMoments, false
	switch {
	case *matrixOnly != "":
		only := regexp.MustCompile(*matrixOnly)
		faults = slices.DeleteFunc(faults, func(f travelFault) bool { return !only.MatchString(f.name) })
		require.NotEmpty(t, faults, "no fault matches %q", *matrixOnly)
	case !*matrixAll:
		faults = slices.DeleteFunc(faults, func(f travelFault) bool { return !f.short })
		moments, apart = []time.Duration{travelMoments[1], travelMoments[3]}, true
	}
	for n, f := range faults { //nolint:paralleltest // see above
		t.Run(f.name, func(t *testing.T) {
			var travels []*travel
			for i, lead := range moments {
				for k, kind := range []string{"fork", "checkpoint", "revert", "import"} {
					if !apart || (n+i+k)%2 == 0 {
						travels = append(travels, &travel{rig: r, kind: kind, lead: lead})
					}
				}
			}
			t.Logf("begun %v before the fault", moments)
			each := func(do func(v *travel)) {
				var all sync.WaitGroup
				for _, v := range travels {
					all.Go(func() { do(v) })
				}
				all.Wait()
				if t.Failed() {
					t.FailNow()
				}
			}
			each(func(v *travel) { v.prepare(t) })
			at := time.Now().Add(2 * time.Second)
			var striking sync.WaitGroup
			striking.Go(func() {
				<-time.After(time.Until(at))
				f.strike(t, r)
			})
			each(func(v *travel) {
				<-time.After(time.Until(at.Add(-v.lead)))
				v.begin(t)
			})
			striking.Wait()
			each(func(v *travel) { v.check(t) })
		})
	}
}

// travel is a session that is forked, saved, reverted or imported.
type travel struct {
	*rig
	kind    string
	lead    time.Duration
	id      string
	fork    string // the fork, or the session that was imported
	archive []byte // to be imported
}

// line returns a prompt that adds a line to a file.
func line(n int) string {
	return fmt.Sprintf("the words of prompt %d\n$ echo line %d >> lines.txt", n, n)
}

// prepare creates a session with a bundle after each of two prompts.
func (v *travel) prepare(t *testing.T) {
	v.id = v.insist(t, "POST", "/api/sessions", object{"agent": "demo", "idleTimeout": "10m", "options": object{"checkpoint": "turn"}})["id"].(string)
	for n := 1; n <= 2; n++ {
		v.insist(t, "POST", "/api/sessions/"+v.id+"/prompts", object{"id": fmt.Sprint("p", n), "content": line(n)})
		v.completed(t, v.id, fmt.Sprint("p", n))
	}
	v.saved(t, "p2")
	if v.kind == "import" {
		v.archive = v.export(t, v.id)
	}
}

// begin starts the operation that the fault hits.
func (v *travel) begin(t *testing.T) {
	path := "/api/sessions/" + v.id
	switch v.kind {
	case "fork":
		v.fork = v.insist(t, "POST", path+"/fork", object{"promptId": "p2", "before": true})["id"].(string)
		v.insist(t, "POST", "/api/sessions/"+v.fork+"/wake", nil)
	case "checkpoint":
		v.insist(t, "POST", path+"/sync", nil)
	case "revert":
		v.insist(t, "POST", path+"/revert", object{"promptId": "p2", "files": true})
	case "import":
		v.fork = v.importArchive(t, v.archive)["id"].(string)
		v.insist(t, "POST", "/api/sessions/"+v.fork+"/wake", nil)
	}
}

// check waits until the session continues, and checks its state.
func (v *travel) check(t *testing.T) {
	name := fmt.Sprintf("%s %s before the fault", v.kind, v.lead)
	switch v.kind {
	case "fork":
		v.has(t, name, v.fork, 1)
		v.has(t, name+", original", v.id, 2)
	case "checkpoint":
		v.has(t, name, v.id, 2)
		v.saved(t, "look")
		fork := v.insist(t, "POST", "/api/sessions/"+v.id+"/fork", object{"promptId": "look"})["id"].(string)
		v.has(t, name+", fork", fork, 2, "look")
	case "revert":
		v.has(t, name, v.id, 1)
		require.Equal(t, "reverted", v.waitPrompt(t, v.id, "p2", time.Second)["reason"], name)
		fork := v.insist(t, "POST", "/api/sessions/"+v.id+"/fork", object{"promptId": "p2"})["id"].(string)
		v.has(t, name+", fork of the undone turns", fork, 2)
	case "import":
		v.has(t, name, v.fork, 2)
		v.has(t, name+", original", v.id, 2)
	}
}

// has checks that a session has the files, the memory and the conversation of its first prompts,
// followed by the prompts in others.
func (v *travel) has(t *testing.T, name, id string, prompts int, others ...string) {
	look := "look"
	if len(others) > 0 {
		look = "again"
	}
	v.insist(t, "POST", "/api/sessions/"+id+"/prompts", object{
		"id": look, "content": "recall\n$ echo it has $(cat lines.txt | tr '\\n' ' ')", "onUnknown": "retry",
	})
	v.completed(t, id, look)
	said := v.text(t, id)
	files := "it has line 1\n"
	if prompts > 1 {
		files = "it has line 1 line 2\n"
	}
	require.Contains(t, said, files, name)
	require.Contains(t, said, fmt.Sprintf("I have had %d prompts", prompts+len(others)+1), name)
	for n := 1; n <= 2; n++ {
		if n <= prompts {
			require.Contains(t, said, fmt.Sprintf("the words of prompt %d", n), name)
		} else {
			require.NotContains(t, said, fmt.Sprintf("the words of prompt %d", n), name)
		}
	}
}

// completed waits until a prompt has ended as completed.
func (v *travel) completed(t *testing.T, id, prompt string) {
	got := v.waitPrompt(t, id, prompt, settleWithin)
	require.Equal(t, "completed", got["status"], "%s of %s: %v", prompt, id, got)
}

// saved waits for a bundle that ends with a prompt.
func (v *travel) saved(t *testing.T, prompt string) {
	eventually(t, settleWithin, "a bundle ends with "+prompt, func() error {
		_, page, err := v.call("GET", "/api/sessions/"+v.id+"/bundles", nil)
		if err != nil {
			return err
		}
		items, _ := page["items"].([]any)
		if !slices.ContainsFunc(items, func(b any) bool { return b.(object)["message_history_state"].(object)["promptId"] == prompt }) {
			return fmt.Errorf("%v", page)
		}
		return nil
	})
}
