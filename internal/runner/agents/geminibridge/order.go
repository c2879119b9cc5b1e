package geminibridge

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpclient"
)

// order merges the program's stream and its stored records. The program stores an answer when it is
// complete, and a call when it has ended, before it continues, but its stdout may be read later
// than its files. So a record is held until everything that it refers to has been printed:
//
//	streamed   thought  text  text            tool_call  …  completed           text
//	written                         answer                             call            answer
type order struct {
	changes *chatChanges
	chats   *tail
	agents  []*tail
	waiting []item

	// Streamed since the last stored answer.
	text     strings.Builder
	thoughts []string
	// open are the calls in progress, true for subagents. finished are the calls whose end has been
	// streamed.
	open     map[string]bool
	finished map[string]struct{}
	delegate string // newest call of a subagent
}

// begin discards the remainder of an earlier turn.
func (o *order) begin() {
	o.text.Reset()
	o.thoughts, o.delegate = nil, ""
	clear(o.open)
	clear(o.finished)
}

// gained reads new records of the chat files, and returns those that can be printed. It reads the
// main file first: a subagent's file is complete when its call is in the main file.
func (o *order) gained(subagents string) (notes []stdio.Note, changed bool) {
	if o.chats != nil {
		for _, line := range o.chats.lines() {
			changed = true
			o.waiting = append(o.waiting, o.changes.read("", line)...)
		}
	}
	for _, a := range o.subagents(subagents) {
		id := strings.TrimSuffix(filepath.Base(a.name), ".jsonl")
		if !a.begun {
			a.begun = true
			notes = append(notes, stdio.Note{Type: geminiformat.NoteSubagent, ID: id, Data: geminiformat.Data(geminiformat.SubagentNote{At: acpclient.Now(), ToolUseID: o.delegate})})
		}
		for _, line := range a.lines() {
			changed = true
			for _, i := range o.changes.read(id, line) {
				notes = append(notes, i.note)
			}
		}
	}
	return append(notes, o.flush()...), changed
}

// subagents returns the files of a session's subagents.
func (o *order) subagents(dir string) []*tail {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return o.agents // none exist yet
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		known := filepath.Ext(name) != ".jsonl"
		for _, a := range o.agents {
			known = known || a.name == name
		}
		if !known {
			o.agents = append(o.agents, &tail{name: name})
		}
	}
	return o.agents
}

// flush returns the held records that can be printed.
func (o *order) flush() []stdio.Note {
	var notes []stdio.Note
	for len(o.waiting) > 0 {
		head := o.waiting[0]
		switch {
		case head.says != nil && (written(o.text.String()) != geminiformat.Words(head.says.Content) || len(o.thoughts) < len(head.says.Thoughts)):
			return notes
		case head.calls != nil && !o.ended(head.calls):
			return notes
		}
		notes = append(notes, o.next()...)
	}
	return notes
}

func (o *order) ended(calls []string) bool {
	for _, id := range calls {
		if _, ok := o.finished[id]; !ok {
			return false
		}
	}
	return true
}

// next removes the first held record and returns it.
func (o *order) next() []stdio.Note {
	head := o.waiting[0]
	o.waiting = o.waiting[1:]
	if text, thoughts := o.unwritten(); head.person && (text != "" || len(thoughts) > 0) {
		// The answer in progress was abandoned for this message.
		o.text.Reset()
		o.thoughts = nil
		return []stdio.Note{{Type: geminiformat.NotePartial, Data: geminiformat.Data(geminiformat.PartialNote{At: acpclient.Now(), Text: text, Thoughts: thoughts})}, head.note}
	}
	if head.says == nil {
		return []stdio.Note{head.note}
	}
	notes := []stdio.Note{head.note}
	streamed := strings.TrimFunc(o.text.String(), geminiformat.IsSpace)
	if content := geminiformat.Words(head.says.Content); streamed != content && written(streamed) == content {
		notes = []stdio.Note{{Type: geminiformat.NoteText, Data: geminiformat.Quoted(streamed)}, head.note}
	}
	o.text.Reset()
	o.thoughts = nil
	return notes
}

// answers returns the answers at the head of the held records: the program has continued, so they
// have been streamed.
func (o *order) answers() []stdio.Note {
	var notes []stdio.Note
	for len(o.waiting) > 0 && o.waiting[0].says != nil {
		notes = append(notes, o.next()...)
	}
	return append(notes, o.flush()...)
}

// before returns the notes that must be printed before an update.
func (o *order) before(u geminiformat.Update) []stdio.Note {
	switch u.Kind {
	case "tool_call", "tool_call_update":
		return o.answers()
	case "agent_thought_chunk":
		if len(o.waiting) > 0 && o.waiting[0].says != nil && len(o.thoughts) >= len(o.waiting[0].says.Thoughts) {
			return o.answers()
		}
	case "agent_message_chunk":
		if len(o.waiting) == 0 || o.waiting[0].says == nil {
			return nil
		}
		text := o.text.String() + geminiformat.Words(u.Content)
		if !strings.Contains(text, "<!--") && !strings.HasPrefix(geminiformat.Words(o.waiting[0].says.Content), written(text)) {
			return o.answers()
		}
	}
	return nil
}

// printed records that an update has been printed, and returns the notes that can be printed now.
func (o *order) printed(u geminiformat.Update) []stdio.Note {
	switch u.Kind {
	case "agent_message_chunk":
		if text := geminiformat.Words(u.Content); !strings.HasPrefix(text, geminiformat.ModeTag) {
			o.text.WriteString(text)
		}
	case "agent_thought_chunk":
		if text := strings.TrimPrefix(geminiformat.Words(u.Content), "****\n"); text != "" {
			o.thoughts = append(o.thoughts, text)
		}
	case "tool_call", "tool_call_update":
		if u.Status == "completed" || u.Status == "failed" {
			o.finished[u.ID] = struct{}{}
		}
	}
	return o.flush()
}

// rest returns all held records, because the turn has ended.
func (o *order) rest() []stdio.Note {
	var notes []stdio.Note
	for len(o.waiting) > 0 {
		notes = append(notes, o.next()...)
	}
	return notes
}

// unwritten returns the text and thoughts that have been streamed and not stored.
func (o *order) unwritten() (text string, thoughts []string) {
	return strings.TrimFunc(o.text.String(), geminiformat.IsSpace), o.thoughts
}

// expand replaces "/name arguments" by the prompt of that user command, because the program does so
// only in its terminal.
func (b *talk) expand(content string) string {
	name, args, _ := strings.Cut(strings.TrimPrefix(content, "/"), " ")
	if !strings.HasPrefix(content, "/") || !commandName.MatchString(name) {
		return content
	}
	for _, dir := range []string{b.home, b.workspace} {
		text, err := os.ReadFile(filepath.Join(dir, ".gemini", geminiformat.CommandDir, name+".toml"))
		if err != nil {
			continue
		}
		if prompt, ok := commandPrompt(string(text)); ok {
			args = strings.TrimSpace(args)
			if strings.Contains(prompt, "{{args}}") {
				return strings.ReplaceAll(prompt, "{{args}}", args)
			}
			return strings.TrimSpace(prompt + "\n\n" + args)
		}
	}
	return content
}
