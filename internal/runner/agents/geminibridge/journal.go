package geminibridge

import (
	"bytes"
	"errors"
	"os"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// journal is the transcript of a session: the notes of its bridges, one a line. It only grows.
type journal struct {
	file *os.File
	out  *bridge.Output
	// session is the agent's session that is resumed, and memory its earlier conversation.
	session string
	memory  memory
	runs    map[string]*pastRun
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
	file, past, err := bridge.OpenJournal(name)
	if err != nil {
		return nil, err
	}
	j := &journal{file: file, out: bridge.NewOutput(file), runs: map[string]*pastRun{}}
	j.read(past)
	return j, nil
}

func (j *journal) close() error { return errors.Join(j.out.Err(), j.file.Close()) }

// read takes up what earlier bridges have noted.
func (j *journal) read(past []byte) {
	var run *pastRun
	for line := range bytes.Lines(past) {
		n, ok := stdio.ParseNote(line)
		if !ok {
			continue
		}
		switch n.Type {
		case noteSession:
			if n.ID != j.session {
				j.session, j.memory = n.ID, memory{}
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
