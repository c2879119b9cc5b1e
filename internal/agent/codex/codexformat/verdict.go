package codexformat

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
)

// MaxRaw bounds what is kept of a line that was not understood, and of the report of a crash.
const MaxRaw = 1 << 10

// Verdict is how a turn ended.
type Verdict struct {
	Status  string // completed, interrupted or failed
	Message string // of a failure
	MS      int64  // when it ended
	Failure Failure
}

// Block is the state of a block that a turn stands for.
func (v Verdict) Block() conversation.BlockStatus {
	switch v.Status {
	case Completed:
		return conversation.Success
	case Failed:
		return conversation.Failed
	}
	return conversation.Aborted
}

// Failure is the response of the model's server that an error is about.
type Failure struct {
	Status int    `json:"status,omitempty"` // 0 if there was none
	URL    string `json:"url,omitempty"`
}

// failedURL is where the agent says which request has failed.
var failedURL = lazyregexp.New(`\burl: (https?://[^\s,]+)`)

// FailureOf reads of an error which response it is about.
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
		for _, kind := range kinds { // there is one
			f.Status = max(f.Status, kind.Status)
		}
	}
	if m := failedURL.FindStringSubmatch(e.Details + " " + e.Message); m != nil {
		f.URL = m[1]
	}
	return f
}

// Problem is an error as stream and rollout have it, in words.
func Problem(raw []byte) string {
	var e struct {
		Message string `json:"message"`
		Details string `json:"additionalDetails"`
	}
	if !Lenient(raw, &e) {
		return ""
	}
	// A refusal of the API is passed on as its JSON.
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

// Bounded is at most MaxRaw bytes of s, and valid text.
func Bounded(s string) string {
	if len(s) > MaxRaw {
		s = strings.ToValidUTF8(s[:MaxRaw], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
