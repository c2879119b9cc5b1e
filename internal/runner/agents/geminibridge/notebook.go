package geminibridge

import (
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpclient"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// notebook is the transcript of a session, with what earlier bridges have recorded.
type notebook struct {
	*acpclient.Notebook
	memory geminiformat.Memory // the earlier conversation of the agent's session
	runs   map[string]*pastRun
}

// pastRun is a run that the notebook has.
type pastRun struct {
	ended    bool
	outcome  session.Outcome
	reason   string
	status   int
	answered bool // the agent had begun to do something
}

// openNotebook opens the notebook at name, or makes it.
func openNotebook(name string) (*notebook, error) {
	open, past, err := acpclient.OpenNotebook(name)
	if err != nil {
		return nil, err
	}
	nb := &notebook{Notebook: open, runs: map[string]*pastRun{}}
	nb.read(past)
	return nb, nil
}

// read takes up what earlier bridges have noted.
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

// isPrompt reports whether a note is the agent's record of a prompt, which is not an answer to it.
func isPrompt(n stdio.Note) bool {
	var r geminiformat.Record
	return geminiformat.Decode(n.Data, &r) && r.Type == geminiformat.UserRecord
}
