package resource

import (
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// RunJSON is the JSON of a run.
type RunJSON struct {
	RunID         string               `json:"runId"`
	SessionID     string               `json:"sessionId"`
	PromptID      string               `json:"promptId"`
	Agent         string               `json:"agent"`
	BaseSessionID string               `json:"baseSessionId,omitempty"`
	BaseBundleID  string               `json:"baseBundleId,omitempty"`
	Forked        bool                 `json:"forked"`
	JoinedTo      string               `json:"joinedTo,omitempty"`
	Status        session.PromptStatus `json:"status"`
	Outcome       session.PromptStatus `json:"outcome,omitempty"` // once it has ended
	Reason        string               `json:"reason,omitempty"`
	Attempts      int                  `json:"attempts"`
	Usage         *UsageJSON           `json:"usage,omitempty"`
	Model         string               `json:"model,omitempty"`
	BundleID      string               `json:"bundleId,omitempty"`
	CreatedAt     Time                 `json:"createdAt"`
	StartedAt     *Time                `json:"startedAt,omitempty"`
	EndedAt       *Time                `json:"endedAt,omitempty"`
}

// Run converts v.
func Run(v run.View) RunJSON {
	out := RunJSON{
		RunID: v.ID, SessionID: v.SessionID, PromptID: v.PromptID, Agent: v.Agent, BaseSessionID: v.BaseSession, BaseBundleID: v.BaseBundle,
		Forked: v.Forked(), JoinedTo: v.JoinedTo, Status: v.Status, Reason: v.Reason, Attempts: v.Attempts, BundleID: v.BundleID,
		CreatedAt: Time(v.CreatedAt), StartedAt: OptionalTime(v.StartedAt), EndedAt: OptionalTime(v.EndedAt),
	}
	out.Usage, out.Model = promptUsage(v.Usage)
	if v.Status.Final() {
		out.Outcome = v.Status
	}
	return out
}

// Runs converts a list; the result is never nil, so that it is [] in JSON.
func Runs(runs []run.View) []RunJSON {
	out := make([]RunJSON, len(runs))
	for i, v := range runs {
		out[i] = Run(v)
	}
	return out
}
