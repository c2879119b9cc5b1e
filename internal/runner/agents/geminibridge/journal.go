package geminibridge

import (
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpclient"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// journal is the transcript of a session, with what earlier bridges have recorded.
type journal struct {
	*acpclient.Journal
	memory memory // the earlier conversation of the agent's session
	runs   map[string]*pastRun
}

// pastRun is a run that the journal has.
type pastRun struct {
	ended    bool
	outcome  session.Outcome
	reason   string
	answered bool // the agent had begun to do something
}

// openJournal opens the journal at name, or makes it.
func openJournal(name string) (*journal, error) {
	open, past, err := acpclient.OpenJournal(name)
	if err != nil {
		return nil, err
	}
	j := &journal{Journal: open, runs: map[string]*pastRun{}}
	j.read(past)
	return j, nil
}

// read takes up what earlier bridges have noted.
func (j *journal) read(past []byte) {
	var run *pastRun
	for n := range acpclient.Notes(past) {
		switch n.Type {
		case acpclient.NoteSession:
			if n.ID != j.Session {
				j.Session, j.memory = n.ID, memory{}
			}
		case geminiformat.NotePrompt:
			run = &pastRun{}
			j.runs[n.RunID] = run
		case geminiformat.NoteChat, geminiformat.NoteTool:
			if run != nil && (n.Type == geminiformat.NoteTool || !isPrompt(n)) {
				run.answered = true
			}
		case geminiformat.NoteEnd:
			var d geminiformat.EndNote
			if past := j.runs[n.RunID]; past != nil && geminiformat.Decode(n.Data, &d) {
				past.ended, past.outcome, past.reason = true, d.Outcome, d.Reason
			}
		}
		j.memory.note(n)
	}
}

// isPrompt reports whether a note is the agent's record of a prompt, which is no answer to it.
func isPrompt(n stdio.Note) bool {
	var r geminiformat.Record
	return geminiformat.Decode(n.Data, &r) && r.Type == geminiformat.UserRecord
}
