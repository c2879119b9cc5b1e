package demoagent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
)

// Bounds of the output of a tool, in bytes.
const (
	MaxShown  = 4 << 10  // of its input
	MaxOutput = 64 << 10 // of a command's output
	maxImage  = 1 << 20
)

// pipeDelay is how long to wait for a command's output after the command has exited, because a
// process that it left running may hold the pipe open.
const pipeDelay = 500 * time.Millisecond

// The names of tools.
const (
	toolSleep = "sleep"
	toolAsk   = "ask"
	toolLook  = "look"
)

// interruptedOutput is the result of an aborted tool that had no output.
const interruptedOutput = "interrupted"

// tool is a call to be made.
type tool struct {
	name     string
	input    any
	subagent string // the subagent that is called; empty for other tools
	// title is the question to people if the tool must ask before it runs; empty for a tool that
	// does no harm and never asks.
	title string
	work  func(call demoformat.Line) (answer, error)
}

type shellInput struct {
	Command string `json:"command"`
}

type writeInput struct {
	File string `json:"file"`
	Text string `json:"text"`
}

type lookInput struct {
	File string `json:"file"`
}

type sleepInput struct {
	Duration string `json:"duration"`
}

type askInput struct {
	Question string   `json:"question"`
	Options  []string `json:"options,omitempty"`
}

type subagentInput struct {
	Prompt string `json:"prompt"`
}

// ShellOutput is the result of a command.
type ShellOutput struct {
	Output   string `json:"output"` // stdout and stderr interleaved
	ExitCode int    `json:"exitCode"`
}

// answer is the result of a tool. output is any value that can be encoded as JSON.
type answer struct {
	output any
	failed bool
	images [][]byte
}

// shell runs a command in the workspace, in a new process group. If interrupted, it kills the
// command with all its descendants and returns the output so far.
func (t *turn) shell(command string) (answer, error) {
	out := &head{limit: MaxOutput}
	cmd := exec.CommandContext(t.ctx, "sh", "-c", command)
	cmd.Dir = t.Workspace
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = pipeDelay
	ownGroup(cmd)
	cmd.Cancel = func() error { return killTree(cmd.Process.Pid) }
	err := cmd.Run()
	if cmd.ProcessState == nil {
		if t.ctx.Err() != nil {
			return answer{output: ShellOutput{ExitCode: -1}}, errInterrupted
		}
		return answer{output: fmt.Sprintf("cannot run: %v", err), failed: true}, nil
	}
	code := cmd.ProcessState.ExitCode() // -1 if a signal ended it
	text := out.String()
	if code < 0 {
		text += fmt.Sprintf("\n[%s]", cmd.ProcessState)
	}
	t.answer = text
	a := answer{output: ShellOutput{Output: text, ExitCode: code}, failed: code != 0}
	if t.ctx.Err() != nil {
		return a, errInterrupted
	}
	return a, nil
}

// write writes text to a file of the workspace and creates the necessary directories.
func (t *turn) write(name, text string) (answer, error) {
	t.answer = fmt.Sprintf("wrote %d bytes to %s", len(text), name)
	if err := t.writeFile(name, text); err != nil {
		t.answer = err.Error()
		return answer{output: t.answer, failed: true}, nil //nolint:nilerr // the tool failed, not the turn
	}
	return answer{output: t.answer}, nil
}

func (t *turn) writeFile(name, text string) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%s is not in the workspace", name)
	}
	root, err := os.OpenRoot(t.Workspace)
	if err != nil {
		return err
	}
	err = root.MkdirAll(filepath.Dir(name), 0o777)
	if err == nil {
		err = root.WriteFile(name, []byte(text), 0o666)
	}
	return errors.Join(err, root.Close())
}

// look returns an image of the workspace.
func (t *turn) look(name string) (answer, error) {
	data, err := t.readFile(name)
	if err != nil {
		t.answer = err.Error()
		return answer{output: t.answer, failed: true}, nil //nolint:nilerr // the tool failed, not the turn
	}
	t.answer = fmt.Sprintf("looked at %d bytes of %s", len(data), name)
	return answer{output: t.answer, images: [][]byte{data}}, nil
}

func (t *turn) readFile(name string) (data []byte, err error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%s is not in the workspace", name)
	}
	root, err := os.OpenRoot(t.Workspace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", name)
	case info.Size() > maxImage:
		return nil, fmt.Errorf("%s has %d bytes; at most %d are looked at", name, info.Size(), maxImage)
	}
	data = make([]byte, info.Size())
	n, err := io.ReadFull(f, data)
	return data[:n], err
}

// sleep waits for d.
func (t *turn) sleep(d time.Duration) (answer, error) {
	if !t.pause(d) {
		return answer{output: interruptedOutput}, errInterrupted
	}
	t.answer = "slept " + d.String()
	return answer{output: t.answer}, nil
}

// shown truncates a tool's input to the length that is shown to people.
func shown(text string) string {
	if len(text) <= MaxShown {
		return text
	}
	return strings.ToValidUTF8(text[:MaxShown], "") + fmt.Sprintf("… [cut: %d bytes in all]", len(text))
}

// head is a writer that keeps the beginning of its input and counts the rest.
type head struct {
	limit int
	kept  bytes.Buffer
	total int
}

func (h *head) Write(p []byte) (int, error) {
	h.total += len(p)
	h.kept.Write(p[:min(len(p), h.limit-h.kept.Len())])
	return len(p), nil
}

// String returns the kept text, with a note if the input was longer.
func (h *head) String() string {
	text := strings.ToValidUTF8(h.kept.String(), "\uFFFD")
	if h.total > h.limit {
		text += fmt.Sprintf("\n[cut: %d bytes in all]", h.total)
	}
	return text
}
