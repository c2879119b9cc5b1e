package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

// receiver accepts deliveries. It refuses the first attempt at each.
type receiver struct {
	mu       sync.Mutex
	verifier *standardwebhooks.Webhook
	refused  map[string]bool
	taken    map[string]string // type by id
	wrong    []string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	var message struct {
		Type string
		Data struct{ Session struct{ ID string } }
	}
	if err == nil {
		err = r.verifier.Verify(body, request.Header)
	}
	if err == nil {
		err = json.Unmarshal(body, &message)
	}
	if err != nil {
		r.wrong = append(r.wrong, err.Error())
		return
	}
	id := request.Header.Get("webhook-id")
	if !r.refused[id] {
		r.refused[id] = true
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	r.taken[id] = message.Type
}

func (r *receiver) has() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for _, t := range r.taken {
		out[t]++
	}
	return out
}

// TestWebhooksSurviveWorkerLoss checks that each event is delivered although the receiver refuses
// every first attempt and the worker is killed between the attempts.
func TestWebhooksSurviveWorkerLoss(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	r := &receiver{refused: map[string]bool{}, taken: map[string]string{}}
	server := httptest.NewServer(r)
	defer server.Close()
	hook := s.must(t, http.StatusCreated, "POST", "/api/webhooks", object{
		"url": server.URL, "types": []string{"session.idle", "session.hibernated", "prompt.completed", "session.completed"},
	})
	var err error
	r.verifier, err = standardwebhooks.NewWebhook(hook["secret"].(string))
	require.NoError(t, err)
	path := "/api/webhooks/" + hook["id"].(string)
	require.NotContains(t, s.must(t, http.StatusOK, "GET", path, nil), "secret")

	id := s.create(t, object{})
	s.prompt(t, id, "first", "hello")
	s.waitPrompt(t, id, "first", 60*time.Second)
	eventually(t, within, "the first attempts have been made", func() error {
		items := s.must(t, http.StatusOK, "GET", path+"/deliveries?status=pending", nil)["items"].([]any)
		for _, item := range items {
			if item.(object)["tries"].(float64) == 0 {
				return fmt.Errorf("%v", items)
			}
		}
		if len(items) < 2 {
			return fmt.Errorf("%v", items)
		}
		return nil
	})
	s.killChild(t, "overwinter", "worker")
	s.insist(t, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", 60*time.Second)
	s.insist(t, "DELETE", "/api/sessions/"+id, nil)
	want := map[string]int{"session.idle": 1, "prompt.completed": 1, "session.hibernated": 1, "session.completed": 1}
	eventually(t, 90*time.Second, "all is delivered", func() error {
		if got := r.has(); len(got) != len(want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	require.Equal(t, want, r.has())
	eventually(t, within, "all is over", func() error {
		if items := s.must(t, http.StatusOK, "GET", path+"/deliveries?status=pending", nil)["items"].([]any); len(items) > 0 {
			return fmt.Errorf("%v", items)
		}
		return nil
	})
	require.Empty(t, r.wrong)
}
