package turn

import (
	"strings"

	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Bounds of the receipt's note for the agent.
const (
	maxNoted     = 20 // maximum number of items in a list
	maxNotedItem = 200
)

// notes returns the text that precedes a prompt in the agent's input.
func notes(start run.Start) string {
	receipt := start.Receipt
	if start.HandOff != nil && receipt != nil {
		shortened := *receipt
		shortened.WithMemoryOf(start.HandOff.From) // the hand-off note reports the missing memory
		receipt = &shortened
	}
	note := receiptNote(receipt)
	if handed := handOffNote(start.HandOff); handed != "" {
		note = strings.TrimSpace(note + "\n\n" + handed)
	}
	return note
}

// receiptNote describes the restore of the sandbox to the agent, before its first prompt. It is
// empty if everything was restored.
func receiptNote(r *receipt.Receipt) string {
	if r == nil {
		return ""
	}
	var b strings.Builder
	if r.Moved != "" {
		b.WriteString("This session was moved here. It was at " + boundedNote(r.Moved) + "; now you work in a sandbox, in " + runner.DefaultWorkspace +
			", with the files and the repository of that place. Other programs, files outside of the workspace and running processes of it are not here. ")
	}
	switch r.Kind {
	case receipt.Fresh:
		b.WriteString("This session continues in a new sandbox, and nothing of the earlier one was restored: you have no memory of earlier prompts, and " +
			"files that were created or changed since the session began are lost.")
	case receipt.Partial:
		b.WriteString("This session continues in a new sandbox, and not all of the earlier one was restored.")
	default:
		if r.Moved == "" {
			return ""
		}
	}
	if len(r.Missing) > 0 {
		b.WriteString(" Missing or different:")
	}
	for i, item := range r.Missing {
		if i == maxNoted {
			b.WriteString("\n- and more")
			break
		}
		b.WriteString("\n- " + boundedNote(item))
	}
	b.WriteString("\nCheck what you rely on before you use it. The user does not see this note.")
	return b.String()
}

func boundedNote(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxNotedItem {
		return strings.ToValidUTF8(s[:maxNotedItem], "") + "…"
	}
	return s
}
