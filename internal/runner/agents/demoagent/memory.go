package demoagent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
)

// memory is the transcript on disk, the agent's only memory of earlier prompts, and its permanent
// permissions.
type memory struct {
	dir  string
	file *os.File
	// known are the recorded prompts by uuid, each with its result. A result without an outcome
	// belongs to a prompt during which the agent died.
	known map[string]demoformat.Line
	// allowed are the tools that no longer need to ask: those in allowedFile, and those that were
	// allowed for the lifetime of this process.
	allowed map[string]bool
}

// openMemory opens or creates the transcript in dir. A truncated last line is kept and terminated,
// so that the next line is separate.
func openMemory(dir string) (*memory, error) {
	if err := os.MkdirAll(filepath.Join(dir, demoformat.SubagentDir), 0o700); err != nil {
		return nil, fmt.Errorf("make transcript directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, demoformat.MainFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open transcript: %w", err)
	}
	m := &memory{dir: dir, file: file, known: map[string]demoformat.Line{}, allowed: map[string]bool{}}
	data, err := io.ReadAll(file)
	if err == nil && len(data) > 0 && data[len(data)-1] != '\n' {
		_, err = file.Write([]byte{'\n'})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read transcript: %w", err), file.Close())
	}
	var last, run string // uuid of the prompt that lines belong to, and its run
	for raw := range bytes.Lines(data) {
		switch l, ok := demoformat.DecodeLine(raw); {
		case !ok:
		case l.Type == demoformat.LineUser && l.RunID != "" && l.RunID == run: // added to the running turn
		case l.Type == demoformat.LineUser:
			last, run = l.UUID, l.RunID
			m.known[last] = demoformat.Line{}
		case l.Type == demoformat.LineResult:
			m.known[last] = l
		}
	}
	tools, err := os.ReadFile(filepath.Join(dir, demoformat.AllowedFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("read the permissions: %w", err), file.Close())
	}
	for name := range strings.FieldsSeq(string(tools)) {
		m.allowed[name] = true
	}
	return m, nil
}

// allow records that a tool no longer needs to ask. A name is surrounded by newlines, so that a
// truncated one does not corrupt others.
func (m *memory) allow(tool string) error {
	m.allowed[tool] = true
	return appendTo(filepath.Join(m.dir, demoformat.AllowedFile), []byte("\n"+tool+"\n"))
}

// append writes a line to the file. Once append returns, the line survives the death of this
// process, though not of the machine; snapshots protect against that.
func (m *memory) append(subagent string, encoded []byte) error {
	if subagent == "" {
		if _, err := m.file.Write(encoded); err != nil {
			return fmt.Errorf("write transcript: %w", err)
		}
		return nil
	}
	return appendTo(filepath.Join(m.dir, demoformat.SubagentDir, subagent+".jsonl"), encoded)
}

func appendTo(name string, data []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w", filepath.Base(name), err)
	}
	if _, err := file.Write(data); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", filepath.Base(name), err), file.Close())
	}
	return file.Close()
}

// maxQuote bounds a quoted text, in characters.
const maxQuote = 200

func quotable(text string) string {
	if r := []rune(text); len(r) > maxQuote {
		return string(r[:maxQuote]) + "…"
	}
	return text
}

// recall reads the transcript again and returns its content.
func (m *memory) recall() (string, error) {
	data, err := os.ReadFile(m.file.Name())
	if err != nil {
		return "", fmt.Errorf("read transcript: %w", err)
	}
	var prompts int
	var first string
	for raw := range bytes.Lines(data) {
		l, ok := demoformat.DecodeLine(raw)
		if !ok || l.Type != demoformat.LineUser {
			continue
		}
		if prompts++; prompts == 1 {
			first = l.Content
		}
	}
	first = quotable(first)
	noun := "prompts"
	if prompts == 1 {
		noun = "prompt"
	}
	return fmt.Sprintf("I have had %d %s. The first was: %s.", prompts, noun, strconv.Quote(first)), nil
}

func (m *memory) close() error { return m.file.Close() }
