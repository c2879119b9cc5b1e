package geminibridge

import (
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpclient"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// notebook is the transcript of a session, with the records of earlier bridges.
type notebook struct {
	*acpclient.Notebook
	memory geminiformat.Memory // earlier conversation of the agent's session
	runs   map[string]*pastRun
}

// pastRun is a run recorded in the notebook.
type pastRun struct {
	ended    bool
	outcome  session.Outcome
	reason   string
	status   int
	answered bool // the agent had begun to work on it
}

// openNotebook opens the notebook at name, or creates it.
func openNotebook(name string) (*notebook, error) {
	open, past, err := acpclient.OpenNotebook(name)
	if err != nil {
		return nil, err
	}
	nb := &notebook{Notebook: open, runs: map[string]*pastRun{}}
	nb.read(past)
	return nb, nil
}

// read reads the records of earlier bridges.
func (nb *notebook) read(past []byte) {
	var run *pastRun
	for n := range acpclient.Notes(past) {
		switch n.Type {
		case stdio.NoteSession:
			if n.ID != nb.Session {
				nb.Session, nb.memory = n.ID, geminiformat.Memory{}
			}
		case geminiformat.NotePrompt:
			run = &pastRun{}
			nb.runs[n.RunID] = run
		case geminiformat.NoteChat, geminiformat.NoteTool:
			if run != nil && (n.Type == geminiformat.NoteTool || !isPrompt(n)) {
				run.answered = true
			}
		case geminiformat.NoteEnd:
			var d geminiformat.EndNote
			if past := nb.runs[n.RunID]; past != nil && geminiformat.Decode(n.Data, &d) {
				past.ended, past.outcome, past.reason, past.status = true, d.Outcome, d.Reason, d.Status
			}
		}
		nb.memory.Note(n)
	}
}

// isPrompt reports whether a note is the agent's record of a prompt, and not of an answer.
func isPrompt(n stdio.Note) bool {
	var r geminiformat.Record
	return geminiformat.Decode(n.Data, &r) && r.Type == geminiformat.UserRecord
}
