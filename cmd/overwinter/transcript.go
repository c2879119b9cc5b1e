package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// transcriptCmd reads transcripts and output of agents, without a session.
type transcriptCmd struct {
	Blocks transcriptBlocksCmd `cmd:"" help:"Print the conversations in an agent's own transcript files."`
	Events transcriptEventsCmd `cmd:"" help:"Print the events in an agent's stdout, one per line."`
	Fold   transcriptFoldCmd   `cmd:"" help:"Fold events from standard input, one per line, into conversations."`
}

// transcriptBlocksCmd parses transcript files.
type transcriptBlocksCmd struct {
	Agent string `required:"" placeholder:"NAME" help:"The agent that wrote the files, such as claude-sdk."`
	Path  string `arg:"" type:"path" placeholder:"DIR_OR_FILE" help:"Directory to read recursively, or a file; the directory with the file's name without its extension is read too."`
}

// Run prints {"conversations": […]}.
func (c transcriptBlocksCmd) Run(s streams) error {
	adapter, err := knownAgent(c.Agent)
	if err != nil {
		return err
	}
	files, err := transcriptFiles(c.Path)
	if err != nil {
		return fmt.Errorf("read transcripts: %w", err)
	}
	parsed, err := adapter.Parse(files)
	if err != nil {
		return fmt.Errorf("parse transcripts of %s: %w", c.Agent, err)
	}
	if viewer, ok := adapter.(agent.Viewer); ok {
		conversation.WithTools(parsed, viewer.Tool)
	}
	return printConversation(s.stdout, parsed)
}

// transcriptEventsCmd translates a captured stream.
type transcriptEventsCmd struct {
	Agent string `required:"" placeholder:"NAME" help:"The agent that wrote the file, such as claude-sdk."`
	File  string `arg:"" type:"path" help:"Lines of the agent's stdout, of one or more turns."`
}

// Run prints one event per line. Lines of a capture have no time, so the file's time is used if the
// agent sets none. Blocks that are open at the end of the file are closed as aborted.
func (c transcriptEventsCmd) Run(s streams) error {
	adapter, err := knownAgent(c.Agent)
	if err != nil {
		return err
	}
	file, err := os.Open(c.File)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(s.stdout)
	if err := translateLines(adapter, bufio.NewReaderSize(file, 1<<20), info.ModTime().UTC(), json.NewEncoder(out)); err != nil {
		return fmt.Errorf("translate %s: %w", c.File, err)
	}
	return out.Flush()
}

// eventLine is an event as the commands print and read it. Lines of the API's stream have the same
// fields and more.
type eventLine struct {
	Seq            int64                  `json:"seq,omitempty"`
	Type           conversation.EventType `json:"type"`
	ConversationID string                 `json:"conversationId,omitempty"`
	At             time.Time              `json:"at"`
	Data           json.RawMessage        `json:"data"`
}

// translateLines translates lines as the frames of a run. After the end of a run, the next run
// starts.
func translateLines(adapter agent.Adapter, lines *bufio.Reader, at time.Time, out *json.Encoder) error {
	translator, err := adapter.NewTranslator(agent.RunContext{}, nil)
	if err != nil {
		return err
	}
	for no := int64(0); ; no++ {
		line, readErr := lines.ReadBytes('\n')
		if len(line) > 0 {
			translated, err := translator.Translate(agent.Frame{
				No: no, Stream: agent.Stdout, At: at, Data: bytes.TrimSuffix(line, []byte("\n")),
			})
			if err != nil {
				return fmt.Errorf("line %d: %w", no+1, err)
			}
			if err := printEvents(out, translated.Events); err != nil {
				return err
			}
			if translated.End != nil {
				if translator, err = agent.NextTurn(adapter, translator); err != nil {
					return err
				}
			}
		}
		if errors.Is(readErr, io.EOF) {
			return printEvents(out, translator.Cut(at))
		}
		if readErr != nil {
			return readErr
		}
	}
}

func printEvents(out *json.Encoder, events []conversation.Event) error {
	for _, e := range events {
		data, err := json.Marshal(e.Data)
		if err != nil {
			return fmt.Errorf("event %s: %w", e.Type, err)
		}
		if err := out.Encode(eventLine{Type: e.Type, ConversationID: e.ConversationID, At: e.At, Data: data}); err != nil {
			return err
		}
	}
	return nil
}

// transcriptFoldCmd folds events.
type transcriptFoldCmd struct{}

// Run prints {"conversations": […]}.
func (transcriptFoldCmd) Run(s streams) error {
	in := bufio.NewReaderSize(s.stdin, 1<<20)
	var folder conversation.Folder
	for n := 1; ; n++ {
		line, readErr := in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var e eventLine
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf("line %d is not an event: %w", n, err)
			}
			if err := folder.Apply(e.Type, e.ConversationID, e.Data); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		if errors.Is(readErr, io.EOF) {
			return printConversation(s.stdout, folder.Conversation())
		}
		if readErr != nil {
			return fmt.Errorf("read events: %w", readErr)
		}
	}
}

// knownAgent returns the adapter with that name. An unknown name is a usage error.
func knownAgent(name string) (agent.Adapter, error) {
	adapter, err := catalog.Agents().Get(name)
	if err != nil {
		return nil, usageError{err.Error()}
	}
	return adapter, nil
}

// transcriptFiles reads all files below a directory, or a file and the files below the directory
// with the file's name, where an agent keeps files that belong to it.
func transcriptFiles(path string) ([]transcript.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return filesBelow(path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := []transcript.File{{Path: path, Data: data}}
	folder := strings.TrimSuffix(path, filepath.Ext(path))
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return files, nil //nolint:nilerr // no such directory
	}
	more, err := filesBelow(folder)
	return append(files, more...), err
}

func filesBelow(dir string) ([]transcript.File, error) {
	var files []transcript.File
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		files = append(files, transcript.File{Path: name, Data: data})
		return err
	})
	return files, err
}

func printConversation(w io.Writer, c conversation.Conversation) error {
	return json.NewEncoder(w).Encode(c)
}
