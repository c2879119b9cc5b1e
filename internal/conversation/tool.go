package conversation

import "encoding/json"

// ToolKind is the kind of a tool, in the same terms for every agent.
type ToolKind string

// The kinds of tool.
const (
	ToolRead    ToolKind = "read"
	ToolEdit    ToolKind = "edit" // also writes, moves and deletes files
	ToolExecute ToolKind = "execute"
	ToolSearch  ToolKind = "search"
	ToolFetch   ToolKind = "fetch"
	ToolThink   ToolKind = "think" // plans, lists of tasks
	ToolOther   ToolKind = "other"
)

// The bounds of a Tool.
const (
	MaxToolTitleBytes    = 256
	maxToolLocations     = 32
	MaxToolPathBytes     = 1 << 10
	maxToolDiffs         = 32
	MaxToolDiffTextBytes = 64 << 10 // total size of all changes of a call
)

// Tool describes a tool call in the same form for every agent. It is derived from the name and the
// input of the call, which have the agent's form.
type Tool struct {
	Kind      ToolKind   `json:"kind,omitempty"`
	Title     string     `json:"title,omitempty"` // a line for people
	Locations []Location `json:"locations,omitempty"`
	Diff      []FileDiff `json:"diff,omitempty"` // changes of an edit
}

// Location is a file that a call concerns.
type Location struct {
	Path string `json:"path"` // as named by the agent
	Line int    `json:"line,omitempty"`
}

// FileDiff is the change of a file by an edit: a text that replaces another, or a patch.
type FileDiff struct {
	Path    string `json:"path,omitempty"` // empty if only the patch names files
	OldText string `json:"oldText,omitempty"`
	NewText string `json:"newText,omitempty"`
	Patch   string `json:"patch,omitempty"` // in the agent's format, mostly a unified diff
	// Truncated means that the texts are incomplete.
	Truncated bool `json:"truncated,omitempty"`
}

// Bounded returns the tool within the bounds.
func (t Tool) Bounded() Tool {
	t.Title = head(t.Title, MaxToolTitleBytes)
	if len(t.Locations) > 0 {
		kept := make([]Location, 0, min(len(t.Locations), maxToolLocations))
		for _, l := range t.Locations[:min(len(t.Locations), maxToolLocations)] {
			kept = append(kept, Location{Path: head(l.Path, MaxToolPathBytes), Line: l.Line})
		}
		t.Locations = kept
	}
	if len(t.Diff) > 0 {
		room := MaxToolDiffTextBytes
		kept := make([]FileDiff, 0, min(len(t.Diff), maxToolDiffs))
		for _, d := range t.Diff[:min(len(t.Diff), maxToolDiffs)] {
			d.Path = head(d.Path, MaxToolPathBytes)
			for _, text := range []*string{&d.OldText, &d.NewText, &d.Patch} {
				whole := len(*text)
				*text = head(*text, room)
				room -= len(*text)
				d.Truncated = d.Truncated || len(*text) < whole
			}
			kept = append(kept, d)
		}
		t.Diff = kept
	}
	return t
}

// InRun returns the event with the run in which its block appeared, and the time at which the block
// was completed.
func InRun(e Event, runID string) Event {
	switch d := e.Data.(type) {
	case BlockStart:
		d.Block.RunID = runID
		e.Data = d
	case BlockComplete:
		d.Block.RunID, d.Block.CompletedAt = runID, new(e.At)
		e.Data = d
	}
	return e
}

// WithTool returns the event with the description that view returns for the name and the input of
// the call. Events that do not concern a call are unchanged.
func WithTool(e Event, view func(name string, input json.RawMessage) Tool) Event {
	switch d := e.Data.(type) {
	case BlockStart:
		if d.Block.Type == ToolUse {
			d.Block.Tool = viewed(d.Block, view)
			e.Data = d
		}
	case BlockComplete:
		if d.Block.Type == ToolUse {
			d.Block.Tool = viewed(d.Block, view)
			e.Data = d
		}
	case BlockUpdate:
		if d.Updates.Name != "" && len(d.Updates.Input) > 0 {
			d.Updates.Tool = view(d.Updates.Name, d.Updates.Input).Bounded()
			e.Data = d
		}
	}
	return e
}

// viewed returns the description of a call. A kind from the agent takes precedence over the name of
// the tool.
func viewed(b Block, view func(name string, input json.RawMessage) Tool) Tool {
	t := view(b.Name, b.Input).Bounded()
	if b.Kind != "" {
		t.Kind = b.Kind
	}
	return t
}

// WithTools adds descriptions to the calls of a conversation.
func WithTools(c Conversation, view func(name string, input json.RawMessage) Tool) {
	for _, t := range c.Threads {
		for i := range t.Blocks {
			if b := &t.Blocks[i]; b.Type == ToolUse {
				b.Tool = viewed(*b, view)
			}
		}
	}
}
