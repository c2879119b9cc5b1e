package stdio

import "strings"

// reminderTag begins what an agent is given in addition to what a person wrote. Models know it from their own programs.
const (
	reminderTag = "<system-reminder>"
	reminderEnd = "\n</system-reminder>"
)

// Reminder is a note as a separate part of a prompt, so that the prompt stays as it was written.
func Reminder(note string) string { return reminderTag + "\n" + note + reminderEnd }

// IsReminder reports whether a part of a message is a reminder, which no person wrote.
func IsReminder(part string) bool { return strings.HasPrefix(part, reminderTag) }

// AfterReminder is a text without the reminder that it begins with: an agent may join the parts of a message.
func AfterReminder(text string) string {
	if !IsReminder(text) {
		return text
	}
	if _, rest, ok := strings.Cut(text, reminderEnd); ok {
		return strings.TrimLeft(rest, "\n")
	}
	return text
}
