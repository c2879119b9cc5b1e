package test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
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
