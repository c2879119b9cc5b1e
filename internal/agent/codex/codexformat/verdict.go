package codexformat

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
)

// MaxRaw bounds how much is kept of an unparsed line, and of the report of a crash.
const MaxRaw = 1 << 10

// Verdict is how a turn ended.
type Verdict struct {
	Status  string // completed, interrupted or failed
	Message string // of a failure
	MS      int64  // when it ended
	Failure Failure
}

// Block returns the status of a block that ends with the turn.
func (v Verdict) Block() conversation.BlockStatus {
	switch v.Status {
	case Completed:
		return conversation.Success
	case Failed:
		return conversation.Failed
	}
	return conversation.Aborted
}

// Failure is the response of the model API that caused an error.
type Failure struct {
	Status int    `json:"status,omitempty"` // 0 if there was no response
	URL    string `json:"url,omitempty"`
}

// failedURL matches the URL of the failed request in an error message.
var failedURL = lazyregexp.New(`\burl: (https?://[^\s,]+)`)

// FailureOf returns the response of the model API that caused an error.
func FailureOf(raw []byte) Failure {
	var e struct {
		Message string          `json:"message"`
		Details string          `json:"additionalDetails"`
		Info    json.RawMessage `json:"codexErrorInfo"`
	}
	if !Lenient(raw, &e) {
		return Failure{}
	}
	var f Failure
	var kinds map[string]struct {
		Status int `json:"httpStatusCode"`
	}
	switch {
	case jsonscan.Is(e.Info, "unauthorized"):
		f.Status = http.StatusUnauthorized
	case Lenient(e.Info, &kinds):
		for _, kind := range kinds { // there is only one
			f.Status = max(f.Status, kind.Status)
		}
	}
	if m := failedURL.FindStringSubmatch(e.Details + " " + e.Message); m != nil {
		f.URL = m[1]
	}
	return f
}

// Problem returns the message of an error in the stream or a rollout.
func Problem(raw []byte) string {
	var e struct {
		Message string `json:"message"`
		Details string `json:"additionalDetails"`
	}
	if !Lenient(raw, &e) {
		return ""
	}
	// An error of the API is contained as its JSON.
	var refusal struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if Lenient([]byte(e.Message), &refusal) && refusal.Error.Message != "" {
		e.Message = refusal.Error.Message
	}
	if e.Details != "" {
		e.Message += ": " + e.Details
	}
	return Bounded(e.Message)
}

// Bounded truncates s to at most MaxRaw bytes of valid text.
func Bounded(s string) string {
	if len(s) > MaxRaw {
		s = strings.ToValidUTF8(s[:MaxRaw], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
