package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

const (
	// maxReviewRunes bounds the instructions of a review.
	maxReviewRunes = 10_000
	// maxReviewFiles bounds the files that the prompt of a review lists.
	maxReviewFiles = 100
	// reviewBegins is the start of a review prompt.
	reviewBegins = "Review the changes in this workspace. Do not change any file.\n"
)

// reviews is the route of reviews.
type reviews struct {
	*prompts
	files *files
}

// submit queues a prompt that asks the agent for a review. A repeated request with the same id
// finds the first prompt, even if the workspace has changed.
func (s *reviews) submit(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, true)
	if err != nil {
		return err
	}
	instructions, _ := body.short("instructions", maxReviewRunes)
	prompt := session.Prompt{
		ID: body.promptID(), SessionID: id, Status: session.PromptQueued, Mode: session.Followup, OnUnknown: session.Hold,
		RequestID: idOfRequest(c), TraceParent: traceOf(c), CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	if err := body.done(); err != nil {
		return err
	}
	ctx := c.Request().Context()
	stored, err := s.store.PromptGet(ctx, id, prompt.ID)
	switch {
	case err == nil && strings.HasPrefix(stored.Content, reviewBegins):
		prompt.Content = stored.Content
		return s.accept(c, prompt)
	case err != nil && failure.CodeOf(err) != failure.NoPrompt:
		return err
	}
	d, err := s.files.maskedDiff(ctx, id)
	if err != nil {
		return err
	}
	prompt.Content = reviewPrompt(instructions, d)
	return s.accept(c, prompt)
}

// reviewPrompt returns a prompt for the review of a diff. A nil diff means that none was taken.
func reviewPrompt(instructions string, d *workspacefile.Diff) string {
	var b strings.Builder
	b.WriteString(reviewBegins)
	if instructions = strings.TrimSpace(instructions); instructions != "" {
		fmt.Fprintf(&b, "\n%s\n", instructions)
	}
	how := "read the files"
	if d == nil || d.FilesChanged == 0 {
		b.WriteString("\nNo changes since the beginning of the session have been recorded.\n")
	} else {
		fmt.Fprintf(&b, "\nThese files differ from the beginning of the session (files: %d, lines: +%d -%d):\n", d.FilesChanged, d.Additions, d.Deletions)
		listed := d.Files[:min(len(d.Files), maxReviewFiles)]
		for _, f := range listed {
			lines := fmt.Sprintf("+%d -%d", f.Additions, f.Deletions)
			if f.Binary {
				lines = "binary"
			}
			fmt.Fprintf(&b, "- %q %s, %s\n", f.Path, f.Change, lines)
		}
		if more := d.FilesChanged - len(listed); more > 0 {
			fmt.Fprintf(&b, "- and %d more\n", more)
		}
		if d.Base != "" {
			how = "use git diff " + d.Base + ", and read the files"
		}
	}
	fmt.Fprintf(&b, "\nTo see the changes, %s. Look for mistakes, missing tests, and code that is hard to understand. "+
		"Report the result with the tool %s of the server %s; if you do not have it, answer with the result.\n", how, agenttool.ReportReview, agenttool.Server)
	return b.String()
}
