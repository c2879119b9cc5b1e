package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// maxLooked bounds the lines that a command of attach shows.
const maxLooked = 40

// notice shows the first lines, or the error of reading them.
func (a *attached) notice(lines []string, none string, err error) func() error {
	return func() error {
		switch {
		case err != nil:
			return a.view.Notice("could not be read: " + err.Error())
		case len(lines) == 0:
			return a.view.Notice(none)
		}
		shown := lines[:min(len(lines), maxLooked)]
		if more := len(lines) - len(shown); more > 0 {
			shown = append(shown[:len(shown):len(shown)], fmt.Sprintf("… %d more lines", more))
		}
		return a.view.Notice(strings.Join(shown, "\n"))
	}
}

// showStatus shows the session in a few lines.
func (a *attached) showStatus(ctx context.Context) func() error {
	s, err := a.client.SessionGet(ctx, a.id)
	if err != nil {
		return a.notice(nil, "", err)
	}
	status := string(s.Status)
	if s.StatusReason != "" {
		status += " (" + terminal.OneLine(s.StatusReason, terminal.LineRunes) + ")"
	}
	lines := []string{
		s.ID,
		"status: " + status,
		fmt.Sprintf("agent: %s, model %s, permissions %s", s.Agent, cmp.Or(terminal.OneLine(s.Options.Model, terminal.LineRunes), "default"),
			cmp.Or(s.Options.Permissions, client.PolicyAllow)),
		fmt.Sprintf("queue: %d queued, %d processing", s.Queue.Queued, s.Queue.Processing),
	}
	if s.Queue.Held {
		lines = append(lines, "queue held: "+cmp.Or(terminal.OneLine(s.Queue.HeldReason, terminal.LineRunes), "no prompt starts until a release"))
	}
	for _, c := range s.PendingCommands {
		lines = append(lines, "pending: "+string(c.Kind))
	}
	questions, err := a.client.QuestionList(ctx, a.id, client.QuestionOpen)
	for _, q := range questions.Items {
		lines = append(lines, "open question: "+terminal.OneLine(q.Title, terminal.LineRunes))
	}
	return a.notice(lines, "", err)
}

// showQueue lists the prompts that have not ended.
func (a *attached) showQueue(ctx context.Context) func() error {
	page, err := a.client.PromptList(ctx, a.id)
	var lines []string
	for _, p := range page.Items {
		if !p.Status.Final() || p.Status == client.PromptUnknown {
			lines = append(lines, fmt.Sprintf("%s: %s", p.Status, terminal.OneLine(p.Content, terminal.LineRunes)))
		}
	}
	return a.notice(lines, "no prompt is queued or processing", err)
}

// model shows the model, or changes it.
func (a *attached) model(name string) call {
	return func(ctx context.Context) func() error {
		now, err := a.client.SessionGet(ctx, a.id)
		if err != nil {
			return a.notice(nil, "", err)
		}
		if name == "" {
			return a.notice([]string{"model: " + cmp.Or(terminal.OneLine(now.Options.Model, terminal.LineRunes), "default")}, "", nil)
		}
		options := now.Options
		options.Model = name
		_, err = a.client.SessionPatch(ctx, a.id, map[string]any{"options": options})
		return func() error { return a.failed("the model was not changed", err) } // an event shows the new one
	}
}

// showFiles lists files.
func (a *attached) showFiles(prefix string) call {
	return func(ctx context.Context) func() error {
		page, err := a.client.FileList(ctx, a.id, prefix)
		var lines []string
		for _, f := range page.Items {
			lines = append(lines, fmt.Sprintf("%10d  %s", f.Size, terminal.OneLine(f.Path, terminal.LineRunes)))
		}
		return a.notice(lines, "no files", err)
	}
}

// showDiff shows the patch.
func (a *attached) showDiff(ctx context.Context) func() error {
	d, err := a.client.Diff(ctx, a.id)
	var lines []string
	if patch := strings.TrimRight(d.Patch, "\n"); patch != "" {
		lines = append(strings.Split(patch, "\n"), fmt.Sprintf("files changed: %d, +%d -%d", d.FilesChanged, d.Additions, d.Deletions))
	}
	return a.notice(lines, "nothing has changed", err)
}
