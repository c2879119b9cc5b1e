package resource

import (
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// PromptJSON is the JSON of a prompt.
type PromptJSON struct {
	ID        string               `json:"id"`
	SessionID string               `json:"sessionId"`
	Ordinal   int64                `json:"ordinal"`
	Rank      int64                `json:"rank,omitempty"`
	Status    session.PromptStatus `json:"status"`
	Content   string               `json:"content"`
	Mode      session.Mode         `json:"mode"`
	OnUnknown session.OnUnknown    `json:"onUnknown"`
	Author    string               `json:"author,omitempty"`
	Depth     int64                `json:"depth,omitempty"`
	RunID     string               `json:"runId,omitempty"`
	// Attempts is how often it has been sent to an agent.
	Attempts int    `json:"attempts,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// BlockedReason is the reason why a queued prompt does not run.
	BlockedReason string `json:"blockedReason,omitempty"`
	// JoinedTo is the prompt whose turn this one shares.
	JoinedTo string `json:"joinedTo,omitempty"`
	// CollectUntil is the time until which others may join it.
	CollectUntil *Time `json:"collectUntil,omitempty"`
	// Attachments are its files. In events, only the first one of a prompt has them.
	Attachments []AttachmentJSON `json:"attachments,omitempty"`
	// RequestID is the X-Request-Id of the request that accepted it.
	RequestID string `json:"requestId,omitempty"`
	// Resolution is a person's decision about an unknown outcome.
	Resolution *ResolutionJSON `json:"resolution,omitempty"`
	// Usage and Model are those of its last run, once that has ended. Events of prompts do not have
	// them; turn_end events do.
	Usage     *UsageJSON `json:"usage,omitempty"`
	Model     string     `json:"model,omitempty"`
	CreatedAt Time       `json:"createdAt"`
	StartedAt *Time      `json:"startedAt,omitempty"`
	EndedAt   *Time      `json:"endedAt,omitempty"`
}

// AttachmentJSON is a file of a prompt.
type AttachmentJSON struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	MediaType string `json:"mediaType"`
	Bytes     int64  `json:"bytes"`
}

// Attachments converts attachments; nil for none.
func Attachments(attachments []attachment.Attachment) []AttachmentJSON {
	var out []AttachmentJSON
	for _, a := range attachments {
		out = append(out, AttachmentJSON{ID: a.ID, Name: a.Name, MediaType: a.MediaType, Bytes: a.Bytes})
	}
	return out
}

// UsageJSON is the usage of a run.
type UsageJSON struct {
	InputTokens  int64    `json:"inputTokens"`
	OutputTokens int64    `json:"outputTokens"`
	ToolCalls    int64    `json:"toolCalls"`
	CostUSD      *float64 `json:"costUsd"` // nil if unknown
}

// Usage converts u.
func Usage(u usage.Usage) UsageJSON {
	out := UsageJSON{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, ToolCalls: u.ToolCalls}
	if !u.CostUnknown {
		out.CostUSD = &u.CostUSD
	}
	return out
}

func promptUsage(u *session.PromptUsage) (usage *UsageJSON, model string) {
	if u == nil {
		return nil, ""
	}
	used := Usage(u.Usage)
	return &used, u.Model
}

// ResolutionJSON is a person's decision about a prompt with an unknown outcome.
type ResolutionJSON struct {
	Action session.Resolution `json:"action"`
	Note   string             `json:"note,omitempty"`
	At     Time               `json:"at"`
}

func resolution(r *session.Resolved) *ResolutionJSON {
	if r == nil {
		return nil
	}
	return &ResolutionJSON{Action: r.Action, Note: r.Note, At: Time(r.At)}
}

// Prompt converts p.
func Prompt(p session.Prompt) PromptJSON {
	usage, model := promptUsage(p.Usage)
	return PromptJSON{
		ID: p.ID, SessionID: p.SessionID, Ordinal: p.Ordinal, Rank: p.Rank, Status: p.Status, Content: p.Content,
		Mode: p.Mode, OnUnknown: p.OnUnknown, Author: p.Author, Depth: p.Depth, RunID: p.Run(), Attempts: p.Claims, Reason: p.Reason, BlockedReason: p.BlockedReason,
		JoinedTo: p.JoinedTo, CollectUntil: OptionalTime(p.CollectUntil),
		Attachments: Attachments(p.Attachments), RequestID: p.RequestID, Resolution: resolution(p.Resolved), Usage: usage, Model: model,
		CreatedAt: Time(p.CreatedAt), StartedAt: OptionalTime(p.StartedAt), EndedAt: OptionalTime(p.EndedAt),
	}
}

// Prompts converts a list; the result is never nil, so that it is [] in JSON.
func Prompts(prompts []session.Prompt) []PromptJSON {
	out := make([]PromptJSON, len(prompts))
	for i, p := range prompts {
		out[i] = Prompt(p)
	}
	return out
}
