package main

import "strings"

// composer makes prompts of lines: a line that ends in a backslash goes on in the next, and lines
// between two of three quotes belong together.
type composer struct {
	lines  []string
	quoted bool
}

const quotes = `"""`

// open reports whether a prompt has begun and is not whole.
func (c *composer) open() bool { return c.quoted || len(c.lines) > 0 }

// reset drops what has begun.
func (c *composer) reset() { *c = composer{} }

// add takes a line and returns the prompt that it makes whole.
func (c *composer) add(line string) (prompt string, whole bool) {
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
	prompt = c.rest()
	return prompt, true
}

// rest is what has begun and will not go on.
func (c *composer) rest() string {
	text := strings.Join(c.lines, "\n")
	c.reset()
	return text
}
