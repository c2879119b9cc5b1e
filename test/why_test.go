package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// explained waits until the explanation of a subject of a session, "" for the session itself, has a cause with the code.
func (s *stack) explained(t *testing.T, id, of, which, code string) {
	t.Helper()
	path := "/api/sessions/" + id + "/why"
	if of != "" {
		path += "?of=" + of
		if which != "" {
			path += "&id=" + which
		}
	}
	eventually(t, time.Minute, fmt.Sprintf("%s of %s is explained by %s", of, id, code), func() error {
		status, got, err := s.call(http.MethodGet, path, nil)
		if err != nil || status != http.StatusOK {
			return errors.Join(err, fmt.Errorf("%d: %v", status, got))
		}
		causes, _ := got["causes"].([]any)
		if !slices.ContainsFunc(causes, func(c any) bool { return c.(object)["code"] == code }) {
			return fmt.Errorf("its causes are %v", causes)
		}
		return nil
	})
}

// witness requests explanations during a fault and afterwards, like a user whose prompt takes long,
// and records the responses.
type witness struct {
	api string

	mu        sync.Mutex
	sentences map[string]string // by code of a cause, or "http CODE" of a refusal: the first sentence
}

func (s *stack) newWitness() *witness { return &witness{api: s.api, sentences: map[string]string{}} }

// watch requests an explanation of the newest prompt of each session in turn, until ctx ends.
func (w *witness) watch(ctx context.Context, sessions []string, pause time.Duration) {
	for i := 0; ctx.Err() == nil; i++ {
		w.ask(ctx, sessions[i%len(sessions)], "")
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// ask requests the explanation of a prompt; without an id, of the processed or the newest one.
func (w *witness) ask(ctx context.Context, session, prompt string) {
	asking, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	path := "http://" + w.api + "/api/sessions/" + session + "/why?of=prompt"
	if prompt != "" {
		path += "&id=" + prompt
	}
	request, err := http.NewRequestWithContext(asking, http.MethodGet, path, nil)
	if err != nil {
		w.note("no answer", err.Error())
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			w.note("no answer", err.Error())
		}
		return
	}
	defer response.Body.Close()
	var got struct {
		Code, Detail string
		Causes       []struct{ Code, Text string }
	}
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		if ctx.Err() == nil {
			w.note("no answer", err.Error())
		}
		return
	}
	if response.StatusCode != http.StatusOK {
		w.note("http "+got.Code, got.Detail)
	}
	for _, c := range got.Causes {
		w.note(c.Code, c.Text)
	}
}

func (w *witness) note(code, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.sentences[code]; !ok {
		w.sentences[code] = text
	}
}

// named checks that one of the codes was among the responses.
func (w *witness) named(t *testing.T, codes []string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all strings.Builder
	for _, code := range slices.Sorted(maps.Keys(w.sentences)) {
		fmt.Fprintf(&all, "\n\t%s: %s", code, w.sentences[code])
	}
	t.Logf("explained by%s", all.String())
	if len(codes) > 0 && !slices.ContainsFunc(codes, func(code string) bool { _, ok := w.sentences[code]; return ok }) {
		t.Errorf("no explanation of a prompt has one of %s", codes)
	}
}
