package turn

import (
	"context"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/fork"
)

// maskHandOff masks secrets in the handed-off conversation that were stored after that
// conversation.
func (a *attempt) maskHandOff(ctx context.Context) error {
	if a.start.HandOff == nil {
		return nil
	}
	masker, err := a.masker(ctx)
	if err != nil {
		return err
	}
	masked := *a.start.HandOff
	masked.Items = slices.Clone(masked.Items)
	for i := range masked.Items {
		masked.Items[i].Text = masker.Text(masked.Items[i].Text)
	}
	a.start.HandOff = &masked
	return nil
}

// handOffNote returns the conversation that another agent had before the session was forked, or "".
func handOffNote(h *fork.HandOff) string {
	if h == nil || len(h.Items) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("Another agent, " + boundedNote(h.From) + ", has worked in this session until now, and you continue in its place. You have its files. You do not have its memory: " +
		"the following is the recorded conversation, with long texts truncated, and without tool results and thinking. " +
		"Treat it as your own conversation with the user. Read files before you rely on its statements about them. The user does not see this note.\n")
	if h.More {
		b.WriteString("\n(The beginning of the conversation is left out.)\n")
	}
	for _, item := range h.Items {
		b.WriteString("\n" + heading(item) + "\n")
	}
	b.WriteString("\n(End of the conversation.)")
	return b.String()
}

func heading(s fork.Item) string {
	text := withoutTags(s.Text)
	switch {
	case s.Kind == fork.ItemOfTool && text == "":
		return "[called " + withoutTags(s.Tool) + "]"
	case s.Kind == fork.ItemOfTool:
		return "[called " + withoutTags(s.Tool) + ": " + text + "]"
	case s.Kind == fork.ItemOfAgent:
		return "Agent: " + text
	case s.Author != "":
		return "User (" + withoutTags(s.Author) + "): " + text
	default:
		return "User: " + text
	}
}

// withoutTags escapes text that would end the note early.
func withoutTags(text string) string {
	return strings.ReplaceAll(text, "system-reminder>", "system-reminder >")
}
