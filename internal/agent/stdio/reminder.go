package stdio

import "strings"

// reminderTag begins text for the agent that no person wrote. Models know the tag from their own
// programs.
const (
	reminderTag = "<system-reminder>"
	reminderEnd = "\n</system-reminder>"
)

// Reminder returns a note as a separate part of a prompt, so that the prompt itself is unchanged.
func Reminder(note string) string { return reminderTag + "\n" + note + reminderEnd }

// IsReminder reports whether a part of a message is a reminder, which no person wrote.
func IsReminder(part string) bool { return strings.HasPrefix(part, reminderTag) }

// AfterReminder returns a text without a reminder at its beginning, because an agent may join the
// parts of a message.
func AfterReminder(text string) string {
	if !IsReminder(text) {
		return text
	}
	if _, rest, ok := strings.Cut(text, reminderEnd); ok {
		return strings.TrimLeft(rest, "\n")
	}
	return text
}
