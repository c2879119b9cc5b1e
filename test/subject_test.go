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

// settleWithin limits the time until a prompt ends by itself after the last fault.
const settleWithin = 2 * time.Minute

// subject is a session under faults: its client's requests with their responses, and a reader that
// reconnects and checks every event.
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

// sentPrompt is a prompt that a client sent until it got a response.
type sentPrompt struct {
	id        string
	onUnknown string
	accepted  bool // answered with 2xx
	verdict   int  // the answer's status; 0 for none
	code      string
}

// name is the name under which the prompt's command is counted.
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

// ledger makes the agent add a prompt to a file of the workspace.
func ledger(promptID string) string { return "$ echo " + promptID + " >> ledger" }

// script returns the content of a subject's prompt: it is counted, does its work, and is added to
// the ledger.
func (s *subject) script(promptID string, work ...string) string {
	return strings.Join(slices.Concat([]string{s.hits.line(s.name(promptID))}, work, []string{ledger(promptID)}), "\n")
}

// send sends a prompt repeatedly, with the same id, until the status is below 500 or the context
// ends. It returns at once.
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

// order sends a command and returns the status of the response, 0 for none.
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

// sleep hibernates the session, and returns when it is hibernated.
func (s *subject) sleep(t *testing.T) {
	t.Helper()
	require.Less(t, s.order("POST", "hibernate", nil), 300)
	s.waitStatus(t, s.id, "hibernated", settleWithin)
}

// reaches waits for a new transition to the status in the stream.
func (s *subject) reaches(t *testing.T, status string, after int64) {
	t.Helper()
	s.stream.wait(t, settleWithin, "status "+status, func(e event) bool {
		return e.Type == "status" && e.Seq > after && strings.Contains(string(e.Data), `"status":"`+status+`"`)
	})
}

// settled waits until every accepted prompt has ended by itself, except those of a session in
// error, which wait for a person.
func (s *subject) settled(t *testing.T, within time.Duration) {
	t.Helper()
	s.senders.Wait()
	eventually(t, within, "the prompts of "+s.id+" have ended", func() error { return s.unsettled(true) })
}

// unsettled returns an error that describes why the session has not settled; nil if it has.
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
