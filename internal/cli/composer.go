package cli

import "strings"

// composer builds prompts from lines: a line that ends in a backslash continues in the next one,
// and the lines between two lines of three quotes are one prompt.
type composer struct {
	lines  []string
	quoted bool
}

const quotes = `"""`

// open reports whether a prompt is incomplete.
func (c *composer) open() bool { return c.quoted || len(c.lines) > 0 }

// reset discards the incomplete prompt.
func (c *composer) reset() { *c = composer{} }

// add takes a line and returns the prompt if the line completes it.
func (c *composer) add(line string) (prompt string, complete bool) {
	switch {
	case strings.TrimSpace(line) == quotes && (c.quoted || len(c.lines) == 0):
		if c.quoted = !c.quoted; c.quoted {
			return "", false
		}
	case c.quoted:
		c.lines = append(c.lines, line)
		return "", false
	case strings.HasSuffix(line, `\`):
		c.lines = append(c.lines, strings.TrimSuffix(line, `\`))
		return "", false
	default:
		c.lines = append(c.lines, line)
	}
	return c.end(), true
}

// end returns the incomplete prompt at the end of the input.
func (c *composer) end() string {
	text := strings.Join(c.lines, "\n")
	c.reset()
	return text
}
