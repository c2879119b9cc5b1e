package test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// settleWithin is how long a prompt may take to end by itself after the last fault.
const settleWithin = 2 * time.Minute

// subject is a session that faults befall: what a client sent to it and was promised, and a reader
// that reconnects and checks every event.
type subject struct {
	*rig
	id     string
	stream *follower
	begun  time.Time

	mu      sync.Mutex
	prompts []*sentPrompt
	stopped bool // a stop was accepted
	senders sync.WaitGroup
}

// sentPrompt is a prompt that a client sent, until it had an answer.
type sentPrompt struct {
	id        string
	onUnknown string
	accepted  bool // answered with 2xx
	verdict   int  // the answer's status; 0 for none
	code      string
}

// name is what the prompt's command counts as.
func (s *subject) name(promptID string) string { return s.id + "." + promptID }

// newSubject creates a session. Body may be nil.
func (r *rig) newSubject(t *testing.T, body object) *subject {
	t.Helper()
	if body == nil {
		body = object{}
	}
	if _, ok := body["idleTimeout"]; !ok {
		body["idleTimeout"] = "10m"
	}
	s := &subject{rig: r, id: r.create(t, body), begun: time.Now()}
	s.stream = r.follow(t, s.id)
	t.Cleanup(s.senders.Wait)
	return s
}

// ledger has the agent add a prompt to a file of the workspace.
func ledger(promptID string) string { return "$ echo " + promptID + " >> ledger" }

// script is what a prompt of a subject does: it is counted, does its work, and is entered in the
// ledger.
func (s *subject) script(promptID string, work ...string) string {
	return strings.Join(slices.Concat([]string{s.hits.line(s.name(promptID))}, work, []string{ledger(promptID)}), "\n")
}

// send sends a prompt again and again, with the same id, until it is answered with less than 500 or
// the context ends. It returns at once.
func (s *subject) send(ctx context.Context, promptID, onUnknown string, work ...string) *sentPrompt {
	p := &sentPrompt{id: promptID, onUnknown: onUnknown}
	s.mu.Lock()
	s.prompts = append(s.prompts, p)
	s.mu.Unlock()
	body := object{"id": promptID, "content": s.script(promptID, work...)}
	if onUnknown != "" {
		body["onUnknown"] = onUnknown
	}
	s.senders.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			status, answer, err := s.call("POST", "/api/sessions/"+s.id+"/prompts", body)
			if err == nil && status < 500 {
				s.mu.Lock()
				p.verdict, p.accepted = status, status < 300
				p.code, _ = answer["code"].(string)
				s.mu.Unlock()
				return
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	return p
}

// run sends a prompt and waits until it has ended, as completed.
func (s *subject) run(t *testing.T, promptID string, work ...string) {
	t.Helper()
	s.send(t.Context(), promptID, "", work...)
	got := s.waitPrompt(t, s.id, promptID, settleWithin)
	require.Equal(t, "completed", got["status"], "%v", got)
}

// order sends a command and returns the answer's status, 0 for none.
func (s *subject) order(method, command string, body object) int {
	path := "/api/sessions/" + s.id
	if command != "" {
		path += "/" + command
	}
	var payload any // none, rather than null
	if body != nil {
		payload = body
	}
	status, _, err := s.call(method, path, payload)
	if err != nil {
		return 0
	}
	if status < 300 && (command == "stop" || method == http.MethodDelete && command == "") {
		s.mu.Lock()
		s.stopped = true
		s.mu.Unlock()
	}
	return status
}

// sleep has the session hibernate, and returns when it does.
func (s *subject) sleep(t *testing.T) {
	t.Helper()
	require.Less(t, s.order("POST", "hibernate", nil), 300)
	s.waitStatus(t, s.id, "hibernated", settleWithin)
}

// reaches waits, by the stream, until the session's status is one that it was not before.
func (s *subject) reaches(t *testing.T, status string, after int64) {
	t.Helper()
	s.stream.wait(t, settleWithin, "status "+status, func(e event) bool {
		return e.Type == "status" && e.Seq > after && strings.Contains(string(e.Data), `"status":"`+status+`"`)
	})
}

// settled waits until every accepted prompt has ended by itself, but for those of a session in error,
// which wait for a person.
func (s *subject) settled(t *testing.T, within time.Duration) {
	t.Helper()
	s.senders.Wait()
	eventually(t, within, "the prompts of "+s.id+" have ended", func() error { return s.unsettled(true) })
}

// unsettled says what of the session has not come to its end.
func (s *subject) unsettled(mayBeInError bool) error {
	_, view, err := s.call("GET", "/api/sessions/"+s.id, nil)
	if err != nil {
		return err
	}
	queue, ok := view["queue"].(object)
	if !ok {
		return fmt.Errorf("%v", view)
	}
	at := fmt.Errorf("status %v (%v), queue %v", view["status"], view["statusReason"], queue)
	if view["status"] == "error" && mayBeInError && queue["processing"].(float64) == 0 {
		return nil
	}
	if queue["queued"].(float64)+queue["processing"].(float64) != 0 {
		return at
	}
	switch view["status"] {
	case "hibernating", "restoring", "error":
		return at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped && view["status"] != "terminated" {
		return fmt.Errorf("stop was accepted: %w", at)
	}
	return nil
}

// end stops the session and waits until it is terminated.
func (s *subject) end(t *testing.T) {
	t.Helper()
	eventually(t, settleWithin, "the session takes a stop", func() error {
		if status := s.order("POST", "stop", nil); status >= 300 || status == 0 {
			return fmt.Errorf("%d", status)
		}
		return nil
	})
	s.waitStatus(t, s.id, "terminated", settleWithin)
}
