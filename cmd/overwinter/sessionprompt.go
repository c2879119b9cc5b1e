package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/cli"
)

// sessionPromptCmd sends a prompt.
type sessionPromptCmd struct {
	sessionArg
	Text string `arg:"" help:"The prompt; - reads it from standard input."`
	Wait bool   `help:"Print the agent's output and return when the turn ends. Fails if the turn does not complete, or the session is in error."`
	timeoutFlag
	PromptID  string   `name:"id" placeholder:"ID" help:"ID of the prompt; repeating it has no effect. Default: a new ID."`
	Attach    []string `sep:"none" placeholder:"FILE" help:"File to attach to the prompt; it is placed in the workspace. Repeatable."`
	Mode      string   `enum:"followup,steer,collect" default:"followup" placeholder:"MODE" help:"Mode: followup waits for its turn; steer joins the turn in progress, or interrupts it if the agent accepts no prompts during a turn; collect waits for other prompts of that mode and runs with them as one. Default ${default}."`
	OnUnknown string   `enum:"hold,retry,fail" default:"hold" placeholder:"POLICY" help:"What to do if the sandbox is lost during the turn: hold, retry or fail. Default ${default}."`
}

// Validate checks what kong cannot.
func (c *sessionPromptCmd) Validate() error { return needsWait(c.Timeout, c.Wait) }

// Run sends the prompt, and with --wait prints its answer.
func (c *sessionPromptCmd) Run(ctx context.Context, logger *slog.Logger, s streams, parent *sessionCmd) error {
	text, err := promptText(c.Text, s.stdin)
	if err != nil {
		return err
	}
	files, err := attachedFiles(c.Attach)
	if err != nil {
		return err
	}
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		// The newest event before the prompt; all events about the prompt follow it.
		var after int64
		if c.Wait {
			if after, err = api.Position(ctx, id); err != nil {
				return err
			}
		}
		submitted, err := api.PromptSubmit(ctx, id, client.Submit{
			Content: text, ID: c.PromptID, Mode: client.Mode(c.Mode), OnUnknown: client.OnUnknown(c.OnUnknown), Files: files,
		})
		if err != nil {
			return err
		}
		if !c.Wait {
			return parent.printPrompt(s.stdout, submitted)
		}
		if !submitted.Created {
			after = 0 // the prompt was sent before, so its turn may be anywhere in the log
		}
		logger.DebugContext(ctx, "prompt accepted",
			slog.String("session_id", id), slog.String("prompt_id", submitted.Prompt.ID), slog.Int64("position", submitted.Position))
		answer, err := c.await(ctx, s, parent, api, submitted.Prompt, after)
		if err != nil {
			return err
		}
		if parent.json() {
			if err := printJSON(s.stdout, answer); err != nil {
				return err
			}
		}
		return answer.Outcome()
	})
}

// attachedFiles reads the files of a prompt.
func attachedFiles(paths []string) ([]client.File, error) {
	if len(paths) > attachment.MaxPromptFiles {
		return nil, fmt.Errorf("--attach: %d files; at most %d are allowed", len(paths), attachment.MaxPromptFiles)
	}
	var files []client.File
	total := 0
	for _, path := range paths {
		data, err := attachedFile(path)
		if err != nil {
			return nil, fmt.Errorf("--attach %s: %w", path, err)
		}
		if total += len(data); total > attachment.MaxPromptBytes {
			return nil, fmt.Errorf("--attach: the files exceed %d bytes in total", attachment.MaxPromptBytes)
		}
		files = append(files, client.File{Name: filepath.Base(path), Data: data})
	}
	return files, nil
}

func attachedFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close() // only read
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return nil, cmp.Or(err, errors.New("is a directory"))
	}
	data, err := io.ReadAll(io.LimitReader(f, attachment.MaxBytes+1))
	if err == nil && len(data) > attachment.MaxBytes {
		err = fmt.Errorf("is larger than %d bytes", attachment.MaxBytes)
	}
	return data, err
}

// await prints the answer to a prompt while it is written, unless the output is JSON.
func (f timeoutFlag) await(
	ctx context.Context, s streams, parent *sessionCmd, api *client.Client, prompt client.Prompt, after int64,
) (answer cli.PromptAnswer, err error) {
	live := s.stdout
	if parent.json() {
		live = nil
	}
	err = f.during(ctx, fmt.Sprintf("prompt %s of session %s", prompt.ID, prompt.SessionID), func(ctx context.Context) error {
		answer, err = cli.Await(ctx, api, prompt, after, live, s.stderr)
		return err
	})
	return answer, err
}

func (c *sessionCmd) printPrompt(w io.Writer, p client.Submitted) error {
	if c.json() {
		return printJSON(w, p)
	}
	_, err := fmt.Fprintf(w, "%s  %s, position %d\n", p.Prompt.ID, p.Prompt.Status, p.Position)
	return err
}
