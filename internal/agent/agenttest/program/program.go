// Package program runs an agent's real program in a test as a worker does: it starts the process of a
// launch, writes prompts and answers to it, and translates its lines.
package program

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// timeout bounds the wait for the next line of a program, which is slow on a busy machine.
const timeout = 2 * time.Minute

// Process is an agent's process. It is killed when the test ends.
type Process struct {
	Cmd *exec.Cmd

	stdin  io.WriteCloser
	frames chan []byte // lines of stdout; closed when the process has exited
}

// Start starts cmd in the directory and with the environment of a launch.
func Start(t *testing.T, cmd *exec.Cmd, launch agent.Launch) *Process {
	t.Helper()
	cmd.Dir = launch.Dir
	for k, v := range launch.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &Process{Cmd: cmd, stdin: stdin, frames: make(chan []byte, 16)} // some slack
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.frames)
		r := bufio.NewReader(stdout)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				break
			}
			select {
			case p.frames <- line[:len(line)-1]:
			case <-t.Context().Done():
			}
		}
		_ = cmd.Wait() // the state is in ProcessState
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // usually exited already
		<-done
	})
	return p
}

// WriteProfile writes the files that an adapter generates from a launch's profile.
func WriteProfile(t *testing.T, a agent.Profiled, in agent.LaunchInput) {
	t.Helper()
	files, err := a.ProfileFiles(in)
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(f.Path), 0o700))
		require.NoError(t, os.WriteFile(f.Path, f.Data, 0o600))
	}
}

// Write writes lines to the process.
func (p *Process) Write(t *testing.T, lines []byte) {
	t.Helper()
	_, err := p.stdin.Write(lines)
	require.NoError(t, err)
}

// Next returns the next line of the process.
func (p *Process) Next(t *testing.T) []byte {
	t.Helper()
	select {
	case line, ok := <-p.frames:
		require.True(t, ok, "the process has ended")
		t.Logf("%.400s", line) // shown if the test fails
		return line
	case <-time.After(timeout):
		require.FailNow(t, "the agent does nothing")
		return nil
	}
}

// Rest returns the remaining lines of the process.
func (p *Process) Rest() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line := range p.frames {
			if !yield(line) {
				return
			}
		}
	}
}

// Wait waits until the process has ended and returns its exit code.
func (p *Process) Wait(t *testing.T) int {
	t.Helper()
	deadline := time.After(timeout)
	for {
		select {
		case _, ok := <-p.frames:
			if !ok {
				return p.Cmd.ProcessState.ExitCode()
			}
		case <-deadline:
			require.FailNow(t, "the process does not end")
		}
	}
}

// Close closes the stdin of the process and waits until it has ended.
func (p *Process) Close(t *testing.T) int {
	t.Helper()
	require.NoError(t, p.stdin.Close())
	return p.Wait(t)
}

// Turn is the result of a prompt.
type Turn struct {
	Events    []conversation.Event
	Questions []agent.Question
	Resolved  []string
	End       *agent.TurnEnd // nil if saw stopped reading before the end
}

// Prompt writes a prompt and reads the turn to its end; see Read.
func (p *Process) Prompt(t *testing.T, a agent.Adapter, in agent.PromptInput, saw func(conversation.Event) bool, answers ...agent.Answer) Turn {
	t.Helper()
	line, err := a.Prompt(in)
	require.NoError(t, err)
	p.Write(t, line)
	return p.Read(t, a, agent.RunContext{RunID: in.RunID, PromptID: in.PromptID, Author: in.Author}, saw, answers...)
}

// Read reads a turn to its end and answers its questions in order; there must be as many questions
// as answers. If saw is not nil it is called with each event; when it returns true, Read skips the
// rest of the turn and cuts the open blocks.
func (p *Process) Read(t *testing.T, a agent.Adapter, run agent.RunContext, saw func(conversation.Event) bool, answers ...agent.Answer) Turn {
	t.Helper()
	tr, err := a.NewTranslator(run, nil)
	require.NoError(t, err)
	var out Turn
	for no := int64(0); out.End == nil; no++ {
		got, err := tr.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: time.Now(), Data: p.Next(t)})
		require.NoError(t, err)
		out.Events = append(out.Events, got.Events...)
		out.Resolved = append(out.Resolved, got.Resolved...)
		out.End = got.End
		for _, q := range got.Questions {
			require.Greater(t, len(answers), len(out.Questions), "an unexpected question: %+v", q)
			line, err := a.(agent.Answerer).Answer(q, answers[len(out.Questions)])
			require.NoError(t, err)
			p.Write(t, line)
			out.Questions = append(out.Questions, q)
		}
		for _, e := range got.Events {
			if saw != nil && saw(e) {
				out.Events = append(out.Events, tr.Cut(time.Now())...)
				return out
			}
		}
	}
	require.Len(t, out.Questions, len(answers))
	return out
}

// Blocks returns the turn's blocks in the main conversation.
func (r Turn) Blocks() []conversation.Block {
	var f conversation.Folder
	for _, e := range r.Events {
		f.Add(e)
	}
	return f.Conversation().Threads[0].Blocks
}

// All returns the blocks of a type.
func (r Turn) All(kind conversation.BlockType) []conversation.Block {
	var found []conversation.Block
	for _, b := range r.Blocks() {
		if b.Type == kind {
			found = append(found, b)
		}
	}
	return found
}

// Only returns the only block of a type.
func (r Turn) Only(t *testing.T, kind conversation.BlockType) conversation.Block {
	t.Helper()
	found := r.All(kind)
	require.Len(t, found, 1, "%s in %+v, which ended with %+v", kind, r.Blocks(), r.End)
	return found[0]
}

// Files reads the transcript files of a launch.
func Files(t *testing.T, launch agent.Launch) []transcript.File {
	t.Helper()
	var files []transcript.File
	for _, pattern := range launch.Transcripts {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			files = append(files, transcript.File{Path: name, Data: data})
		}
	}
	return files
}

// Pictures writes three PNG images of one pixel, each of another color, to files in a directory and
// returns them as the images of a prompt.
func Pictures(t *testing.T, dir string) []agent.Image {
	t.Helper()
	var images []agent.Image
	for i, pixel := range []color.Gray{{0}, {128}, {255}} {
		dot := image.NewGray(image.Rect(0, 0, 1, 1))
		dot.SetGray(0, 0, pixel)
		var data bytes.Buffer
		require.NoError(t, png.Encode(&data, dot))
		name := filepath.Join(dir, fmt.Sprintf("pixel%d.png", i+1))
		require.NoError(t, os.WriteFile(name, data.Bytes(), 0o600))
		images = append(images, agent.Image{Path: name, MediaType: "image/png", Data: data.Bytes()})
	}
	return images
}

// RequireSent requires that each of the images was sent to the model.
func RequireSent(t *testing.T, sent string, images []agent.Image) {
	t.Helper()
	for _, i := range images {
		require.Contains(t, sent, base64.StdEncoding.EncodeToString(i.Data), "%s is missing", i.Path)
	}
}
