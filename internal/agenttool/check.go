package agenttool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// check records the first error in the input of a call.
type check struct{ fault string }

// decode decodes an input, which must have no fields other than those of v.
func (c *check) decode(input json.RawMessage, v any) {
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		c.refuse("The input does not fit the schema of the tool: %s.", strings.TrimPrefix(err.Error(), "json: "))
	}
}

func (c *check) refuse(format string, args ...any) {
	if c.fault == "" {
		c.fault = fmt.Sprintf(format, args...)
	}
}

// required checks a text that must not be empty.
func (c *check) required(field, value string, most int) {
	if strings.TrimSpace(value) == "" {
		c.refuse("%s must not be empty.", field)
	}
	c.optional(field, value, most)
}

func (c *check) optional(field, value string, most int) {
	if strings.ContainsRune(value, 0) {
		c.refuse("%s must not have the character U+0000.", field)
	}
	if n := utf8.RuneCountInString(value); n > most {
		c.refuse("%s has %d characters; at most %d are allowed.", field, n, most)
	}
}

func (c *check) count(field string, n int64) {
	if n < 0 || n > maxCount {
		c.refuse("%s must be from 0 to %d.", field, maxCount)
	}
}

func (c *check) address(field, value string) {
	if value == "" {
		return
	}
	c.optional(field, value, maxURL)
	if u, err := url.Parse(value); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		c.refuse("%s must be a URL of http or https without a user.", field)
	}
}
